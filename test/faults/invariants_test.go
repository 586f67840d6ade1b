// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
)

// projection is a hostname's endpoints, and the scheme of each port.
type projection struct {
	Endpoints []string
	Ports     map[int32]string
	ID        string
}

// expected returns the projections of the account's endpoints by hostname. Of the product it uses
// only the URL parser.
func (w *testCluster) expected() map[string]projection {
	want := map[string]projection{}
	for id, e := range w.account.Endpoints() {
		u, err := account.ParseEndpointURL(e.URL)
		if err != nil || e.Name == "hidden" {
			continue
		}
		p := want[u.Host]
		if p.Ports == nil {
			p.Ports = map[int32]string{}
		}
		p.Endpoints, p.ID = append(p.Endpoints, id), e.ProjectionID
		p.Ports[int32(u.Port)] = u.Scheme
		slices.Sort(p.Endpoints)
		want[u.Host] = p
	}
	return want
}

// invariantError returns an error that names the invariant that does not hold, or nil.
func (w *testCluster) invariantError() error {
	var objects v1alpha1.BoundEndpointList
	if err := w.kube.List(w.Context(), &objects, client.InNamespace(w.own.Namespace)); err != nil {
		return err
	}
	got, targets := map[string]projection{}, map[int32]string{}
	for _, o := range objects.Items {
		p := projection{Ports: map[int32]string{}, ID: o.Spec.ProjectionID}
		for _, e := range o.Spec.Endpoints {
			p.Endpoints = append(p.Endpoints, e.ID)
		}
		for _, port := range o.Spec.Ports {
			if other, taken := targets[port.TargetPort]; taken {
				return fmt.Errorf("target port %d belongs to %s and to %s", port.TargetPort, other, o.Name)
			}
			targets[port.TargetPort] = o.Name
			if port.State == v1alpha1.StateBound {
				p.Ports[port.Port] = port.Scheme
			}
		}
		if o.Spec.State != v1alpha1.StateBound {
			continue
		}
		got[o.Name] = p
		if err := conditionError(&o); err != nil {
			return err
		}
	}
	if diff := cmp.Diff(w.expected(), got); diff != "" {
		return fmt.Errorf("account (-), BoundEndpoints (+):\n%s", diff)
	}
	return w.servicesError(objects.Items)
}

// conditionError returns an error unless the status has the condition ServicesReady of this
// generation: false for the hostname of a foreign Service, else true.
func conditionError(o *v1alpha1.BoundEndpoint) error {
	c, want := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionServicesReady), metav1.ConditionTrue
	if o.Spec.Service == "shop" {
		want = metav1.ConditionFalse
	}
	if c == nil || c.ObservedGeneration != o.Generation || c.Status != want {
		return fmt.Errorf("the status of %s, generation %d, is %+v", o.Name, o.Generation, c)
	}
	return nil
}

// servicesError compares all Services of both namespaces with the objects, and the Services of
// others with their initial state.
func (w *testCluster) servicesError(objects []v1alpha1.BoundEndpoint) error {
	found := map[string]corev1.Service{}
	for _, namespace := range []string{w.own.Namespace, w.target} {
		var list corev1.ServiceList
		if err := w.kube.List(w.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, s := range list.Items {
			found[s.Namespace+"/"+s.Name] = s
		}
	}
	for _, was := range w.foreign {
		key := was.Namespace + "/" + was.Name
		if diff := cmp.Diff(was, found[key]); diff != "" {
			w.Fatalf("foreign Service %s was changed: %s", key, diff)
		}
		delete(found, key)
	}
	for _, o := range objects {
		if o.Spec.State != v1alpha1.StateBound {
			continue
		}
		upstream, target := w.own.Namespace+"/"+o.Spec.ProjectionID, o.Spec.Namespace+"/"+o.Spec.Service
		if err := portsError(o, found[upstream], func(p v1alpha1.BoundPort) int32 { return p.TargetPort }); err != nil {
			return err
		}
		if s, ok := found[target]; o.Spec.Service != "shop" &&
			(!ok || s.Spec.ExternalName != o.Spec.ProjectionID+"."+w.own.Namespace+".svc.cluster.local") {
			return fmt.Errorf("Service %s does not lead to %s: %q", target, upstream, s.Spec.ExternalName)
		}
		if s := found[upstream]; !w.own.Owns(&s) {
			return fmt.Errorf("Service %s is not marked as Fairlead's", upstream)
		}
		delete(found, upstream)
		delete(found, target)
	}
	if len(found) > 0 {
		return fmt.Errorf("services without an endpoint: %v", slices.Sorted(maps.Keys(found)))
	}
	return nil
}

// portsError compares the ports of an upstream Service with those of its object.
func portsError(o v1alpha1.BoundEndpoint, s corev1.Service, target func(v1alpha1.BoundPort) int32) error {
	want, got := map[int32]int32{}, map[int32]int32{}
	for _, p := range o.Spec.Ports {
		if p.State == v1alpha1.StateBound {
			want[p.Port] = target(p)
		}
	}
	for _, p := range s.Spec.Ports {
		got[p.Port] = p.TargetPort.IntVal
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("the ports of %s (-) and those of its Service (+): %s", o.Name, diff)
	}
	return nil
}
