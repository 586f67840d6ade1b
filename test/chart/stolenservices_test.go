// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// thiefObject is an object that the manager's account writes, and the sentence that refuses it.
type thiefObject struct {
	name, refusal string // refusal is empty if it is admitted
	object        client.Object
}

var (
	own        = installation.Installation{Namespace: namespace, Release: release}
	forwarders = map[string]string{"app.kubernetes.io/name": "fairlead-forwarder",
		"app.kubernetes.io/instance": release}
)

const (
	notOurs, noMarks = "is not of this Fairlead installation", "lacks the marks of this installation"
	otherPods        = "selects other pods than the forwarders"
)

// markedService returns a Service as the manager makes it, with a spec and a change.
func markedService(ns string, spec corev1.ServiceSpec, changes ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "api"}, Spec: spec}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http-80", Port: 80}}
	own.Mark(s)
	for _, change := range changes {
		change(s)
	}
	return s
}

// createdServices are Services that the thief creates.
func createdServices() []thiefObject {
	of := func(t corev1.ServiceType) corev1.ServiceSpec { return corev1.ServiceSpec{Type: t} }
	named := func(name string) corev1.ServiceSpec {
		return corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: name}
	}
	selecting := func(pods map[string]string) corev1.ServiceSpec { return corev1.ServiceSpec{Selector: pods} }
	other := maps.Clone(forwarders)
	other["app.kubernetes.io/instance"] = "other"
	const target, types = "ep-1." + namespace + ".svc.cluster.local", "makes Services with a ClusterIP"
	return []thiefObject{
		{"the target of externalName", "", markedService("default", named(target))},
		{"the target of endpointSlice", "", markedService("default", corev1.ServiceSpec{})},
		{"upstream", "", markedService(namespace, selecting(forwarders))},
		{"external IPs", "external IPs", markedService("default",
			corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}})},
		{"external IPs of ExternalName", "external IPs", markedService("default", named(target),
			func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} })},
		{"node port", types, markedService("default", of(corev1.ServiceTypeNodePort))},
		{"load balancer", types, markedService(namespace, of(corev1.ServiceTypeLoadBalancer))},
		{"headless", types, markedService(namespace, corev1.ServiceSpec{ClusterIP: "None", Selector: forwarders})},
		{"a name elsewhere", "is not in fairlead.svc.cluster.local", markedService("default", named("evil.example"))},
		{"a name that looks alike", "is not in", markedService("default", named("ep-1.fairlead.svc.evil.example"))},
		{"another namespace's Service", "is not in", markedService("default", named("api.prod.svc.cluster.local"))},
		{"a name beside the forwarders", types, markedService(namespace, named(target))},
		{"pods of a target namespace", otherPods, markedService("default", selecting(map[string]string{"app": "db"}))},
		{"pods with the forwarders' labels", otherPods, markedService("default", selecting(forwarders))},
		{"all pods of its namespace", otherPods, markedService(namespace, corev1.ServiceSpec{})},
		{"another release's forwarders", otherPods, markedService(namespace, selecting(other))},
		{"without marks", noMarks, markedService("default", named(target),
			func(s *corev1.Service) { s.Labels, s.Annotations = nil, nil })},
		{"a mark of another place", noMarks, markedService("default", named(target),
			func(s *corev1.Service) { s.Name = "copy" })},
	}
}

// createdPolicies are NetworkPolicies that the thief creates in the release's namespace.
func createdPolicies() []thiefObject {
	policy := func(pods map[string]string, types ...networkingv1.PolicyType) *networkingv1.NetworkPolicy {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "base"},
			Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: pods},
				PolicyTypes: types}}
		own.Mark(p)
		return p
	}
	const in, out, refusal = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress, "concerns other pods"
	bare := policy(forwarders, in)
	bare.Labels = nil
	return []thiefObject{
		{"of forwarders", "", policy(forwarders, in)},
		{"of all pods", refusal, policy(nil, in)},
		{"of other pods", refusal, policy(map[string]string{"app": "server"}, in)},
		{"of what forwarders connect with", refusal, policy(forwarders, in, out)},
		{"without marks", noMarks, bare},
	}
}

// triesServices writes Services and NetworkPolicies, which admission policies limit to the
// manager's own.
func (v thief) triesServices(t *testing.T, c *cluster) {
	t.Helper()
	ctx := t.Context()
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "dns"}, Ports: []corev1.ServicePort{{Port: 53}}}}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"}}
	ours := markedService("default", corev1.ServiceSpec{})
	c.MustCreate(theirs, policy, ours)
	wait.Until(t, "the admission policies", func() bool {
		return v.Delete(ctx, theirs, client.DryRunAll) != nil && v.Delete(ctx, policy, client.DryRunAll) != nil
	})
	for _, tt := range append(createdServices(), createdPolicies()...) {
		o := tt.object
		if o.GetNamespace() == ours.Namespace {
			o.SetName("new-" + o.GetName())
			if tt.refusal != noMarks {
				own.Mark(o)
			}
		}
		checkRefusal(t, tt.name, tt.refusal, v.Create(ctx, o, client.DryRunAll))
	}
	v.triesForeignService(t, theirs)
	checkRefusal(t, "a foreign NetworkPolicy deleted", notOurs, v.Delete(ctx, policy, client.DryRunAll))
	v.triesOwnService(t, c, ours)
}

// checkRefusal checks that the API server refused a write with a sentence that has refusal in it, or
// admitted it if refusal is "".
func checkRefusal(t *testing.T, what, refusal string, err error) {
	t.Helper()
	if refused := err != nil && strings.Contains(err.Error(), refusal); refusal == "" && err != nil ||
		refusal != "" && (!refused || !apierrors.IsInvalid(err)) {
		t.Errorf("%s: %v, want %q", what, err, refusal)
	}
}

// triesForeignService changes and deletes a Service that is not the manager's.
func (v thief) triesForeignService(t *testing.T, theirs *corev1.Service) {
	t.Helper()
	ctx := t.Context()
	for what, change := range map[string]func(*corev1.Service){
		"a foreign Service made ours":        func(s *corev1.Service) { own.Mark(s) },
		"a foreign Service with external IP": func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} },
		"a foreign Service as NodePort":      func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
		"a foreign Service of other pods": func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"app": "x"}
		},
		"a foreign Service as a name": func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeExternalName,
				"evil.example", "", nil
		},
	} {
		changed := theirs.DeepCopy()
		change(changed)
		checkRefusal(t, what, notOurs, v.Update(ctx, changed, client.DryRunAll))
	}
	checkRefusal(t, "a foreign Service deleted", notOurs, v.Delete(ctx, theirs, client.DryRunAll))
}

// triesOwnService changes a Service of the manager's, repairs one that lost its marks, and deletes it.
func (v thief) triesOwnService(t *testing.T, c *cluster, ours *corev1.Service) {
	t.Helper()
	ctx := t.Context()
	changed := ours.DeepCopy()
	changed.Spec.Selector = map[string]string{"app": "db"}
	checkRefusal(t, "its Service of other pods", otherPods, v.Update(ctx, changed, client.DryRunAll))
	for what, forget := range map[string]func(*corev1.Service){
		"its Service":                     func(*corev1.Service) {},
		"its Service without label":       func(s *corev1.Service) { s.Labels = nil },
		"its Service without annotations": func(s *corev1.Service) { s.Annotations = nil },
	} {
		changed := ours.DeepCopy()
		forget(changed)
		must.Succeed(t, c.Update(ctx, changed))
		own.Mark(changed)
		checkRefusal(t, what, "", v.Update(ctx, changed, client.DryRunAll))
		checkRefusal(t, what+" deleted", "", v.Delete(ctx, changed, client.DryRunAll))
		ours = changed
	}
}
