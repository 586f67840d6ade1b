// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

var _ = Describe("Reconciler: application protocols", func() {
	// portsOf returns "name protocol" of a Service's ports.
	portsOf := func(s *corev1.Service) (all []string) {
		for _, p := range s.Spec.Ports {
			all = append(all, p.Name+" "+*p.AppProtocol)
		}
		return all
	}

	DescribeTable("follow the agent in place: the port's name and the Service's address stay",
		func(ctx SpecContext, projection v1alpha1.Projection) {
			h := newHarness(ctx)
			h.projection, h.addresses.addresses = projection, twoForwarders()
			h.restart()
			b := h.object(ctx, "api", h.Target, v1alpha1.BoundPort{Port: 80, Scheme: "http", TargetPort: 20080},
				v1alpha1.BoundPort{Port: 90, Scheme: "http", TargetPort: 20090, AppProtocol: "kubernetes.io/h2c"},
				v1alpha1.BoundPort{Port: 5432, Scheme: "tcp", TargetPort: 20081})
			h.reconcile(ctx, b)
			before := h.target(ctx, b)
			Expect(portsOf(before)).To(Equal([]string{"http-80 http", "http2-90 kubernetes.io/h2c", "tcp-5432 tcp"}))

			h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) {
				s.Ports[0].AppProtocol, s.Ports[1].AppProtocol = "kubernetes.io/h2c", ""
			})
			h.reconcile(ctx, b)
			changed := []string{"http-80 kubernetes.io/h2c", "http2-90 http", "tcp-5432 tcp"}
			services := []*corev1.Service{h.target(ctx, b)}
			Expect(services[0].UID).To(Equal(before.UID))
			Expect(services[0].Spec.ClusterIPs).To(Equal(before.Spec.ClusterIPs))
			if projection == v1alpha1.ProjectionExternalName {
				services = append(services, h.upstream(ctx, b))
				Expect(services[1].Spec.ClusterIP).To(Equal(b.Status.ClusterIP))
			} else {
				for _, s := range h.slices(ctx, b) {
					Expect(*s.Ports[0].Name + " " + *s.Ports[0].AppProtocol).To(Equal(changed[0]))
					Expect(*s.Ports[1].Name + " " + *s.Ports[1].AppProtocol).To(Equal(changed[1]))
				}
			}
			for _, s := range services {
				Expect(portsOf(s)).To(Equal(changed))
			}
			h.counter.takeWrites()
			h.reconcile(ctx, b)
			Expect(h.counter.takeWrites()).To(BeEmpty())

			h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) {
				s.Ports[0].Scheme, s.Ports[0].AppProtocol = "tcp", ""
			})
			h.reconcile(ctx, b)
			Expect(portsOf(h.target(ctx, b))[0]).To(Equal("tcp-80 tcp"))
		},
		Entry("by ExternalName", v1alpha1.ProjectionExternalName),
		Entry("by EndpointSlices", v1alpha1.ProjectionEndpointSlice),
	)
})
