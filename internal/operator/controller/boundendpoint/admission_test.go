// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// mutateServices lets the API server apply a configuration, an expression, to each write of a
// Service of the test's namespaces, and returns what ends that. The probe tells when it does.
func (h *harness) mutateServices(
	ctx context.Context, configuration string, probe func(*corev1.Service) bool,
) (end func()) {
	GinkgoHelper()
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: h.Target},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
				{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"services"}},
				}}}},
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: configuration}}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		}}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: h.Target},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: h.Target,
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName,
					Operator: metav1.LabelSelectorOpIn, Values: []string{h.Target, h.Installation.Namespace}}}}}}}
	Expect(h.Live.Create(ctx, policy)).To(Succeed())
	Expect(h.Live.Create(ctx, binding)).To(Succeed())
	mutates := func() bool {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "probe"},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.b"}}
		Expect(h.Live.Create(ctx, s, client.DryRunAll)).To(Succeed())
		return probe(s)
	}
	end = func() {
		Expect(h.Live.Delete(ctx, binding)).To(Succeed())
		Expect(h.Live.Delete(ctx, policy)).To(Succeed())
		Eventually(mutates).WithTimeout(time.Minute).Should(BeFalse())
	}
	DeferCleanup(func(ctx SpecContext) {
		for _, o := range []client.Object{binding, policy} {
			Expect(h.Live.Delete(ctx, o)).To(Or(Succeed(), Satisfy(apierrors.IsNotFound)))
		}
	})
	Eventually(mutates).WithTimeout(time.Minute).Should(BeTrue())
	return end
}

var _ = Describe("Reconciler: admission that changes Services", func() {
	const managedBy = "app.kubernetes.io/managed-by"
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })
	// settle reconciles until the status is written, and drops the recorded writes and events.
	settle := func(ctx context.Context, b *v1alpha1.BoundEndpoint) {
		GinkgoHelper()
		for range 3 {
			h.reconcile(ctx, b)
		}
		h.counter.takeWrites()
		h.counter.statuses = 0
		h.EventNotes()
	}
	// expectRest expects that reconciling writes nothing and emits nothing.
	expectRest := func(ctx context.Context, b *v1alpha1.BoundEndpoint) {
		GinkgoHelper()
		for range 5 {
			h.reconcile(ctx, b)
		}
		Expect(h.counter.takeWrites()).To(BeEmpty())
		Expect(h.counter.statuses).To(BeZero())
		Expect(h.EventNotes()).To(BeEmpty())
	}

	It("by adding a label and an annotation costs no further write, and both stay", func(ctx SpecContext) {
		h.mutateServices(ctx, `Object{metadata: Object.metadata{labels: {"team": "web"}, annotations: {"note": "x"}}}`,
			func(s *corev1.Service) bool { return s.Labels["team"] == "web" })
		b := h.object(ctx, "api", h.Target)
		settle(ctx, b)
		expectRest(ctx, b)
		for _, s := range []*corev1.Service{h.target(ctx, b), h.upstream(ctx, b)} {
			Expect(s.Labels).To(HaveKeyWithValue("team", "web"))
			Expect(s.Annotations).To(HaveKeyWithValue("note", "x"))
		}
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", "")
	})

	It("by overwriting a label of ours is reported once, and tried again less and less often", func(ctx SpecContext) {
		end := h.mutateServices(ctx, `Object{metadata: Object.metadata{labels: {"`+managedBy+`": "corp"}}}`,
			func(s *corev1.Service) bool { return s.Labels[managedBy] == "corp" })
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "True AdmissionChanged",
			"admission changes metadata.labels."+
				managedBy+" of Service "+h.Installation.Namespace+"/ep-api on every write")
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		settle(ctx, b)
		expectRest(ctx, b)

		writes := 0
		for range 60 { // minutes
			h.Clock.Step(time.Minute)
			h.reconcile(ctx, b)
			writes += len(h.counter.takeWrites())
		}
		Expect(writes).To(BeNumerically("<=", 2*6), "1, 2, 4, 8, 16 and 32 minutes apart, of two Services")
		Expect(h.EventNotes()).To(BeEmpty())

		target := h.target(ctx, b)
		target.Spec.ExternalName = "example.net"
		Expect(h.Client.Update(ctx, target)).To(Succeed())
		h.reconcile(ctx, b)
		Expect(h.target(ctx, b).Spec.ExternalName).NotTo(Equal("example.net"), "another change is repaired at once")

		end()
		h.Clock.Step(time.Hour)
		settle(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", "")
		Expect(h.target(ctx, b).Labels).To(HaveKeyWithValue(managedBy, "fairlead-operator"))
		expectRest(ctx, b)
	})

	It("by overwriting the installation's label does not make a Service foreign", func(ctx SpecContext) {
		h.mutateServices(ctx, `Object{metadata: Object.metadata{labels: {"bindings.fairlead.dev/installation": "x"}}}`,
			func(s *corev1.Service) bool { return s.Labels["bindings.fairlead.dev/installation"] == "x" })
		b := h.object(ctx, "api", h.Target)
		settle(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "True AdmissionChanged", "installation of Service")
		expectRest(ctx, b)
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State = v1alpha1.StateReleased })
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Target, "api")
		h.expectNoService(ctx, h.Installation.Namespace, "ep-api")
	})

	It("by overwriting what Services do is a failure, reported once", func(ctx SpecContext) {
		h.mutateServices(ctx, `Object{spec: Object.spec{externalName: "proxy.corp"}}`,
			func(s *corev1.Service) bool { return s.Spec.ExternalName == "proxy.corp" })
		b := h.object(ctx, "api", h.Target)
		settle(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False AdmissionChanged", "spec.externalName")
		expectRest(ctx, b)
		Expect(meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
	})
})
