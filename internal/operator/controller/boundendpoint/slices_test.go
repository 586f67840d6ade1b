// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
)

// readyAddress is an endpoint of a ready forwarder.
func readyAddress(address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, NodeName: ptr.To("node-1"), Zone: ptr.To("zone-a"),
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true),
			Terminating: ptr.To(false)}}
}

// twoForwarders have an address of each family.
func twoForwarders() forwarderaddresses.Addresses {
	return forwarderaddresses.Addresses{
		discoveryv1.AddressTypeIPv4: {readyAddress("10.9.0.1"), readyAddress("10.9.0.2")},
		discoveryv1.AddressTypeIPv6: {readyAddress("fd00:9::1"), readyAddress("fd00:9::2")},
	}
}

// slices returns the EndpointSlices of the target Service by family.
func (h *harness) slices(ctx context.Context, b *v1alpha1.BoundEndpoint) map[string]discoveryv1.EndpointSlice {
	GinkgoHelper()
	var list discoveryv1.EndpointSliceList
	Expect(h.Live.List(ctx, &list, client.InNamespace(b.Spec.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: b.Spec.Service})).To(Succeed())
	byFamily := map[string]discoveryv1.EndpointSlice{}
	for _, s := range list.Items {
		byFamily[string(s.AddressType)] = s
	}
	Expect(byFamily).To(HaveLen(len(list.Items)))
	return byFamily
}

var _ = Describe("Reconciler: projection by EndpointSlices", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) {
		h = newHarness(ctx)
		h.projection, h.addresses.addresses = v1alpha1.ProjectionEndpointSlice, twoForwarders()
		h.restart()
	})

	It("makes a Service with a ClusterIP and slices with the forwarders' addresses, once", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target, v1alpha1.BoundPort{Port: 80, Scheme: "http", TargetPort: 20080},
			v1alpha1.BoundPort{Port: 5432, Scheme: "tcp", TargetPort: 20081})
		h.reconcile(ctx, b)
		target := h.target(ctx, b)
		Expect(target.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		Expect(target.Spec.Selector).To(BeEmpty())
		Expect(target.Spec.ClusterIPs).To(HaveLen(2))
		h.expectNoService(ctx, h.Installation.Namespace, "ep-api")
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "http://api."+h.Target)
		Expect(b.Status.ClusterIPs).To(Equal(target.Spec.ClusterIPs))
		Expect(b.Status.Projection).To(Equal(v1alpha1.ProjectionEndpointSlice))
		Expect(b.Status.Target).To(Equal("fairlead-forwarders." + h.Installation.Namespace))

		slices := h.slices(ctx, b)
		for family, endpoints := range h.addresses.addresses {
			s := slices[string(family)]
			Expect(s.Endpoints).To(Equal(endpoints))
			Expect(h.Installation.Owns(&s)).To(BeTrue())
			Expect(s.Labels).To(HaveKeyWithValue(discoveryv1.LabelManagedBy, "fairlead-operator"))
			Expect(s.Labels).NotTo(HaveKey(corev1.IsHeadlessService))
			Expect(s.OwnerReferences).To(Equal([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "api",
				UID: target.UID, BlockOwnerDeletion: ptr.To(false)}}))
			Expect(s.Ports).To(HaveLen(2))
			for i, p := range target.Spec.Ports {
				Expect(s.Ports[i]).To(Equal(discoveryv1.EndpointPort{Name: &p.Name, Port: &p.TargetPort.IntVal,
					Protocol: &p.Protocol, AppProtocol: p.AppProtocol}))
			}
		}

		h.counter.takeWrites()
		statuses := h.counter.statuses
		h.Clock.Step(time.Hour)
		h.reconcile(ctx, b)
		Expect(h.counter.takeWrites()).To(BeEmpty())
		Expect(h.counter.statuses).To(Equal(statuses))
		Expect(h.addresses.held).To(BeZero())
	})

	It("follows the forwarders with one write of a slice, and repairs what others change", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		h.counter.takeWrites()
		stopping := readyAddress("10.9.0.1")
		stopping.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true),
			Terminating: ptr.To(true)}
		h.addresses.addresses[discoveryv1.AddressTypeIPv4][0] = stopping
		h.reconcile(ctx, b)
		Expect(h.counter.takeWrites()).To(Equal([]string{"update " + h.Target + "/api-fairlead-ipv4"}))
		Expect(h.slices(ctx, b)["IPv4"].Endpoints[0]).To(Equal(stopping))

		s := h.slices(ctx, b)["IPv6"]
		s.Endpoints, s.Labels[corev1.IsHeadlessService] = []discoveryv1.Endpoint{readyAddress("fd00:9::66")}, ""
		s.Labels["team"] = "theirs"
		Expect(h.Client.Update(ctx, &s)).To(Succeed())
		s = h.slices(ctx, b)["IPv4"]
		Expect(h.Client.Delete(ctx, &s)).To(Succeed())
		h.reconcile(ctx, b)
		Expect(h.slices(ctx, b)["IPv4"].Endpoints).To(HaveLen(2))
		s = h.slices(ctx, b)["IPv6"]
		Expect(s.Endpoints).To(Equal(h.addresses.addresses[discoveryv1.AddressTypeIPv6]))
		Expect(s.Labels).To(And(HaveKeyWithValue("team", "theirs"), Not(HaveKey(corev1.IsHeadlessService))))

		delete(h.addresses.addresses, discoveryv1.AddressTypeIPv6)
		h.reconcile(ctx, b)
		Expect(h.slices(ctx, b)).NotTo(HaveKey("IPv6"))
	})

	It("waits for the addresses, and forgets a hostname that is released", func(ctx SpecContext) {
		known := h.addresses.addresses
		h.addresses.addresses = nil
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		Expect(b.Status.Conditions).To(BeEmpty())
		Expect(h.addresses.acquired).To(HaveKey(b.Name))
		h.addresses.addresses = known
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State, s.Endpoints = v1alpha1.StateReleased, nil })
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Target, "api")
		Expect(h.addresses.acquired).NotTo(HaveKey(b.Name))
	})

	It("gives a deleted Service its address back, and new slices", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		before := h.target(ctx, b)
		Expect(h.Client.Delete(ctx, before)).To(Succeed())
		h.reconcile(ctx, b)
		after := h.target(ctx, b)
		Expect(after.Spec.ClusterIPs).To(Equal(before.Spec.ClusterIPs))
		Expect(h.slices(ctx, b)["IPv4"].OwnerReferences[0].UID).To(Equal(after.UID))
	})

	It("leaves foreign Services and slices alone", func(ctx SpecContext) {
		foreign := h.createForeign(ctx, h.Target, "theirs")
		b := h.object(ctx, "theirs", h.Target)
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "theirs")
		Expect(h.target(ctx, b)).To(Equal(foreign))
		Expect(h.slices(ctx, b)).To(BeEmpty())

		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
			ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "api-fairlead-ipv4"},
			Endpoints:  []discoveryv1.Endpoint{}}
		Expect(h.Live.Create(ctx, slice)).To(Succeed())
		b = h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "api-fairlead-ipv4")
		after := &discoveryv1.EndpointSlice{}
		Expect(h.Live.Get(ctx, client.ObjectKeyFromObject(slice), after)).To(Succeed())
		Expect(after.ResourceVersion).To(Equal(slice.ResourceVersion))
	})

	It("goes by the namespace's label, and names a label that is no projection", func(ctx SpecContext) {
		h.projection = v1alpha1.ProjectionExternalName
		h.restart()
		label := func(namespace, projection string) {
			GinkgoHelper()
			// in the form that is read: only of those writes the cache is told to wait for
			ns := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelProjection, projection)
			Expect(h.Client.Patch(ctx, ns, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		label(h.Target, "endpointSlice")
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		Expect(h.target(ctx, b).Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))

		other := h.Namespace(ctx, "other-")
		label(other, "slices")
		b = h.object(ctx, "api2", other)
		h.reconcile(ctx, b)
		Expect(h.target(ctx, b).Spec.Type).To(Equal(corev1.ServiceTypeExternalName))
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", `"slices" is neither`)
	})
})
