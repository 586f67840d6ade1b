// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// switchTo restarts the reconciler with another projection.
func (h *harness) switchTo(p v1alpha1.Projection) {
	h.projection = p
	h.restart()
	h.counter.takeWrites()
}

// fillSlices makes what Kubernetes makes for the Services of the operator's namespace.
func (h *harness) fillSlices(ctx context.Context) {
	GinkgoHelper()
	for _, s := range h.localServices(ctx) {
		Expect(client.IgnoreAlreadyExists(h.Live.Create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name,
				Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{readyAddress("10.9.0.1")},
		}))).To(Succeed())
	}
}

// localServices returns the Services of the operator's namespace.
func (h *harness) localServices(ctx context.Context) []corev1.Service {
	GinkgoHelper()
	var list corev1.ServiceList
	Expect(h.Live.List(ctx, &list, client.InNamespace(h.Installation.Namespace))).To(Succeed())
	return list.Items
}

// step reconciles once.
func (h *harness) step(ctx context.Context, b *v1alpha1.BoundEndpoint) time.Duration {
	GinkgoHelper()
	result, err := h.reconciler.Reconcile(ctx, requestFor(b))
	Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// nameTaker is a client beside another one that makes a Service as soon as its name is free.
type nameTaker struct {
	client.Client
	service *corev1.Service
}

func (c nameTaker) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	err := c.Client.Delete(ctx, o, opts...)
	if err == nil && o.GetName() == c.service.Name {
		return c.Create(ctx, c.service)
	}
	return err
}

var _ = Describe("Reconciler: a change of the projection", func() {
	var h *harness
	var b *v1alpha1.BoundEndpoint
	BeforeEach(func(ctx SpecContext) {
		h = newHarness(ctx)
		h.addresses.addresses = twoForwarders()
	})

	// transition returns the Service that has an address meanwhile.
	transition := func(ctx context.Context) *corev1.Service {
		for _, s := range h.localServices(ctx) {
			if s.Name != "ep-api" {
				return &s
			}
		}
		return nil
	}

	It("to slices keeps ExternalName until the new address leads to forwarders", func(ctx SpecContext) {
		b = h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		before, upstream := h.target(ctx, b), h.upstream(ctx, b)
		h.switchTo(v1alpha1.ProjectionEndpointSlice)

		Expect(h.step(ctx, b)).To(Equal(500 * time.Millisecond))
		holder := transition(ctx)
		Expect(holder.Spec.ClusterIP).NotTo(Equal(upstream.Spec.ClusterIP))
		Expect(holder.Spec.Selector).To(Equal(upstream.Spec.Selector))
		h.Clock.Step(time.Minute) // no forwarder is behind it yet
		h.step(ctx, b)
		Expect(h.target(ctx, b).Spec.Type).To(Equal(corev1.ServiceTypeExternalName))
		h.fillSlices(ctx)
		Expect(h.step(ctx, b)).To(Equal(3 * time.Second))
		Expect(h.slices(ctx, b)).To(BeEmpty())
		h.Clock.Step(3 * time.Second)
		Expect(h.step(ctx, b)).To(Equal(200 * time.Millisecond))
		Expect(h.slices(ctx, b)).To(HaveLen(2))
		Expect(h.target(ctx, b).Spec).To(Equal(before.Spec))

		h.Clock.Step(200 * time.Millisecond)
		h.reconcile(ctx, b)
		after := h.target(ctx, b)
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec.ClusterIPs).To(Equal(holder.Spec.ClusterIPs))
		Expect(transition(ctx)).To(BeNil())
		Expect(h.upstream(ctx, b).UID).To(Equal(upstream.UID))
		Expect(b.Status.Projection).To(Equal(v1alpha1.ProjectionEndpointSlice))
		Expect(b.Status.ClusterIPs).To(Equal(after.Spec.ClusterIPs))
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")

		Expect(h.reconcile(ctx, b)).To(HaveField("RequeueAfter", BeNumerically(">", 4*time.Minute)))
		h.upstream(ctx, b)
		h.Clock.Step(5 * time.Minute)
		h.reconcile(ctx, b)
		h.expectNoService(ctx, h.Installation.Namespace, "ep-api")
		h.counter.takeWrites()
		Expect(h.reconcile(ctx, b).RequeueAfter).To(BeZero())
		Expect(h.counter.takeWrites()).To(BeEmpty())
	})

	It("to ExternalName leaves the old address with the forwarders", func(ctx SpecContext) {
		h.switchTo(v1alpha1.ProjectionEndpointSlice)
		b = h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		before := h.target(ctx, b)
		h.switchTo(v1alpha1.ProjectionExternalName)
		h.step(ctx, b)
		Expect(h.target(ctx, b).Spec).To(Equal(before.Spec))
		upstream := h.upstream(ctx, b)
		h.fillSlices(ctx)
		h.step(ctx, b)
		h.Clock.Step(3 * time.Second)
		Expect(h.step(ctx, b)).To(Equal(200 * time.Millisecond))
		Expect(h.target(ctx, b).Spec).To(Equal(before.Spec))
		Expect(h.slices(ctx, b)).To(HaveLen(2))

		h.Clock.Step(200 * time.Millisecond)
		h.reconcile(ctx, b)
		after := h.target(ctx, b)
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec.ExternalName).To(HavePrefix("ep-api."))
		Expect(h.upstream(ctx, b).UID).To(Equal(upstream.UID))
		Expect(transition(ctx).Spec.ClusterIPs).To(Equal(before.Spec.ClusterIPs))
		h.reconcile(ctx, b)
		Expect(h.slices(ctx, b)).To(BeEmpty())
		Expect(b.Status.ClusterIPs).To(Equal(upstream.Spec.ClusterIPs))
		Expect(h.addresses.acquired).To(BeEmpty())

		h.Clock.Step(5 * time.Minute)
		h.reconcile(ctx, b)
		Expect(transition(ctx)).To(BeNil())
		h.counter.takeWrites()
		Expect(h.reconcile(ctx, b).RequeueAfter).To(BeZero())
		Expect(h.counter.takeWrites()).To(BeEmpty())
	})

	It("to ExternalName leaves a Service alone that another owner makes at the name meanwhile", func(ctx SpecContext) {
		h.switchTo(v1alpha1.ProjectionEndpointSlice)
		b = h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		h.switchTo(v1alpha1.ProjectionExternalName)
		h.step(ctx, b)
		h.fillSlices(ctx)
		h.step(ctx, b)
		h.Clock.Step(3 * time.Second)
		h.step(ctx, b)
		name := transition(ctx).Name
		foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Installation.Namespace, Name: name},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 9}}}}
		h.counter.Client = nameTaker{h.counter.Client, foreign}

		h.Clock.Step(200 * time.Millisecond)
		h.reconcile(ctx, b)
		Expect(h.target(ctx, b).Spec.Type).To(Equal(corev1.ServiceTypeExternalName))
		Expect(h.service(ctx, foreign.Namespace, name).Spec).To(Equal(foreign.Spec))
	})

	It("that is taken back, or interrupted by a restart, leaves nothing behind", func(ctx SpecContext) {
		b = h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		before := h.target(ctx, b)
		h.switchTo(v1alpha1.ProjectionEndpointSlice)
		h.step(ctx, b)
		h.fillSlices(ctx)
		h.step(ctx, b)
		h.restart()
		h.step(ctx, b)
		h.Clock.Step(3 * time.Second)
		h.step(ctx, b)
		Expect(h.slices(ctx, b)).To(HaveLen(2))
		h.switchTo(v1alpha1.ProjectionExternalName)
		h.reconcile(ctx, b)
		Expect(h.target(ctx, b).ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(h.slices(ctx, b)).To(BeEmpty())
		h.Clock.Step(5 * time.Minute)
		h.reconcile(ctx, b)
		Expect(transition(ctx)).To(BeNil())
	})

	It("is for 20 hostnames at a time, and a released one gives up its turn", func(ctx SpecContext) {
		var all []*v1alpha1.BoundEndpoint
		for i := range 21 {
			all = append(all, h.object(ctx, "api"+string(rune('a'+i)), h.Target,
				v1alpha1.BoundPort{Port: 80, Scheme: "http", TargetPort: int32(20080 + i)}))
			h.reconcile(ctx, all[i])
		}
		h.switchTo(v1alpha1.ProjectionEndpointSlice)
		for _, b := range all {
			h.step(ctx, b)
		}
		Expect(h.localServices(ctx)).To(HaveLen(21 + 20))
		Expect(h.step(ctx, all[20])).To(Equal(2 * time.Second))
		h.update(ctx, all[0], func(s *v1alpha1.BoundEndpointSpec) {
			s.State, s.Endpoints = v1alpha1.StateReleased, nil
		})
		h.step(ctx, all[0])
		Expect(h.step(ctx, all[20])).To(Equal(500 * time.Millisecond))
	})
})
