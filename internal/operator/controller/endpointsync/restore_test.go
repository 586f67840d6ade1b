// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

var _ = Describe("Reconciler: an object", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })

	It("is adopted when a backup restored it, without owners and status, by another manager", func(ctx SpecContext) {
		h.event(account.Added, h.endpoint("ep-1", "http://api.demo"))
		h.reconcile(ctx, "api.demo")
		before := h.object(ctx, "api.demo")
		Expect(h.Client.Delete(ctx, before)).To(Succeed())
		h.expectGone(ctx, "api.demo")
		restored := &v1alpha1.BoundEndpoint{Spec: before.Spec,
			ObjectMeta: metav1.ObjectMeta{Namespace: before.Namespace,
				Name: before.Name, Labels: before.Labels, Annotations: before.Annotations}}
		Expect(h.Client.Create(ctx, restored)).To(Succeed())
		upstream := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Installation.Namespace, Name: "ep-1",
			Annotations: map[string]string{installation.AnnotationHostname: "api.demo"}}}
		h.Installation.Mark(upstream)
		upstream.Spec.Ports = []corev1.ServicePort{{Name: "http-80", Port: 80,
			TargetPort: intstr.FromInt32(before.Spec.Ports[0].TargetPort)}}
		Expect(h.Client.Create(ctx, upstream)).To(Succeed())
		h.restart("")
		h.list(h.endpoint("ep-1", "http://api.demo"))
		h.reconcile(ctx, "api.demo")
		now := h.object(ctx, "api.demo")
		Expect(now.UID).To(Equal(restored.UID))
		Expect(now.Spec).To(Equal(before.Spec), "with its target port")
		Expect(now.OwnerReferences).To(Equal(before.OwnerReferences))
	})
})
