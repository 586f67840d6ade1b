// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

var _ = Describe("Reconciler: a Service that another cluster exports", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })
	exported := func(ctx context.Context, namespace string) *v1alpha1.BoundEndpoint {
		GinkgoHelper()
		hostname := "hello." + namespace + ".a"
		b := &v1alpha1.BoundEndpoint{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.Installation.Namespace, Name: hostname},
			Spec: v1alpha1.BoundEndpointSpec{Service: "hello", Namespace: namespace, Cluster: "a", ProjectionID: "ep-1",
				Ports:     []v1alpha1.BoundPort{{Port: 42, Scheme: "tcp", TargetPort: 20042}},
				Endpoints: []v1alpha1.EndpointRef{{ID: "ep-1", URL: "tcp://" + hostname + ":42"}}},
		}
		h.Installation.Mark(b)
		Expect(h.Client.Create(ctx, b)).To(Succeed())
		return b
	}

	for _, projection := range []v1alpha1.Projection{v1alpha1.ProjectionExternalName,
		v1alpha1.ProjectionEndpointSlice} {
		It("has target ports and no Services, with "+string(projection), func(ctx SpecContext) {
			h.projection = projection
			h.restart()
			foreign := h.createForeign(ctx, h.Target, "hello")
			b := exported(ctx, h.Target)
			Expect(b.Observed()).To(BeFalse())
			h.reconcile(ctx, b)
			Expect(b.Observed()).To(BeTrue(), "forwarders wait for that")
			expectCondition(b, v1alpha1.ConditionServicesReady, "True ClusterSet", "ServiceImport "+h.Target+"/hello")
			expectCondition(b, v1alpha1.ConditionReachable, "True Online", "")
			expectCondition(b, v1alpha1.ConditionReady, "True Ready", h.Target+"/hello in cluster a")
			Expect(b.Status.URLs).To(Equal("tcp://" + b.Name + ":42"))
			Expect(b.Status.Target + b.Status.ClusterIP + string(b.Status.Projection)).To(BeEmpty())
			Expect(h.counter.takeWrites()).To(BeEmpty())
			Expect(h.addresses.acquired).To(BeEmpty())
			Expect(h.service(ctx, h.Target, "hello").ResourceVersion).To(Equal(foreign.ResourceVersion))
			h.expectNoService(ctx, h.Installation.Namespace, "ep-1")

			version := b.ResourceVersion
			h.Clock.Step(time.Hour)
			h.reconcile(ctx, b)
			Expect(b.ResourceVersion).To(Equal(version))
		})
	}

	It("opens its ports although the namespace is missing or not allowed", func(ctx SpecContext) {
		for _, namespace := range []string{"missing", "kube-system"} {
			b := exported(ctx, namespace)
			h.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionServicesReady, "True ClusterSet", "")
			Expect(b.Observed()).To(BeTrue())
		}
	})

	It("reports what is offline, and what is released", func(ctx SpecContext) {
		h.account.offline = []string{"tcp://hello.demo.a:42"}
		b := exported(ctx, "demo")
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReachable, "False AgentOffline",
			"no exporter of cluster a is connected for tcp://hello.demo.a:42")
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State, s.Endpoints = v1alpha1.StateReleased, nil })
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Released", "")
	})

	It("stands beside an endpoint of the same Service and namespace", func(ctx SpecContext) {
		b, endpoint := exported(ctx, h.Target), h.object(ctx, "hello", h.Target)
		h.update(ctx, endpoint, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-1" })
		h.reconcile(ctx, endpoint)
		h.reconcile(ctx, b)
		Expect(h.target(ctx, endpoint).Name).To(Equal("hello"))
		Expect(h.upstream(ctx, endpoint).Name).To(Equal("ep-1"))
		Expect(h.Client.Delete(ctx, endpoint)).To(Succeed())
		h.reconcileUnowned(ctx, endpoint.Name)
		h.expectNoService(ctx, h.Target, "hello")
		h.expectNoService(ctx, h.Installation.Namespace, "ep-1")
	})

	It("loses the Services that an older manager made for it", func(ctx SpecContext) {
		older := h.object(ctx, "hello", h.Target)
		h.reconcile(ctx, older)
		made := older.Status
		Expect(made.Services).To(HaveLen(2))
		Expect(h.Client.Delete(ctx, older)).To(Succeed())
		b := exported(ctx, h.Target)
		b.Status = made
		b.Status.Conditions = nil
		Expect(h.Client.Status().Update(ctx, b)).To(Succeed())
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Target, "hello")
		h.expectNoService(ctx, h.Installation.Namespace, "ep-hello")
		Expect(b.Status.Services).To(BeEmpty())
	})
})
