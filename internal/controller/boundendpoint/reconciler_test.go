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
	var w *harness
	BeforeEach(func(ctx SpecContext) { w = newHarness(ctx) })

	It("are made once, reported once, and then left alone", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		up, target := w.upstream(ctx, b), w.target(ctx, b)
		Expect(up.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		Expect(target.Spec.ExternalName).To(Equal("ep-api." + w.Installation.Namespace + ".svc.cluster.local"))
		owners, err := w.Anchors.Owners(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(up.OwnerReferences).To(Equal([]metav1.OwnerReference{owners.Local}))
		Expect(target.OwnerReferences).To(Equal([]metav1.OwnerReference{owners.Cluster}))
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", w.Target+"/api")
		expectCondition(b, v1alpha1.ConditionReachable, "True Online", "")
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "http://api."+w.Target)
		Expect(b.Status.ClusterIP).To(Equal(up.Spec.ClusterIP))
		Expect(b.Status.URLs).To(Equal("http://api." + w.Target))
		Expect(b.Status.EndpointCount).To(BeEquivalentTo(1))
		Expect(w.EventNotes()).To(BeEmpty())

		version := b.ResourceVersion
		w.Clock.Step(time.Hour)
		w.reconcile(ctx, b)
		Expect(b.ResourceVersion).To(Equal(version))
		Expect(w.upstream(ctx, b).ResourceVersion).To(Equal(up.ResourceVersion))
		Expect(w.target(ctx, b).ResourceVersion).To(Equal(target.ResourceVersion))
		Expect(w.EventNotes()).To(BeEmpty())
	})

	It("come back with their address when a user deletes them", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		up, target := w.upstream(ctx, b), w.target(ctx, b)
		Expect(w.Client.Delete(ctx, up)).To(Succeed())
		Expect(w.Client.Delete(ctx, target)).To(Succeed())
		w.reconcile(ctx, b)
		Expect(w.upstream(ctx, b).Spec.ClusterIP).To(Equal(up.Spec.ClusterIP))
		Expect(w.target(ctx, b).Spec).To(Equal(target.Spec))
	})

	It("get a new address when the old one has been given away", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		up := w.upstream(ctx, b)
		Expect(w.Client.Delete(ctx, up)).To(Succeed())
		thief := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Target, Name: "thief"},
			Spec: corev1.ServiceSpec{ClusterIP: up.Spec.ClusterIP, Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(w.Client.Create(ctx, thief)).To(Succeed())
		w.reconcile(ctx, b)
		Expect(w.upstream(ctx, b).Spec.ClusterIP).To(And(Not(BeEmpty()), Not(Equal(up.Spec.ClusterIP))))
		Expect(b.Status.ClusterIP).To(Equal(w.upstream(ctx, b).Spec.ClusterIP))
	})

	It("are both deleted on release, even when one of them is already gone", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		Expect(w.Client.Delete(ctx, w.target(ctx, b))).To(Succeed())
		w.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State, s.Endpoints = v1alpha1.StateReleased, nil })
		w.reconcile(ctx, b)
		w.expectNoService(ctx, w.Installation.Namespace, "ep-api")
		w.expectNoService(ctx, w.Target, "api")
		expectCondition(b, v1alpha1.ConditionReady, "False Released", "")
		w.reconcile(ctx, b)
	})

	It("lose only the port that is released", func(ctx SpecContext) {
		b := w.object(ctx, "db", w.Target, v1alpha1.BoundPort{Port: 80, Scheme: "http", TargetPort: 20080},
			v1alpha1.BoundPort{Port: 5432, Scheme: "tcp", TargetPort: 20081})
		w.reconcile(ctx, b)
		before := w.upstream(ctx, b)
		w.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.Ports[0].State = v1alpha1.StateReleased })
		w.reconcile(ctx, b)
		after := w.upstream(ctx, b)
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec.Ports).To(Equal(before.Spec.Ports[1:]))
		Expect(w.target(ctx, b).Spec.Ports).To(HaveLen(1))
	})

	It("move when the projection id changes, without a gap for the name", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		target := w.target(ctx, b)
		w.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-other" })
		w.reconcile(ctx, b)
		w.expectNoService(ctx, w.Installation.Namespace, "ep-api")
		Expect(w.target(ctx, b).UID).To(Equal(target.UID))
		Expect(w.target(ctx, b).Spec.ExternalName).To(HavePrefix("ep-other."))
	})

	It("of a lost object stay while the account has the hostname, and go when it has not", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		Expect(w.Client.Delete(ctx, b)).To(Succeed())
		w.restart()
		for _, a := range []fakeAccount{{known: false}, {known: true, endpoints: 1}} {
			*w.account = a
			Expect(w.reconcile(ctx, b).RequeueAfter).NotTo(BeZero())
			w.Clock.Step(time.Hour)
			w.reconcile(ctx, b)
			w.upstream(ctx, b)
		}
		*w.account = fakeAccount{known: true}
		Expect(w.reconcile(ctx, b).RequeueAfter).To(Equal(30 * time.Second))
		w.Clock.Step(30 * time.Second)
		w.reconcile(ctx, b)
		w.expectNoService(ctx, w.Installation.Namespace, "ep-api")
		w.expectNoService(ctx, w.Target, "api")
	})

	It("are adopted, address and all, when the lost object is rebuilt", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		up := w.upstream(ctx, b)
		Expect(w.Client.Delete(ctx, b)).To(Succeed())
		w.reconcile(ctx, b)
		b = w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		Expect(w.upstream(ctx, b).UID).To(Equal(up.UID))
		Expect(b.Status.ClusterIP).To(Equal(up.Spec.ClusterIP))
	})

	It("are made for an id that is no name of a Service, which the annotation keeps", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		w.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "EP_1/x" })
		w.reconcile(ctx, b)
		var list corev1.ServiceList
		Expect(w.Live.List(ctx, &list, client.InNamespace(w.Installation.Namespace))).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		Expect(list.Items[0].Annotations).To(HaveKeyWithValue("bindings.fairlead.dev/projection-id", "EP_1/x"))
		Expect(w.target(ctx, b).Spec.ExternalName).To(HavePrefix(list.Items[0].Name + "."))
	})
})
