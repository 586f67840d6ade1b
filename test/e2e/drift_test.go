// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	driftRounds = 30
	// driftMedian is the promise; driftTimeout only ends a round that never does.
	driftMedian  = time.Second
	driftTimeout = 30 * time.Second
)

// drifts are changes that another client may make to a Fairlead Service, upstream or target.
var drifts = []struct {
	what   string
	target bool
	change func(*corev1.Service)
}{
	{"type: node port", false, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }},
	{"type: load balancer, source ranges", false, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, ptr.To("example.com/none")
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	}},
	{"type: external name", false, func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.invalid"}
	}},
	{"ports", false, func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 9}} }},
	{"selector", false, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} }},
	{"external addresses", false, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }},
	{"affinity", false, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }},
	{"labels", false, func(s *corev1.Service) { s.Labels = nil }},
	{"annotations", false, func(s *corev1.Service) { s.Annotations = nil }},
	{"owners", false, func(s *corev1.Service) { s.OwnerReferences = nil }},
	{"deletion", false, nil},
	{"external name", true, func(s *corev1.Service) { s.Spec.ExternalName = "example.invalid" }},
	{"labels", true, func(s *corev1.Service) { s.Labels = nil }},
	{"annotations", true, func(s *corev1.Service) { s.Annotations = nil }},
	{"deletion", true, nil},
}

// TestManager_RepairsDrift changes Fairlead Services: each change is undone within a second, in the
// median, and the ClusterIP stays.
func TestManager_RepairsDrift(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "drift")
	c, s := r.c, r.Service
	s.AgentOnly(t, "http", "8601", "http://web."+ns)
	bep := r.BoundEndpoint(t, "web."+ns, v1alpha1.ConditionServicesReady, "True", v1alpha1.ReasonProjected)
	upstream, target := r.Services(t, bep)
	var took []time.Duration
	for round := range driftRounds {
		d := drifts[round%len(drifts)]
		good := upstream
		if d.target {
			good = target
		}
		repaired := c.changeAndWaitRepair(t, good, d.change)
		t.Logf("%-36s %v", d.what, repaired.Round(time.Millisecond))
		took = append(took, repaired)
	}
	slices.Sort(took)
	median, longest := took[len(took)/2], took[len(took)-1]
	t.Logf("drift repaired: median %v, maximum %v of %d rounds over %d kinds", median.Round(time.Millisecond),
		longest.Round(time.Millisecond), len(took), len(drifts))
	if median > driftMedian {
		t.Errorf("median %v, want at most %v", median, driftMedian)
	}
}

// changeAndWaitRepair changes a Service, or deletes it without a change, and returns how long it
// took from the request until it was good again.
func (c *Cluster) changeAndWaitRepair(t *testing.T, good *corev1.Service, change func(*corev1.Service)) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), driftTimeout)
	defer cancel()
	watching, err := client.NewWithWatch(c.Config, client.Options{Scheme: scheme()})
	must.Succeed(t, err)
	now := &corev1.Service{}
	must.Succeed(t, c.Client.Get(ctx, client.ObjectKeyFromObject(good), now))
	w, err := watching.Watch(ctx, &corev1.ServiceList{}, &client.ListOptions{
		Namespace: good.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", good.Name),
	})
	must.Succeed(t, err)
	defer w.Stop()
	before, start := now.ResourceVersion, time.Now()
	if change == nil {
		err = c.Client.Delete(ctx, now)
	} else {
		change(now)
		err = c.Client.Update(ctx, now)
	}
	must.Succeed(t, err)
	for {
		select {
		case e := <-w.ResultChan():
			if s, ok := e.Object.(*corev1.Service); ok && e.Type != watch.Deleted && s.ResourceVersion != before &&
				sameService(s, good) {
				return time.Since(start)
			}
		case <-ctx.Done():
			_ = c.Client.Get(t.Context(), client.ObjectKeyFromObject(good), now)
			t.Fatalf("not repaired: %+v", now)
		}
	}
}

// sameService reports whether s has the spec, the ClusterIP included, and the metadata of good.
func sameService(s, good *corev1.Service) bool {
	return s.DeletionTimestamp == nil && equality.Semantic.DeepEqual(s.Spec, good.Spec) &&
		equality.Semantic.DeepEqual(s.OwnerReferences, good.OwnerReferences) &&
		equality.Semantic.DeepEqual(s.Labels, good.Labels) && equality.Semantic.DeepEqual(s.Annotations,
		good.Annotations)
}
