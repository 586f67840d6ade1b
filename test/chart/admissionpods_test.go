// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// podSlice is a slice that lists the Service of an imported pod with its address, as the manager
// writes it.
func podSlice(service, address string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "derived-25bmvji1c3-pods-a-ipv4",
			Labels: map[string]string{"multicluster.kubernetes.io/service-name": "db",
				"multicluster.kubernetes.io/source-cluster": "a", "bindings.fairlead.dev/pods": "true",
				"pods.bindings.fairlead.dev/" + service: "", discoveryv1.LabelManagedBy: installation.SliceManager}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, Hostname: ptr.To("db-0"),
			TargetRef: &corev1.ObjectReference{Kind: "Service", Namespace: "default", Name: service}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("db"), Port: ptr.To[int32](5432)}},
	}
	own.Mark(s)
	return s
}

// checkPodSlices checks that the manager's account can list no other address for an imported pod than
// the ClusterIP of the pod's Service, in 63 as in 0 of the names.
func (c *cluster) checkPodSlices(manager client.Client) {
	c.t.Helper()
	ctx := context.Background()
	c.install(release, namespace, "--set", "clusterset.enabled=true")
	services := map[string]*corev1.Service{}
	for _, name := range []string{"clusterset-pod-0", "clusterset-pod-63", "clusterset-pod-64", "clusterset-pod-7",
		"victim"} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}}}
		if name != "victim" && name != "clusterset-pod-7" {
			own.Mark(s)
		}
		c.MustCreate(s)
		services[name] = s
	}
	ip := func(name string) string { return services[name].Spec.ClusterIP }
	const foreign = "not the ClusterIP of the pod's Service"
	for _, name := range []string{"clusterset-pod-0", "clusterset-pod-63"} {
		c.awaitRefusal(foreign, func() error {
			return manager.Create(ctx, podSlice(name, ip("victim")), client.DryRunAll)
		})
	}
	two := func(service, address string) *discoveryv1.EndpointSlice {
		s := podSlice("clusterset-pod-0", ip("clusterset-pod-0"))
		s.Labels["pods.bindings.fairlead.dev/"+service] = ""
		s.Endpoints = append(s.Endpoints, podSlice(service, address).Endpoints...)
		return s
	}
	changed := func(change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := podSlice("clusterset-pod-0", ip("clusterset-pod-0"))
		change(s)
		return s
	}
	const unnamed = "is of no Service, and names the pods' Services"
	for _, tt := range []struct {
		name, refusal string
		slice         *discoveryv1.EndpointSlice
	}{
		{"the address of a pod's Service", "", podSlice("clusterset-pod-63", ip("clusterset-pod-63"))},
		{"two pods", "", two("clusterset-pod-63", ip("clusterset-pod-63"))},
		{"the address of another pod", foreign, podSlice("clusterset-pod-0", ip("clusterset-pod-63"))},
		{"a foreign address beside a pod's", foreign, two("clusterset-pod-63", ip("victim"))},
		{"a second address", foreign, changed(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses = append(s.Endpoints[0].Addresses, ip("victim"))
		})},
		{"a Service that there is not", "no params found", podSlice("clusterset-pod-9", "10.0.0.9")},
		{"a Service of others with a pod's name", "not of this Fairlead installation",
			podSlice("clusterset-pod-7", ip("clusterset-pod-7"))},
		{"a name without a binding", unnamed, podSlice("clusterset-pod-64", ip("clusterset-pod-64"))},
		{"a Service of others", unnamed, podSlice("victim", ip("victim"))},
		{"without a Service", unnamed, changed(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef = nil })},
		{"a pod", unnamed, changed(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef.Kind = "Pod" })},
		{"without the label of the Service", unnamed, changed(func(s *discoveryv1.EndpointSlice) {
			delete(s.Labels, "pods.bindings.fairlead.dev/clusterset-pod-0")
		})},
		{"for a Service's own use", unnamed, changed(func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelServiceName] = "victim"
		})},
		{"without the label of such slices", "the EndpointSlice", changed(func(s *discoveryv1.EndpointSlice) {
			delete(s.Labels, "bindings.fairlead.dev/pods")
		})},
		{"without a mark", "lacks the label", changed(func(s *discoveryv1.EndpointSlice) {
			delete(s.Labels, installation.Label)
		})},
	} {
		c.expectRefusal("pods: "+tt.name, tt.refusal, manager.Create(ctx, tt.slice, client.DryRunAll))
	}
	listed := podSlice("clusterset-pod-0", ip("clusterset-pod-0"))
	c.MustCreate(listed)
	moved := listed.DeepCopy()
	moved.Endpoints[0].Addresses = []string{ip("victim")}
	c.expectRefusal("pods: moving an address", foreign, manager.Update(ctx, moved, client.DryRunAll))
	if err := c.Delete(ctx, listed); err != nil {
		c.t.Error(err)
	}
	for _, s := range services {
		if err := c.Delete(ctx, s); err != nil {
			c.t.Error(err)
		}
	}
	c.install(release, namespace) // which imports nothing: the label is no way around the forwarders' addresses
	c.awaitRefusal("lists an address that is no forwarder's", func() error {
		s := targetSlice()
		s.Labels["bindings.fairlead.dev/pods"], s.Endpoints[0].Addresses = "true", []string{ip("victim")}
		return manager.Create(ctx, s, client.DryRunAll)
	})
}
