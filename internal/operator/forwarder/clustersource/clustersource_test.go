// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clustersource

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// testCluster is a namespace of a real API server, and a source that watches it.
type testCluster struct {
	*testenv.Kube
	t         *testing.T
	config    *rest.Config
	namespace string
	source    *Source
	updates   chan forwarder.Objects
	last      forwarder.Objects
}

func (k *testCluster) otherNamespace() string { return k.namespace + "-other" }

func newCluster(t *testing.T, config *rest.Config, namespace string) *testCluster {
	t.Helper()
	k := &testCluster{Kube: testenv.NewKube(t, config), t: t, config: config, namespace: namespace,
		updates: make(chan forwarder.Objects, 1000)}
	for _, ns := range []string{namespace, k.otherNamespace()} {
		k.MustCreate(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	var err error
	if k.source, err = New(config, own(namespace)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.source.Watch(ctx, func(o forwarder.Objects) { k.updates <- o }) }()
	t.Cleanup(func() {
		cancel()
		if err := wait.Receive(t, "the watch's end", done); err != nil {
			t.Error(err)
		}
	})
	return k
}

func (k *testCluster) until(what string, condition func(forwarder.Objects) bool) {
	k.t.Helper()
	for !condition(k.last) {
		k.last = wait.Receive(k.t, what, k.updates)
	}
}

// own is the installation of a test.
func own(namespace string) installation.Installation {
	return installation.Installation{Namespace: namespace, Release: "release-1"}
}

// boundEndpoint creates the BoundEndpoint of http://NAME.demo; without an owner it belongs to no
// installation.
func (k *testCluster) boundEndpoint(namespace, name string, owner *installation.Installation) *v1alpha1.BoundEndpoint {
	k.t.Helper()
	b := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + ".demo"}}
	b.Spec = v1alpha1.BoundEndpointSpec{Service: name, Namespace: "demo", ProjectionID: "ep-projection",
		State: v1alpha1.StateBound, Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 10080}},
		Endpoints: []v1alpha1.EndpointRef{{ID: "ep-" + name, URL: "http://" + name + ".demo:80"}}}
	if owner != nil {
		owner.Mark(b)
	}
	b.Status.Conditions = []metav1.Condition{servicesReady(1)} // what creates an object does not write its status
	k.MustCreate(b)
	return b
}

// observe writes what the manager writes after observing an object's spec.
func (k *testCluster) observe(b *v1alpha1.BoundEndpoint) {
	k.t.Helper()
	b.Status.Conditions = []metav1.Condition{servicesReady(b.Generation)}
	if err := k.Status().Update(context.Background(), b); err != nil {
		k.t.Fatal(err)
	}
}

func servicesReady(generation int64) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionServicesReady, Status: metav1.ConditionTrue,
		ObservedGeneration: generation,
		Reason:             v1alpha1.ReasonProjected, LastTransitionTime: metav1.Now()}
}

// TestClusterSource reads a real API server, which its parts share; each has a namespace of its own.
func TestClusterSource(t *testing.T) {
	t.Parallel()
	config := testenv.Start(t)
	for name, test := range map[string]func(*testing.T, *testCluster){
		"WatchesObservedBoundEndpoints": testWatchesObservedBoundEndpoints,
		"WatchesOwnOperator":            testWatchesOwnOperator,
		"FindsReadyPodInEndpointSlices": testFindsReadyPodInEndpointSlices,
		"FindsPodInRecord":              testFindsPodInRecord,
		"ReportsNamespaceDeletion":      testReportsNamespaceDeletion,
	} {
		t.Run(name, func(t *testing.T) { test(t, newCluster(t, config, strings.ToLower(name))) })
	}
}

func testWatchesObservedBoundEndpoints(t *testing.T, k *testCluster) {
	ctx := context.Background()
	k.last = wait.Receive(t, "the first list", k.updates)
	if len(k.last.BoundEndpoints) != 0 || k.last.OperatorID != "" {
		t.Errorf("an empty namespace holds %+v", k.last)
	}
	owner := own(k.namespace)
	k.boundEndpoint(k.namespace, "foreign", nil)
	k.boundEndpoint(k.otherNamespace(), "elsewhere", &owner)
	api := k.boundEndpoint(k.namespace, "api", &owner)
	forged := k.boundEndpoint(k.namespace, "forged", &owner) // the manager never observes it
	k.observe(api)
	k.until("the BoundEndpoint", func(o forwarder.Objects) bool { return len(o.BoundEndpoints) == 1 })
	if got := k.last.BoundEndpoints[0].Name; got != "api.demo" {
		t.Errorf("BoundEndpoint %s", got)
	}

	api.Spec.State = v1alpha1.StateReleased
	if err := k.Update(ctx, api); err != nil {
		t.Fatal(err)
	}
	forged.Spec.Ports[0].TargetPort = 10082
	if err := k.Update(ctx, forged); err != nil {
		t.Fatal(err)
	}
	k.last = wait.Receive(t, "a changed spec", k.updates)
	if len(k.last.BoundEndpoints) != 1 || k.last.BoundEndpoints[0].Spec.State == v1alpha1.StateReleased {
		t.Errorf("before the manager observed the change: %+v", k.last.BoundEndpoints)
	}
	k.observe(api)
	k.until("the release", func(o forwarder.Objects) bool {
		return len(o.BoundEndpoints) == 1 && o.BoundEndpoints[0].Spec.State == v1alpha1.StateReleased
	})
	if err := k.Delete(ctx, api); err != nil {
		t.Fatal(err)
	}
	k.until("the deletion", func(o forwarder.Objects) bool { return len(o.BoundEndpoints) == 0 })
}

func testWatchesOwnOperator(t *testing.T, k *testCluster) {
	other := &v1alpha1.KubernetesOperator{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: "release-2"}}
	operator := &v1alpha1.KubernetesOperator{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: "release-1"}}
	for o, id := range map[*v1alpha1.KubernetesOperator]string{other: "ko-other", operator: "ko-1"} {
		k.MustCreate(o)
		o.Status.OperatorID = id
		if err := k.Status().Update(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}
	k.until("the operator's id", func(o forwarder.Objects) bool { return o.OperatorID != "" })
	if k.last.OperatorID != "ko-1" || k.last.OperatorUID != string(operator.UID) {
		t.Errorf("operator %s with UID %s", k.last.OperatorID, k.last.OperatorUID)
	}
}

func testFindsReadyPodInEndpointSlices(t *testing.T, k *testCluster) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: k.namespace, Name: "ep-1-abc"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.7"},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true),
					Terminating: ptr.To(true)}},
			{Addresses: []string{"10.0.0.8"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
			{Addresses: []string{"10.0.0.9"}},
		},
	}
	k.MustCreate(slice)
	elsewhere := slice.DeepCopy()
	elsewhere.ObjectMeta = metav1.ObjectMeta{Namespace: k.otherNamespace(), Name: "ep-2-abc"}
	elsewhere.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.10"}}}
	k.MustCreate(elsewhere)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ipv6 := slice.DeepCopy()
	ipv6.ObjectMeta, ipv6.AddressType = metav1.ObjectMeta{Namespace: k.namespace, Name: "ep-1-six"},
		discoveryv1.AddressTypeIPv6
	ipv6.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"fd00::8"}}}
	k.MustCreate(ipv6)
	for ips, want := range map[string]bool{
		"10.0.0.7": false, "10.0.0.8": true, "10.0.0.9": true, "10.0.0.10": false,
		"fd00:0::0008": true, "fd00::7": false, "10.0.0.7,fd00::8": true, "10.0.0.7,fd00::7": false,
	} {
		var parsed []netip.Addr
		for ip := range strings.SplitSeq(ips, ",") {
			parsed = append(parsed, netip.MustParseAddr(ip))
		}
		if got, err := k.source.InEndpointSlices(ctx, parsed); got != want || err != nil {
			t.Errorf("%s is listed: %v, %v; want %v", ips, got, err, want)
		}
	}
}

// testFindsPodInRecord checks that a pod counts as listed while the manager has its address in the
// record of what EndpointSlices in other namespaces list.
func testFindsPodInRecord(t *testing.T, k *testCluster) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pod := []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
	check := func(what string, want bool) {
		t.Helper()
		if got, err := k.source.InEndpointSlices(ctx, pod); got != want || err != nil {
			t.Errorf("%s: listed %v, %v", what, got, err)
		}
	}
	check("without a KubernetesOperator", false)
	operator := &v1alpha1.KubernetesOperator{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: "release-1"}}
	k.MustCreate(operator)
	for _, tt := range []struct {
		recorded []string
		want     bool
	}{{nil, false}, {[]string{"10.0.0.70", "fd00:0::7"}, true}, {[]string{"10.0.0.8"}, false}} {
		operator.Status.ProjectedForwarders = tt.recorded
		if err := k.Status().Update(ctx, operator); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprint(tt.recorded), tt.want)
	}
	unprivileged := rest.CopyConfig(k.config)
	unprivileged.Impersonate.UserName = "system:serviceaccount:fairlead:default"
	source, err := New(unprivileged, own(k.namespace))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.InEndpointSlices(ctx, pod); !apierrors.IsForbidden(err) {
		t.Errorf("without rights: %v", err)
	}
}

// testReportsNamespaceDeletion deletes the namespace. No controller finishes deletions here, so it
// stays Terminating.
func testReportsNamespaceDeletion(t *testing.T, k *testCluster) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	source := func(config *rest.Config, namespace string) *Source {
		s, err := New(config, own(namespace))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	unprivileged := rest.CopyConfig(k.config)
	unprivileged.Impersonate.UserName = "system:serviceaccount:fairlead:default"
	deleted := rest.AnonymousClientConfig(k.config)
	deleted.BearerToken = "of-a-service-account-that-is-gone"
	check := func(name string, s *Source, want, known bool) {
		t.Helper()
		if got, err := s.NamespaceDeleted(ctx); got != want || (err == nil) != known {
			t.Errorf("%s: deleted %v, %v; want %v", name, got, err, want)
		}
	}
	check("a namespace that stays", k.source, false, true)
	check("no ServiceAccount any more", source(deleted, k.namespace), false, false)
	if _, err := source(deleted, k.namespace).NamespaceDeleted(ctx); !apierrors.IsUnauthorized(err) {
		t.Errorf("no ServiceAccount any more: %v", err)
	}
	check("no namespace any more", source(k.config, "never-was"), true, true)
	if err := k.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.namespace}}); err != nil {
		t.Fatal(err)
	}
	check("a namespace that is being deleted", k.source, true, true)
	check("the other namespace", source(k.config, k.otherNamespace()), false, true)
	check("a namespace that must not be read", source(unprivileged, k.namespace), false, false)
}

// TestClusterSource_RetriesMissingCluster checks that the source waits for a cluster that is
// unreachable: the forwarder starts anyway.
func TestClusterSource_RetriesMissingCluster(t *testing.T) {
	t.Parallel()
	source, err := New(&rest.Config{Host: "http://127.0.0.1:1", Timeout: time.Second}, own("fairlead"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := source.Watch(ctx, func(forwarder.Objects) { t.Error("an update without a list") }); err != nil {
		t.Errorf("got %v", err)
	}
	if _, err := source.InEndpointSlices(context.Background(), nil); err == nil {
		t.Error("EndpointSlices of an unreachable cluster were read")
	}
	if removed, err := source.NamespaceDeleted(context.Background()); removed || err == nil {
		t.Errorf("an unreachable cluster: namespace deleted %v, %v", removed, err)
	}
}
