// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/fixture"
)

var _ = Describe("Reconciler: a refusal of the API server", func() {
	var h *harness
	var b *v1alpha1.BoundEndpoint
	BeforeEach(func(ctx SpecContext) {
		h = newHarness(ctx)
		b = h.object(ctx, "api", h.Target)
	})
	becomes := func(ctx context.Context, want string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			h.reconcile(ctx, b)
			got := fixture.StatusAndReason(b.Status.Conditions, v1alpha1.ConditionServicesReady)
			g.Expect(got).To(Equal(want))
		}).WithContext(ctx).WithTimeout(30 * time.Second).Should(Succeed())
	}

	It(
		"is not all that takes Services away: when a namespace is denied: both Services go at once, and come "+
			"back with "+
			"their address", func(ctx SpecContext) {
			h.reconcile(ctx, b)
			up := h.upstream(ctx, b)
			h.deny = []string{"team-*"}
			h.restart()
			h.reconcile(ctx, b)
			h.expectNoService(ctx, h.Target, "api")
			h.expectNoService(ctx, up.Namespace, up.Name)
			expectCondition(b, v1alpha1.ConditionServicesReady, "False NamespaceNotAllowed",
				"binding.namespaces.deny has team-*")
			Expect(b.Status.Services).To(BeEmpty())
			h.deny = nil
			h.restart()
			h.reconcile(ctx, b)
			Expect(h.upstream(ctx, b).Spec).To(Equal(up.Spec))
		})

	It("for a quota is reported, retried, and made when the quota is raised", func(ctx SpecContext) {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "none"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceServices: resource.MustParse("0")}}}
		Expect(h.Live.Create(ctx, quota)).To(Succeed())
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard,
			corev1.ResourceList{corev1.ResourceServices: resource.MustParse("0")}
		Expect(h.Live.Status().Update(ctx, quota)).To(Succeed())
		Expect(h.reconcile(ctx, b).RequeueAfter).To(Equal(30 * time.Second))
		expectCondition(b, v1alpha1.ConditionServicesReady, "False QuotaExceeded", "exceeded quota: none")
		h.upstream(ctx, b)
		quota.Spec.Hard = corev1.ResourceList{corev1.ResourceServices: resource.MustParse("5")}
		Expect(h.Live.Update(ctx, quota)).To(Succeed())
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard,
			corev1.ResourceList{corev1.ResourceServices: resource.MustParse("0")}
		Expect(h.Live.Status().Update(ctx, quota)).To(Succeed())
		becomes(ctx, "True Projected")
	})

	It("in the form of a Service for its own node only is reported, and repaired when it ends", func(ctx SpecContext) {
		h.counter.mutate = func(o client.Object) {
			if s, ok := o.(*corev1.Service); ok && s.Spec.Type == corev1.ServiceTypeClusterIP {
				s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
			}
		}
		becomes(ctx, "False AdmissionChanged")
		expectCondition(b, v1alpha1.ConditionServicesReady, "False AdmissionChanged", "spec.internalTrafficPolicy of "+
			"Service "+h.Installation.Namespace+"/ep-api")
		h.counter.mutate = nil
		h.Clock.Step(time.Minute)
		becomes(ctx, "True Projected")
		Expect(*h.upstream(ctx, b).Spec.InternalTrafficPolicy).To(Equal(corev1.ServiceInternalTrafficPolicyCluster))
	})

	It("for lack of an address is reported, and made when there is one", func(ctx SpecContext) {
		full := true
		h.counter.refuse = func(o client.Object) error {
			if s, ok := o.(*corev1.Service); ok && full && s.Spec.Type == corev1.ServiceTypeClusterIP {
				return apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: range is full"))
			}
			return nil
		}
		Expect(h.reconcile(ctx, b).RequeueAfter).To(Equal(30 * time.Second))
		expectCondition(b, v1alpha1.ConditionServicesReady, "False ClusterIPExhausted", "range is full")
		h.expectNoService(ctx, h.Target, "api")
		full = false
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", "")
	})

	It("by an admission policy is reported with its message, and made when the policy goes", func(ctx SpecContext) {
		name := h.Target
		policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{
					ResourceRules: []admissionv1.NamedRuleWithOperations{
						{RuleWithOperations: admissionv1.RuleWithOperations{
							Operations: []admissionv1.OperationType{admissionv1.Create},
							Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
								Resources: []string{"services"}},
						}}}},
				Validations: []admissionv1.Validation{{Expression: "object.spec.type != 'ExternalName'",
					Message: "no external names here"}},
			}}
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				MatchResources: &admissionv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{
						MatchLabels: map[string]string{corev1.LabelMetadataName: h.Target}}},
			}}
		Expect(h.Live.Create(ctx, policy)).To(Succeed())
		Expect(h.Live.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			_ = h.Live.Delete(ctx, binding)
			_ = h.Live.Delete(ctx, policy)
		})
		probe := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "probe"},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.b"}}
		Eventually(func() error {
			return h.Live.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		}).WithTimeout(time.Minute).Should(MatchError(ContainSubstring("no external names here")))
		Expect(h.reconcile(ctx, b).RequeueAfter).To(Equal(30 * time.Second))
		expectCondition(b, v1alpha1.ConditionServicesReady, "False AdmissionDenied", "no external names here")
		Expect(h.Live.Delete(ctx, binding)).To(Succeed())
		becomes(ctx, "True Projected")
	})

	It("for a deleted namespace ends with the next one of that name, where the Services get their address back",
		func(ctx SpecContext) {
			h.reconcile(ctx, b)
			up := h.upstream(ctx, b)
			Expect(h.Live.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.Target}})).To(Succeed())
			Eventually(func(g Gomega) {
				h.reconcile(ctx, b)
				got := fixture.StatusAndReason(b.Status.Conditions, v1alpha1.ConditionServicesReady)
				g.Expect(got).To(Equal("False NamespaceNotFound"))
			}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
			Expect(h.Live.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.Target}})).To(Succeed())
			becomes(ctx, "True Projected")
			Expect(h.upstream(ctx, b)).To(Equal(up))
			Expect(h.target(ctx, b).Spec.ExternalName).NotTo(BeEmpty())
		})
})

var _ = Describe("Reconciler: a foreign Service", func() {
	It("stays byte for byte the same whatever happens to the hostname that its name belongs to", func(ctx SpecContext) {
		h := newHarness(ctx)
		places := map[string]*corev1.Service{"target": h.createForeign(ctx, h.Target, "api"),
			"upstream": h.createForeign(ctx, h.Installation.Namespace, "ep-taken")}
		same := func(when string) {
			GinkgoHelper()
			for place, foreign := range places {
				Expect(h.service(ctx, foreign.Namespace, foreign.Name)).To(Equal(foreign), "%s, after %s", place, when)
			}
			Expect(h.service(ctx, h.Target, "api").ManagedFields).To(Equal(places["target"].ManagedFields))
		}
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		same("creation")
		Expect(h.EventNotes()).To(HaveLen(1))
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) {
			s.Ports = append(s.Ports, v1alpha1.BoundPort{Port: 5432, Scheme: "tcp", TargetPort: 20081})
		})
		h.reconcile(ctx, b)
		same("another port")
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-taken" })
		h.reconcile(ctx, b)
		same("a projection id that is taken")
		expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict", h.Installation.Namespace+"/ep-taken")
		h.restart()
		h.reconcile(ctx, b)
		same("a restart")
		h.Clock.Step(time.Hour)
		h.reconcile(ctx, b)
		same("more than the takeover delay")
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State = v1alpha1.StateReleased })
		h.reconcile(ctx, b)
		same("release")
		Expect(h.Client.Delete(ctx, b)).To(Succeed())
		*h.account = fakeAccount{known: true}
		h.reconcile(ctx, b)
		h.Clock.Step(time.Hour)
		h.reconcile(ctx, b)
		same("the end")
		for _, write := range h.counter.takeWrites() {
			Expect(write).NotTo(HaveSuffix(h.Target + "/api"))
		}
	})
})
