// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/test/support/fixture"
)

var _ = Describe("Reconciler: a condition", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })

	It(
		"reports a Service of another owner: it stays byte for byte, the condition names its owner, and it is "+
			"left alone "+
			"on release", func(ctx SpecContext) {
			foreign := h.createForeign(ctx, h.Target, "api")
			b := h.object(ctx, "api", h.Target)
			h.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "Helm release "+h.Target+"/shop")
			expectCondition(b, v1alpha1.ConditionReady, "False Conflict", "")
			Expect(h.EventNotes()).To(ConsistOf(And(ContainSubstring("Warning Conflict"), ContainSubstring("shop"))))
			h.reconcile(ctx, b)
			h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State = v1alpha1.StateReleased })
			h.reconcile(ctx, b)
			Expect(h.service(ctx, h.Target, "api")).To(Equal(foreign))
			h.expectNoService(ctx, h.Installation.Namespace, "ep-api")
		})

	DescribeTable("reports a foreign Service that goes: its name is taken over when it has been free for a minute",
		func(ctx SpecContext, restart bool) {
			foreign := h.createForeign(ctx, h.Target, "api")
			b := h.object(ctx, "api", h.Target)
			h.reconcile(ctx, b)
			Expect(h.Client.Delete(ctx, foreign)).To(Succeed())
			if restart {
				h.restart()
			}
			Expect(h.reconcile(ctx, b).RequeueAfter).To(Equal(time.Minute))
			expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "if the name stays free")
			h.Clock.Step(59 * time.Second)
			again := h.createForeign(ctx, h.Target, "api")
			h.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "belongs to")
			Expect(h.Client.Delete(ctx, again)).To(Succeed())
			Expect(h.reconcile(ctx, b).RequeueAfter).To(Equal(time.Minute), "the minute begins anew")
			h.Clock.Step(time.Minute)
			h.reconcile(ctx, b)
			Expect(h.Installation.Owns(h.target(ctx, b))).To(BeTrue())
			expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		},
		Entry("while the manager runs", false),
		Entry("while it does not", true),
	)

	It("reports a Service in the upstream's place, and then no name points to it", func(ctx SpecContext) {
		h.createForeign(ctx, h.Installation.Namespace, "ep-api")
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", h.Installation.Namespace+"/ep-api")
		h.expectNoService(ctx, h.Target, "api")
	})

	It("reports a copy of one of our own Services with all its marks edited, which is never deleted",
		func(ctx SpecContext) {
			first := h.object(ctx, "api", h.Target)
			h.reconcile(ctx, first)
			original, elsewhere := h.target(ctx, first), h.Namespace(ctx, "team-")
			theCopy := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "api",
				Labels:      original.Labels,
				Annotations: map[string]string{}, OwnerReferences: original.OwnerReferences}, Spec: original.Spec}
			for key, value := range original.Annotations { // as sed does
				theCopy.Annotations[key] = strings.ReplaceAll(value, h.Target, elsewhere)
			}
			Expect(h.Client.Create(ctx, theCopy)).To(Succeed())
			h.reconcileUnowned(ctx, "api."+elsewhere)
			Expect(h.service(ctx, elsewhere, "api").UID).To(Equal(theCopy.UID))

			b := h.object(ctx, "api", elsewhere)
			h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-copied" })
			h.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "who copied it")
			Expect(h.service(ctx, elsewhere, "api").ResourceVersion).To(Equal(theCopy.ResourceVersion))
		})

	DescribeTable("reports a Service with our marks that another owns, which is never deleted", func(
		ctx SpecContext, owners ...metav1.OwnerReference,
	) {
		for i := range owners {
			owners[i].UID = "00000000-0000-0000-0000-000000000001"
		}
		theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "api",
			OwnerReferences: owners}}
		theirs.Spec.Ports = []corev1.ServicePort{{Port: 8080}}
		h.Installation.Mark(theirs)
		Expect(h.Client.Create(ctx, theirs)).To(Succeed())
		h.reconcileUnowned(ctx, "api."+h.Target)
		Expect(h.service(ctx, h.Target, "api").UID).To(Equal(theirs.UID))
		if len(owners) == 0 {
			return // an object of its hostname adopts it
		}
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "belongs to deployment shop")
	},
		Entry("none does"),
		Entry("a Deployment does", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop"}),
	)

	It("reports a copy of one of our own Services, which is not ours", func(ctx SpecContext) {
		first := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, first)
		original := h.target(ctx, first)
		elsewhere := h.Namespace(ctx, "team-")
		theCopy := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "api",
			Labels:      original.Labels,
			Annotations: original.Annotations}, Spec: original.Spec}
		Expect(h.Client.Create(ctx, theCopy)).To(Succeed())
		b := h.object(ctx, "api", elsewhere)
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-copied" })
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", elsewhere+"/api")
		h.update(ctx, first, func(s *v1alpha1.BoundEndpointSpec) { s.State = v1alpha1.StateReleased })
		h.reconcile(ctx, first)
		h.expectNoService(ctx, h.Target, "api")
		Expect(h.service(ctx, elsewhere, "api").UID).To(Equal(theCopy.UID))
	})

	It("reports another installation of Fairlead, which the condition names", func(ctx SpecContext) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "api"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		installation.Installation{Namespace: "elsewhere", Release: "blue"}.Mark(s)
		Expect(h.Client.Create(ctx, s)).To(Succeed())
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict",
			"the Fairlead installation elsewhere/blue")
	})

	It("reports a hostname to which a faulty API gives the same projection id", func(ctx SpecContext) {
		first, second := h.object(ctx, "api", h.Target), h.object(ctx, "web", h.Target)
		h.update(ctx, second, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-api" })
		h.reconcile(ctx, first)
		h.reconcile(ctx, second)
		expectCondition(second, v1alpha1.ConditionServicesReady, "False Conflict", "this installation's api."+h.Target)
		version := h.upstream(ctx, first).ResourceVersion
		h.reconcile(ctx, first)
		Expect(h.upstream(ctx, first).ResourceVersion).To(Equal(version))
	})

	It("reports a namespace that does not exist: the upstream Service waits for it", func(ctx SpecContext) {
		name := h.Target + "-later"
		b := h.object(ctx, "api", name)
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False NamespaceNotFound", name)
		up := h.upstream(ctx, b)
		Expect(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		Eventually(func(g Gomega) {
			h.reconcile(ctx, b)
			status := fixture.StatusAndReason(b.Status.Conditions, v1alpha1.ConditionReady)
			g.Expect(status).To(Equal("True Ready"))
		}).WithContext(ctx).Should(Succeed())
		Expect(h.target(ctx, b).Spec.ExternalName).NotTo(BeEmpty())
		Expect(h.upstream(ctx, b).UID).To(Equal(up.UID))
	})

	It("reports a namespace that is being deleted: nothing is written into it", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		// something that the namespace controller cannot remove keeps the namespace terminating
		held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "held",
			Finalizers: []string{"test.example/held"}}}
		Expect(h.Live.Create(ctx, held)).To(Succeed())
		Expect(h.Live.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.Target}})).To(Succeed())
		Eventually(func(g Gomega) {
			h.reconcile(ctx, b)
			status := fixture.StatusAndReason(b.Status.Conditions, v1alpha1.ConditionServicesReady)
			g.Expect(status).To(Equal("False NamespaceTerminating"))
		}).WithContext(ctx).Should(Succeed())
		held.Finalizers = nil
		Expect(h.Live.Update(ctx, held)).To(Succeed())
	})

	DescribeTable("reports a namespace that gets no Services", func(ctx SpecContext, namespace func() string) {
		b := h.object(ctx, "api", namespace())
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False NamespaceNotAllowed", namespace())
		h.expectNoService(ctx, namespace(), "api")
	},
		Entry("of Kubernetes itself", func() string { return "kube-system" }),
		Entry("of the operator itself", func() string { return h.Installation.Namespace }),
	)

	It("reports an agent that is offline or has disconnected", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.account.offline = []string{"http://api." + h.Target}
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", "")
		expectCondition(b, v1alpha1.ConditionReady, "False AgentOffline", "http://api."+h.Target)

		h.account.offline = nil
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) {
			deadline := metav1.NewTime(h.Clock.Now().Add(30 * time.Second))
			s.Endpoints, s.RemoveAfter, s.Ports[0].RemoveAfter = nil, &deadline, &deadline
		})
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "False EndpointRemoved",
			"no longer has an endpoint for http://api."+h.Target)
		h.target(ctx, b)
	})

	It("stays while the account cannot be read", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		*h.account = fakeAccount{}
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReachable, "Unknown ServiceUnreachable", "")
		*h.account = fakeAccount{known: true, endpoints: 1}
		h.reconcile(ctx, b)
		before := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReachable).DeepCopy()
		h.restart()
		*h.account = fakeAccount{}
		h.Clock.Step(time.Hour)
		h.reconcile(ctx, b)
		Expect(meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReachable)).To(Equal(before))
	})

	It("ignores a spec that the manager did not write: it gets nothing, and no forwarder listens",
		func(ctx SpecContext) {
			h.unapproved = true
			b := h.object(ctx, "api", h.Target)
			h.reconcile(ctx, b)
			h.expectNoService(ctx, h.Target, "api")
			h.expectNoService(ctx, h.Installation.Namespace, "ep-api")
			Expect(b.Observed()).To(BeFalse())
			h.unapproved = false
			h.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		})

	It("ignores an object without our marks, which gets nothing", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		delete(b.Annotations, installation.AnnotationPlace)
		Expect(h.Client.Update(ctx, b)).To(Succeed())
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Target, "api")
		Expect(b.Status.Conditions).To(BeEmpty())
	})
})
