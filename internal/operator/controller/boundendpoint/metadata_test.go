// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

var _ = Describe("Reconciler: labels and annotations", func() {
	It("of the installation come to Services and go with the values; those of others stay", func(ctx SpecContext) {
		h := newHarness(ctx)
		h.addresses.addresses = twoForwarders()
		h.metadata = installation.ServiceMetadata{Labels: map[string]string{"team": "web", "cost": "7"},
			Annotations: map[string]string{"example.com/dns": "yes, \"this\""}}
		h.restart()
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		target, upstream := h.target(ctx, b), h.upstream(ctx, b)
		for _, s := range []*corev1.Service{target, upstream} {
			Expect(s.Labels).To(And(HaveKeyWithValue("team", "web"), HaveKeyWithValue("cost", "7")))
		}
		Expect(target.Annotations).To(HaveKeyWithValue("example.com/dns", "yes, \"this\""))
		Expect(upstream.Annotations).NotTo(HaveKey("example.com/dns"))
		target.Labels["theirs"], target.Annotations["theirs"], target.Labels["team"] = "stays", "stays", "changed"
		Expect(h.Client.Update(ctx, target)).To(Succeed())
		h.reconcile(ctx, b)
		Expect(h.target(ctx, b).Labels).To(HaveKeyWithValue("team", "web"))

		h.metadata = installation.ServiceMetadata{Labels: map[string]string{"team": "api"}}
		h.restart()
		h.reconcile(ctx, b)
		target = h.target(ctx, b)
		Expect(target.Labels).To(And(HaveKeyWithValue("team", "api"), HaveKeyWithValue("theirs", "stays"),
			Not(HaveKey("cost"))))
		Expect(target.Annotations).To(And(HaveKeyWithValue("theirs", "stays"), Not(HaveKey("example.com/dns"))))
		h.metadata = installation.ServiceMetadata{}
		h.restart()
		h.reconcile(ctx, b)
		Expect(h.target(ctx, b).Labels).NotTo(HaveKey("team"))
		Expect(h.target(ctx, b).Annotations).NotTo(HaveKey(installation.AnnotationAdded))
		h.counter.takeWrites()
		h.reconcile(ctx, b)
		Expect(h.counter.takeWrites()).To(BeEmpty())
	})

	It("of endpoints come and go with the object; the installation's go before them", func(ctx SpecContext) {
		h := newHarness(ctx)
		h.metadata = installation.ServiceMetadata{Labels: map[string]string{"team": "web"}}
		h.restart()
		b := h.object(ctx, "api", h.Target)
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) {
			s.ServiceLabels = map[string]string{"team": "mine", "tier": "api"}
		})
		h.reconcile(ctx, b)
		for _, s := range []*corev1.Service{h.target(ctx, b), h.upstream(ctx, b)} {
			Expect(s.Labels).To(And(HaveKeyWithValue("team", "web"), HaveKeyWithValue("tier", "api")))
		}
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ServiceLabels = nil })
		h.reconcile(ctx, b)
		Expect(h.target(ctx, b).Labels).To(And(HaveKeyWithValue("team", "web"), Not(HaveKey("tier"))))
	})

	It("of others are kept when a Service is made again, because it was made headless", func(ctx SpecContext) {
		h := newHarness(ctx)
		h.projection, h.addresses.addresses = v1alpha1.ProjectionEndpointSlice, twoForwarders()
		h.restart()
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		target := h.target(ctx, b)
		before := target.DeepCopy()
		target.Labels["theirs"], target.Annotations["theirs"] = "stays", "stays"
		target.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.net"}
		Expect(h.Client.Update(ctx, target)).To(Succeed())
		target.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone}
		Expect(h.Client.Update(ctx, target)).To(Succeed())
		h.reconcile(ctx, b)
		now := h.target(ctx, b)
		Expect(now.UID).NotTo(Equal(before.UID))
		Expect(now.Spec).To(Equal(before.Spec))
		Expect(now.Labels).To(HaveKeyWithValue("theirs", "stays"))
		Expect(now.Annotations).To(HaveKeyWithValue("theirs", "stays"))
	})
})
