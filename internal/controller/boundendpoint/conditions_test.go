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
	"github.com/fairlead-dev/fairlead/internal/controller/installation"
)

var _ = Describe("Reconciler: a condition", func() {
	var w *harness
	BeforeEach(func(ctx SpecContext) { w = newHarness(ctx) })

	It(
		"reports a Service of somebody else's: it stays byte for byte, the condition names its owner, and it is left alone "+
			"on release", func(ctx SpecContext) {
			foreign := w.createForeign(ctx, w.Target, "api")
			b := w.object(ctx, "api", w.Target)
			w.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "Helm release "+w.Target+"/shop")
			expectCondition(b, v1alpha1.ConditionReady, "False Conflict", "")
			Expect(w.EventNotes()).To(ConsistOf(And(ContainSubstring("Warning Conflict"), ContainSubstring("shop"))))
			w.reconcile(ctx, b)
			w.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State = v1alpha1.StateReleased })
			w.reconcile(ctx, b)
			Expect(w.service(ctx, w.Target, "api")).To(Equal(foreign))
			w.expectNoService(ctx, w.Installation.Namespace, "ep-api")
		})

	DescribeTable("reports a foreign Service that goes: its name is taken over when it has been free for a minute",
		func(ctx SpecContext, restart bool) {
			foreign := w.createForeign(ctx, w.Target, "api")
			b := w.object(ctx, "api", w.Target)
			w.reconcile(ctx, b)
			Expect(w.Client.Delete(ctx, foreign)).To(Succeed())
			if restart {
				w.restart()
			}
			Expect(w.reconcile(ctx, b).RequeueAfter).To(Equal(time.Minute))
			expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "if the name stays free")
			w.Clock.Step(59 * time.Second)
			again := w.createForeign(ctx, w.Target, "api")
			w.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "belongs to")
			Expect(w.Client.Delete(ctx, again)).To(Succeed())
			Expect(w.reconcile(ctx, b).RequeueAfter).To(Equal(time.Minute), "the minute begins anew")
			w.Clock.Step(time.Minute)
			w.reconcile(ctx, b)
			Expect(w.Installation.Owns(w.target(ctx, b))).To(BeTrue())
			expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		},
		Entry("while the manager runs", false),
		Entry("while it does not", true),
	)

	It("reports a Service in the upstream's place, and then no name points to it", func(ctx SpecContext) {
		w.createForeign(ctx, w.Installation.Namespace, "ep-api")
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", w.Installation.Namespace+"/ep-api")
		w.expectNoService(ctx, w.Target, "api")
	})

	It("reports a copy of one of our own Services with all its marks edited, which is never deleted",
		func(ctx SpecContext) {
			first := w.object(ctx, "api", w.Target)
			w.reconcile(ctx, first)
			original, elsewhere := w.target(ctx, first), w.Namespace(ctx, "team-")
			theCopy := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "api", Labels: original.Labels,
				Annotations: map[string]string{}, OwnerReferences: original.OwnerReferences}, Spec: original.Spec}
			for key, value := range original.Annotations { // as sed does
				theCopy.Annotations[key] = strings.ReplaceAll(value, w.Target, elsewhere)
			}
			Expect(w.Client.Create(ctx, theCopy)).To(Succeed())
			w.reconcileUnowned(ctx, "api."+elsewhere)
			Expect(w.service(ctx, elsewhere, "api").UID).To(Equal(theCopy.UID))

			b := w.object(ctx, "api", elsewhere)
			w.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-copied" })
			w.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "who copied it")
			Expect(w.service(ctx, elsewhere, "api").ResourceVersion).To(Equal(theCopy.ResourceVersion))
		})

	DescribeTable("reports a Service with our marks that another owns, which is never deleted", func(
		ctx SpecContext, owners ...metav1.OwnerReference,
	) {
		for i := range owners {
			owners[i].UID = "00000000-0000-0000-0000-000000000001"
		}
		theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Target, Name: "api", OwnerReferences: owners}}
		theirs.Spec.Ports = []corev1.ServicePort{{Port: 8080}}
		w.Installation.Mark(theirs)
		Expect(w.Client.Create(ctx, theirs)).To(Succeed())
		w.reconcileUnowned(ctx, "api."+w.Target)
		Expect(w.service(ctx, w.Target, "api").UID).To(Equal(theirs.UID))
		if len(owners) == 0 {
			return // an object of its hostname adopts it
		}
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "belongs to deployment shop")
	},
		Entry("none does"),
		Entry("a Deployment does", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop"}),
	)

	It("reports a copy of one of our own Services, which is not ours", func(ctx SpecContext) {
		first := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, first)
		original := w.target(ctx, first)
		elsewhere := w.Namespace(ctx, "team-")
		theCopy := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "api", Labels: original.Labels,
			Annotations: original.Annotations}, Spec: original.Spec}
		Expect(w.Client.Create(ctx, theCopy)).To(Succeed())
		b := w.object(ctx, "api", elsewhere)
		w.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-copied" })
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", elsewhere+"/api")
		w.update(ctx, first, func(s *v1alpha1.BoundEndpointSpec) { s.State = v1alpha1.StateReleased })
		w.reconcile(ctx, first)
		w.expectNoService(ctx, w.Target, "api")
		Expect(w.service(ctx, elsewhere, "api").UID).To(Equal(theCopy.UID))
	})

	It("reports another installation of Fairlead, which the condition names", func(ctx SpecContext) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Target, Name: "api"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		installation.Installation{Namespace: "elsewhere", Release: "blue"}.Mark(s)
		Expect(w.Client.Create(ctx, s)).To(Succeed())
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", "the Fairlead installation elsewhere/blue")
	})

	It("reports a hostname to which a faulty API gives the same projection id", func(ctx SpecContext) {
		first, second := w.object(ctx, "api", w.Target), w.object(ctx, "web", w.Target)
		w.update(ctx, second, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-api" })
		w.reconcile(ctx, first)
		w.reconcile(ctx, second)
		expectCondition(second, v1alpha1.ConditionServicesReady, "False Conflict", "this installation's api."+w.Target)
		version := w.upstream(ctx, first).ResourceVersion
		w.reconcile(ctx, first)
		Expect(w.upstream(ctx, first).ResourceVersion).To(Equal(version))
	})

	It("reports a namespace that does not exist: the upstream Service waits for it", func(ctx SpecContext) {
		name := w.Target + "-later"
		b := w.object(ctx, "api", name)
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False NamespaceNotFound", name)
		up := w.upstream(ctx, b)
		Expect(w.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		Eventually(func(g Gomega) {
			w.reconcile(ctx, b)
			status, _ := condition(b, v1alpha1.ConditionReady)
			g.Expect(status).To(Equal("True Ready"))
		}).WithContext(ctx).Should(Succeed())
		Expect(w.target(ctx, b).Spec.ExternalName).NotTo(BeEmpty())
		Expect(w.upstream(ctx, b).UID).To(Equal(up.UID))
	})

	It("reports a namespace that is being deleted: nothing is written into it", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		// something that the namespace controller cannot remove keeps the namespace terminating
		held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Target, Name: "held",
			Finalizers: []string{"test.example/held"}}}
		Expect(w.Live.Create(ctx, held)).To(Succeed())
		Expect(w.Live.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Target}})).To(Succeed())
		Eventually(func(g Gomega) {
			w.reconcile(ctx, b)
			status, _ := condition(b, v1alpha1.ConditionServicesReady)
			g.Expect(status).To(Equal("False NamespaceTerminating"))
		}).WithContext(ctx).Should(Succeed())
		held.Finalizers = nil
		Expect(w.Live.Update(ctx, held)).To(Succeed())
	})

	DescribeTable("reports a namespace that gets no Services", func(ctx SpecContext, namespace func() string) {
		b := w.object(ctx, "api", namespace())
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False NamespaceNotAllowed", namespace())
		w.expectNoService(ctx, namespace(), "api")
	},
		Entry("of Kubernetes itself", func() string { return "kube-system" }),
		Entry("of the operator itself", func() string { return w.Installation.Namespace }),
	)

	It("reports an agent that is offline or has disconnected", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		w.account.offline = []string{"http://api." + w.Target}
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", "")
		expectCondition(b, v1alpha1.ConditionReady, "False AgentOffline", "http://api."+w.Target)

		w.account.offline = nil
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		w.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) {
			deadline := metav1.NewTime(w.Clock.Now().Add(30 * time.Second))
			s.Endpoints, s.RemoveAfter, s.Ports[0].RemoveAfter = nil, &deadline, &deadline
		})
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "False EndpointRemoved",
			"no longer has an endpoint for http://api."+w.Target)
		w.target(ctx, b)
	})

	It("stays while the account cannot be read", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		*w.account = fakeAccount{}
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReachable, "Unknown ServiceUnreachable", "")
		*w.account = fakeAccount{known: true, endpoints: 1}
		w.reconcile(ctx, b)
		before := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReachable).DeepCopy()
		w.restart()
		*w.account = fakeAccount{}
		w.Clock.Step(time.Hour)
		w.reconcile(ctx, b)
		Expect(meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReachable)).To(Equal(before))
	})

	It("ignores a spec that the manager did not write: it gets nothing, and no forwarder listens", func(ctx SpecContext) {
		w.unapproved = true
		b := w.object(ctx, "api", w.Target)
		w.reconcile(ctx, b)
		w.expectNoService(ctx, w.Target, "api")
		w.expectNoService(ctx, w.Installation.Namespace, "ep-api")
		Expect(b.Observed()).To(BeFalse())
		w.unapproved = false
		w.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
	})

	It("ignores an object without our marks, which gets nothing", func(ctx SpecContext) {
		b := w.object(ctx, "api", w.Target)
		delete(b.Annotations, installation.AnnotationPlace)
		Expect(w.Client.Update(ctx, b)).To(Succeed())
		w.reconcile(ctx, b)
		w.expectNoService(ctx, w.Target, "api")
		Expect(b.Status.Conditions).To(BeEmpty())
	})
})
