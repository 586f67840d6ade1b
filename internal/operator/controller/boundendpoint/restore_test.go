// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// restore deletes an object and makes it again as Velero does: with another UID, without owners,
// status and addresses, and with Velero's labels. change may change it before.
func restore[T client.Object](ctx context.Context, h *harness, o T, change func(T)) {
	GinkgoHelper()
	backup, _ := o.DeepCopyObject().(T)
	Expect(client.IgnoreNotFound(h.Live.Delete(ctx, o))).To(Succeed())
	labels := map[string]string{"velero.io/restore-name": "restore-1", "velero.io/backup-name": "backup-1"}
	for key, value := range backup.GetLabels() {
		labels[key] = value
	}
	meta := metav1.ObjectMeta{Namespace: backup.GetNamespace(), Name: backup.GetName(), Labels: labels,
		Annotations: backup.GetAnnotations()}
	switch b := any(backup).(type) {
	case *corev1.Service:
		b.ObjectMeta, b.Spec.ClusterIP, b.Spec.ClusterIPs = meta, "", nil
	case *discoveryv1.EndpointSlice:
		b.ObjectMeta = meta
	case *v1alpha1.BoundEndpoint:
		b.ObjectMeta, b.Status = meta, v1alpha1.BoundEndpointStatus{}
	}
	if change != nil {
		change(backup)
	}
	Expect(h.Live.Create(ctx, backup)).To(Succeed())
	Eventually(func() (types.UID, error) {
		err := h.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
		return o.GetUID(), err
	}).Should(Equal(backup.GetUID()))
}

// deleteObject deletes an object, as the cache sees it.
func (h *harness) deleteObject(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(h.Live.Delete(ctx, o)).To(Succeed())
	Eventually(func() error { return h.Client.Get(ctx, client.ObjectKeyFromObject(o), o) }).
		Should(Satisfy(apierrors.IsNotFound))
}

var _ = Describe("Reconciler: objects restored from a backup", func() {
	var h *harness
	var b *v1alpha1.BoundEndpoint
	start := func(ctx context.Context, projection v1alpha1.Projection) {
		GinkgoHelper()
		h = newHarness(ctx)
		h.projection, h.addresses.addresses = projection, twoForwarders()
		h.restart()
		b = h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
	}
	// services returns the Services of the hostname.
	services := func(ctx context.Context) []*corev1.Service {
		if h.projection == v1alpha1.ProjectionEndpointSlice {
			return []*corev1.Service{h.target(ctx, b)}
		}
		return []*corev1.Service{h.target(ctx, b), h.upstream(ctx, b)}
	}
	both := []TableEntry{Entry("by ExternalName", v1alpha1.ProjectionExternalName),
		Entry("by EndpointSlices", v1alpha1.ProjectionEndpointSlice)}

	DescribeTable("are adopted, with their owners: Services, slices and the BoundEndpoint",
		func(ctx SpecContext, projection v1alpha1.Projection) {
			start(ctx, projection)
			before := services(ctx)
			for _, s := range h.slices(ctx, b) {
				restore(ctx, h, &s, func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[:1] })
			}
			for _, s := range before {
				restore(ctx, h, s.DeepCopy(), nil)
			}
			restore(ctx, h, b, nil)
			h.restart()
			h.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", "")
			after := services(ctx)
			for i, s := range after {
				Expect(s.UID).NotTo(Equal(before[i].UID))
				Expect(s.OwnerReferences).To(Equal(before[i].OwnerReferences))
				Expect(s.Labels).To(HaveKeyWithValue("velero.io/restore-name", "restore-1"), "others' labels stay")
			}
			Expect(b.Status.Services).To(HaveLen(len(after)))
			for family, s := range h.slices(ctx, b) {
				Expect(s.Endpoints).To(Equal(h.addresses.addresses[discoveryv1.AddressType(family)]))
				Expect(s.OwnerReferences).To(ConsistOf(HaveField("UID", after[0].UID)))
			}
			h.counter.takeWrites()
			h.reconcile(ctx, b)
			Expect(h.counter.takeWrites()).To(BeEmpty())
		}, both)

	DescribeTable("are removed when their hostname is gone from the account",
		func(ctx SpecContext, projection v1alpha1.Projection) {
			start(ctx, projection)
			for _, s := range services(ctx) {
				restore(ctx, h, s, nil)
			}
			for _, s := range h.slices(ctx, b) {
				restore(ctx, h, &s, nil)
			}
			h.deleteObject(ctx, b)
			h.restart()
			h.reconcileUnowned(ctx, b.Name)
			h.expectNoService(ctx, h.Target, "api")
			h.expectNoService(ctx, h.Installation.Namespace, "ep-api")
			Expect(h.slices(ctx, b)).To(BeEmpty())
		}, both)

	DescribeTable("stay when they lead elsewhere, or are of another place or installation",
		func(ctx SpecContext, change func(*corev1.Service)) {
			start(ctx, v1alpha1.ProjectionExternalName)
			restore(ctx, h, h.target(ctx, b), change)
			h.deleteObject(ctx, b)
			h.restart()
			h.counter.takeWrites()
			h.reconcileUnowned(ctx, b.Name)
			Expect(h.counter.takeWrites()).NotTo(ContainElement(HaveSuffix(h.Target + "/api")))
			h.target(ctx, b)
		},
		Entry("another name", func(s *corev1.Service) { s.Spec.ExternalName = "example.net" }),
		Entry("a selector", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
			s.Spec.Selector = map[string]string{"app": "api"}
		}),
		Entry("neither name nor selector, but another port", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName, s.Spec.Ports[0].Name = corev1.ServiceTypeClusterIP, "", "web"
		}),
		Entry("another namespace's", func(s *corev1.Service) {
			s.Annotations[installation.AnnotationPlace] = "elsewhere/api"
		}),
		Entry("another installation's", func(s *corev1.Service) {
			installation.Installation{Namespace: "old", Release: "fairlead"}.Mark(s)
		}),
	)

	It("with an owner that is gone are deleted by the garbage collector, and made again", func(ctx SpecContext) {
		start(ctx, v1alpha1.ProjectionExternalName)
		up := h.upstream(ctx, b)
		for _, s := range services(ctx) {
			owners := s.OwnerReferences
			restore(ctx, h, s, func(s *corev1.Service) {
				s.OwnerReferences = owners
				for i := range owners {
					s.OwnerReferences[i].UID = "00000000-0000-0000-0000-000000000000"
				}
			})
		}
		h.reconcile(ctx, b) // before the collector comes: they get the owners that exist
		for _, s := range services(ctx) {
			Expect(s.OwnerReferences).NotTo(ContainElement(
				HaveField("UID", types.UID("00000000-0000-0000-0000-000000000000"))))
			h.deleteObject(ctx, s) // the collector came first
		}
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", "")
		Expect(h.upstream(ctx, b).OwnerReferences).To(Equal(up.OwnerReferences))
	})
})
