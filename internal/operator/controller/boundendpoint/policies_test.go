// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

var _ = Describe("NetworkPolicies", func() {
	It("come before Services and the first status", func(ctx SpecContext) {
		h := newHarness(ctx)
		b := h.object(ctx, "api", h.Target)
		h.policies.missing = true
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Target, "api")
		Expect(b.Observed()).To(BeFalse())

		h.policies.missing = false
		h.reconcile(ctx, b)
		h.target(ctx, b)
		Expect(b.Observed()).To(BeTrue())
	})

	It("that cannot be written leave Services as they are, and are reported", func(ctx SpecContext) {
		h := newHarness(ctx)
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		recorded := b.Status.Services
		Expect(recorded).To(HaveLen(2))

		h.policies.missing, h.policies.err = true, errors.New("no more policies")
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) {
			s.Ports = append(s.Ports, v1alpha1.BoundPort{Port: 81, Scheme: "http", TargetPort: 20081})
		})
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "False NetworkPolicyFailed", "no more policies")
		Expect(b.Status.Services).To(Equal(recorded))
		Expect(h.target(ctx, b).Spec.Ports).To(HaveLen(1))
	})

	It("do not hold up the removal of Services", func(ctx SpecContext) {
		h := newHarness(ctx)
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		h.policies.missing = true
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) {
			s.State, s.Ports[0].State = v1alpha1.StateReleased, v1alpha1.StateReleased
		})
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Target, "api")
	})
})
