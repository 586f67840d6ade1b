// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

var _ = Describe("Reconciler: the Services of a BoundEndpoint", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })

	It("are made once, reported once, and then left alone", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		up, target := h.upstream(ctx, b), h.target(ctx, b)
		Expect(up.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		Expect(target.Spec.ExternalName).To(Equal("ep-api." + h.Installation.Namespace + ".svc.cluster.local"))
		owners, err := h.Anchors.Owners(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(up.OwnerReferences).To(Equal(owners.Local))
		Expect(target.OwnerReferences).To(Equal(owners.Cluster))
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", h.Target+"/api")
		expectCondition(b, v1alpha1.ConditionReachable, "True Online", "")
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "http://api."+h.Target)
		Expect(b.Status.ClusterIP).To(Equal(up.Spec.ClusterIP))
		Expect(b.Status.URLs).To(Equal("http://api." + h.Target))
		Expect(b.Status.EndpointCount).To(BeEquivalentTo(1))
		Expect(h.EventNotes()).To(BeEmpty())

		version := b.ResourceVersion
		h.Clock.Step(time.Hour)
		h.reconcile(ctx, b)
		Expect(b.ResourceVersion).To(Equal(version))
		Expect(h.upstream(ctx, b).ResourceVersion).To(Equal(up.ResourceVersion))
		Expect(h.target(ctx, b).ResourceVersion).To(Equal(target.ResourceVersion))
		Expect(h.EventNotes()).To(BeEmpty())
	})

	It("are created once although the cache does not have them yet", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.counter.withoutServices = true
		h.reconcile(ctx, b)
		h.reconcile(ctx, b)
		created := []string{"create " + h.Installation.Namespace + "/ep-api", "create " + h.Target + "/api"}
		Expect(h.counter.takeWrites()).To(Equal(created))
		Expect(h.Client.Delete(ctx, h.target(ctx, b))).To(Succeed())
		h.reconcile(ctx, b)
		Expect(h.counter.takeWrites()).To(Equal(created[1:]))
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
	})

	It("come back with their address when a user deletes them", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		up, target := h.upstream(ctx, b), h.target(ctx, b)
		Expect(h.Client.Delete(ctx, up)).To(Succeed())
		Expect(h.Client.Delete(ctx, target)).To(Succeed())
		h.reconcile(ctx, b)
		Expect(h.upstream(ctx, b).Spec.ClusterIP).To(Equal(up.Spec.ClusterIP))
		Expect(h.target(ctx, b).Spec).To(Equal(target.Spec))
	})

	It("get a new address when the old one has been given away", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		up := h.upstream(ctx, b)
		Expect(h.Client.Delete(ctx, up)).To(Succeed())
		thief := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "thief"},
			Spec: corev1.ServiceSpec{ClusterIP: up.Spec.ClusterIP, Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(h.Client.Create(ctx, thief)).To(Succeed())
		h.reconcile(ctx, b)
		Expect(h.upstream(ctx, b).Spec.ClusterIP).To(And(Not(BeEmpty()), Not(Equal(up.Spec.ClusterIP))))
		Expect(h.upstream(ctx, b).Spec.ClusterIPs).To(HaveLen(2))
		Expect(b.Status.ClusterIP).To(Equal(h.upstream(ctx, b).Spec.ClusterIP))
	})

	It("are both deleted on release, even when one of them is already gone", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		Expect(h.Client.Delete(ctx, h.target(ctx, b))).To(Succeed())
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State, s.Endpoints = v1alpha1.StateReleased, nil })
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Installation.Namespace, "ep-api")
		h.expectNoService(ctx, h.Target, "api")
		expectCondition(b, v1alpha1.ConditionReady, "False Released", "")
		h.reconcile(ctx, b)
	})

	It("lose only the port that is released", func(ctx SpecContext) {
		b := h.object(ctx, "db", h.Target, v1alpha1.BoundPort{Port: 80, Scheme: "http", TargetPort: 20080},
			v1alpha1.BoundPort{Port: 5432, Scheme: "tcp", TargetPort: 20081})
		h.reconcile(ctx, b)
		before := h.upstream(ctx, b)
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.Ports[0].State = v1alpha1.StateReleased })
		h.reconcile(ctx, b)
		after := h.upstream(ctx, b)
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec.Ports).To(Equal(before.Spec.Ports[1:]))
		Expect(h.target(ctx, b).Spec.Ports).To(HaveLen(1))
	})

	It("move when the projection id changes, without a gap for the name", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		target := h.target(ctx, b)
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-other" })
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Installation.Namespace, "ep-api")
		Expect(h.target(ctx, b).UID).To(Equal(target.UID))
		Expect(h.target(ctx, b).Spec.ExternalName).To(HavePrefix("ep-other."))
	})

	It("of a lost object stay while the account has the hostname, and go when it has not", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		Expect(h.Client.Delete(ctx, b)).To(Succeed())
		h.restart()
		for _, a := range []fakeAccount{{known: false}, {known: true, endpoints: 1}} {
			*h.account = a
			Expect(h.reconcile(ctx, b).RequeueAfter).NotTo(BeZero())
			h.Clock.Step(time.Hour)
			h.reconcile(ctx, b)
			h.upstream(ctx, b)
		}
		*h.account = fakeAccount{known: true}
		Expect(h.reconcile(ctx, b).RequeueAfter).To(Equal(30 * time.Second))
		h.Clock.Step(30 * time.Second)
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Installation.Namespace, "ep-api")
		h.expectNoService(ctx, h.Target, "api")
	})

	It("are adopted, address and all, when the lost object is rebuilt", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		up := h.upstream(ctx, b)
		Expect(h.Client.Delete(ctx, b)).To(Succeed())
		h.reconcile(ctx, b)
		b = h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		Expect(h.upstream(ctx, b).UID).To(Equal(up.UID))
		Expect(b.Status.ClusterIP).To(Equal(up.Spec.ClusterIP))
	})

	It("are made for an id that is no name of a Service, which the annotation keeps", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "EP_1/x" })
		h.reconcile(ctx, b)
		var list corev1.ServiceList
		Expect(h.Live.List(ctx, &list, client.InNamespace(h.Installation.Namespace))).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		Expect(list.Items[0].Annotations).To(HaveKeyWithValue("bindings.fairlead.dev/projection-id", "EP_1/x"))
		Expect(h.target(ctx, b).Spec.ExternalName).To(HavePrefix(list.Items[0].Name + "."))
	})
})
