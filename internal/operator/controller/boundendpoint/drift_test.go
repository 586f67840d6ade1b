// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

var _ = Describe("Reconciler: drift", func() {
	var h *harness
	var b *v1alpha1.BoundEndpoint
	BeforeEach(func(ctx SpecContext) {
		h = newHarness(ctx)
		b = h.object(ctx, "api", h.Target, v1alpha1.BoundPort{Port: 80, Scheme: "http", TargetPort: 20080},
			v1alpha1.BoundPort{Port: 5432, Scheme: "tcp", TargetPort: 20081})
		h.reconcile(ctx, b)
		h.counter.takeWrites()
	})

	// repairs changes one Service as another client would and expects it to be as before after
	// exactly one write, two if it lost its two addresses, with the other client's labels and
	// annotations kept.
	repairs := func(ctx context.Context, good *corev1.Service, drift func(*corev1.Service)) {
		GinkgoHelper()
		changed := good.DeepCopy()
		changed.Annotations["theirs"], changed.Labels["theirs"] = "stays", "stays"
		drift(changed)
		Expect(h.Client.Update(ctx, changed)).To(Succeed())
		h.reconcile(ctx, b)
		writes := []string{"update " + good.Namespace + "/" + good.Name}
		if len(changed.Spec.ClusterIPs) == 0 && len(good.Spec.ClusterIPs) == 2 {
			writes = append(writes, writes[0])
		}
		Expect(h.counter.takeWrites()).To(Equal(writes))
		now := h.service(ctx, good.Namespace, good.Name)
		Expect(now.Spec).To(Equal(good.Spec))
		Expect(now.UID).To(Equal(good.UID))
		Expect(now.OwnerReferences).To(Equal(good.OwnerReferences))
		for kind, marks := range map[string][2]map[string]string{"labels": {now.Labels, good.Labels},
			"annotations": {now.Annotations, good.Annotations}} {
			Expect(marks[0]).To(HaveKeyWithValue("theirs", "stays"), kind)
			delete(marks[0], "theirs")
			Expect(marks[0]).To(Equal(marks[1]), kind)
		}
		h.reconcile(ctx, b)
		Expect(h.counter.takeWrites()).To(BeEmpty(), "nothing differs any more")
		expectCondition(b, v1alpha1.ConditionServicesReady, "True Projected", "")
		Expect(h.EventNotes()).To(BeEmpty())
	}

	DescribeTable("of the upstream Service is repaired, the addresses kept",
		func(ctx SpecContext, drift func(*corev1.Service)) {
			repairs(ctx, h.upstream(ctx, b), drift)
		},
		Entry("a port more", func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "more", Port: 9})
		}),
		Entry("a port less", func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }),
		Entry("another port", func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }),
		Entry("a port's name", func(s *corev1.Service) { s.Spec.Ports[0].Name = "other" }),
		Entry("a port's protocol", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }),
		Entry("a port's application protocol", func(s *corev1.Service) { s.Spec.Ports[0].AppProtocol = nil }),
		Entry("a target port", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(20099) }),
		Entry("selector", func(s *corev1.Service) { s.Spec.Selector["app"] = "other" }),
		Entry("no selector", func(s *corev1.Service) { s.Spec.Selector = nil }),
		Entry("external addresses", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }),
		Entry("affinity", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }),
		Entry("internal traffic policy", func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		}),
		Entry("traffic distribution", func(s *corev1.Service) {
			s.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferSameZone)
		}),
		Entry("addresses that are not ready", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
		Entry("address families", func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
		}),
		Entry("made a node port", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }),
		Entry("made a load balancer with source ranges", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, ptr.To("example.com/lb")
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}),
		Entry("made an external name, which gives the addresses back", func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.net"}
		}),
		Entry("owners", func(s *corev1.Service) { s.OwnerReferences = nil }),
		Entry("the installation's label", func(s *corev1.Service) { delete(s.Labels, installation.Label) }),
		Entry("another value of the label", func(s *corev1.Service) { s.Labels[installation.Label] = "other" }),
		Entry("all labels but theirs", func(s *corev1.Service) { s.Labels = map[string]string{"theirs": "stays"} }),
		Entry("the place", func(s *corev1.Service) { delete(s.Annotations, installation.AnnotationPlace) }),
		Entry("another place", func(s *corev1.Service) { s.Annotations[installation.AnnotationPlace] = "a/b" }),
		Entry("all annotations but theirs", func(s *corev1.Service) {
			s.Annotations = map[string]string{"theirs": "stays"}
		}),
		Entry("the hostname", func(s *corev1.Service) { s.Annotations[installation.AnnotationHostname] = "web.other" }),
		Entry("the projection id", func(s *corev1.Service) {
			delete(s.Annotations, installation.AnnotationProjectionID)
		}),
	)

	DescribeTable("of the target Service is repaired with one write",
		func(ctx SpecContext, drift func(*corev1.Service)) {
			repairs(ctx, h.target(ctx, b), drift)
		},
		Entry("external name", func(s *corev1.Service) { s.Spec.ExternalName = "example.net" }),
		Entry("made a ClusterIP", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
		}),
		Entry("made headless", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, "", corev1.ClusterIPNone
		}),
		Entry("selector", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} }),
		Entry("external addresses", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }),
		Entry("ports", func(s *corev1.Service) { s.Spec.Ports = nil }),
		Entry("owners", func(s *corev1.Service) { s.OwnerReferences = nil }),
		Entry("the installation's label", func(s *corev1.Service) { delete(s.Labels, installation.Label) }),
		Entry("the place", func(s *corev1.Service) { delete(s.Annotations, installation.AnnotationPlace) }),
		Entry("the hostname", func(s *corev1.Service) { delete(s.Annotations, installation.AnnotationHostname) }),
	)

	It("to a headless Service has no way back but a new one, which gets the old address", func(ctx SpecContext) {
		up := h.upstream(ctx, b)
		headless := up.DeepCopy()
		headless.Spec.Type, headless.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.net"
		Expect(h.Client.Update(ctx, headless)).To(Succeed())
		headless.Spec.Type, headless.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
		headless.Spec.ClusterIP, headless.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		Expect(h.Client.Update(ctx, headless)).To(Succeed())
		h.reconcile(ctx, b)
		key := up.Namespace + "/" + up.Name
		Expect(h.counter.takeWrites()).To(Equal([]string{"delete " + key, "create " + key, "update " + key}))
		Expect(h.upstream(ctx, b).Spec).To(Equal(up.Spec))
	})

	It("to an external name whose address was given away gets another one", func(ctx SpecContext) {
		up := h.upstream(ctx, b)
		moved := up.DeepCopy()
		moved.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.net"}
		Expect(h.Client.Update(ctx, moved)).To(Succeed())
		thief := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: up.Spec.ClusterIP,
			Ports: []corev1.ServicePort{{Port: 1}}}}
		thief.Namespace, thief.Name = h.Target, "thief"
		Expect(h.Client.Create(ctx, thief)).To(Succeed())
		h.reconcile(ctx, b)
		now := h.upstream(ctx, b)
		Expect(now.Spec.ClusterIP).To(And(Not(BeEmpty()), Not(Equal(up.Spec.ClusterIP))))
		Expect(b.Status.ClusterIP).To(Equal(now.Spec.ClusterIP))
		Expect(now.UID).To(Equal(up.UID))
	})

	It("by deletion is repaired with one write an address or name, and the addresses come back", func(ctx SpecContext) {
		up, target := h.upstream(ctx, b), h.target(ctx, b)
		Expect(h.Client.Delete(ctx, up)).To(Succeed())
		Expect(h.Client.Delete(ctx, target)).To(Succeed())
		h.reconcile(ctx, b)
		Expect(h.counter.takeWrites()).
			To(Equal([]string{"create " + up.Namespace + "/" + up.Name, "update " + up.Namespace + "/" + up.Name,
				"create " + target.Namespace + "/" + target.Name}))
		Expect(h.upstream(ctx, b).Spec).To(Equal(up.Spec))
		Expect(h.target(ctx, b).Spec).To(Equal(target.Spec))
	})

	It("by deletion, again and again and after other drift, brings the addresses back", func(ctx SpecContext) {
		good := h.upstream(ctx, b)
		for _, drift := range []func(*corev1.Service){
			func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
			func(s *corev1.Service) {
				s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.net"}
			},
			func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 9}} },
			func(s *corev1.Service) { s.Labels = nil },
			func(s *corev1.Service) { s.OwnerReferences = nil },
		} {
			up := h.upstream(ctx, b)
			drift(up)
			Expect(h.Client.Update(ctx, up)).To(Succeed())
			h.reconcile(ctx, b)
			for range 2 {
				up = h.upstream(ctx, b)
				Expect(h.Client.Delete(ctx, up)).To(Succeed())
				h.reconcile(ctx, b)
				Expect(h.upstream(ctx, b).UID).NotTo(Equal(up.UID))
				Expect(h.upstream(ctx, b).Spec).To(Equal(good.Spec))
			}
		}
	})

	DescribeTable("by deletion brings both addresses back although one is freed late",
		func(ctx SpecContext, late int) {
			up := h.upstream(ctx, b)
			Expect(up.Spec.ClusterIPs).To(HaveLen(2))
			Expect(h.Client.Delete(ctx, up)).To(Succeed())
			holder := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "holder"},
				Spec: corev1.ServiceSpec{ClusterIP: up.Spec.ClusterIPs[late], Ports: []corev1.ServicePort{{Port: 1}}}}
			Expect(h.Client.Create(ctx, holder)).To(Succeed())
			for range 10 { // the API server frees none that it allocated for a request that failed
				result, err := h.reconciler.Reconcile(ctx, requestFor(b))
				Expect(err).NotTo(HaveOccurred())
				Expect(result.RequeueAfter).To(Equal(status.ConflictRetry))
			}
			Expect(h.Client.Delete(ctx, holder)).To(Succeed())
			h.reconcile(ctx, b)
			Expect(h.upstream(ctx, b).Spec).To(Equal(up.Spec))
		},
		Entry("the first family's", 0), Entry("the second family's", 1),
	)

	It("by deletion keeps the first address although the second was given away", func(ctx SpecContext) {
		up := h.upstream(ctx, b)
		Expect(h.Client.Delete(ctx, up)).To(Succeed())
		thief := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Target, Name: "thief"},
			Spec: corev1.ServiceSpec{ClusterIP: up.Spec.ClusterIPs[1], Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(h.Client.Create(ctx, thief)).To(Succeed())
		h.reconcile(ctx, b)
		now := h.upstream(ctx, b)
		Expect(now.Spec.ClusterIPs).To(HaveLen(2))
		Expect(now.Spec.ClusterIPs[0]).To(Equal(up.Spec.ClusterIPs[0]))
		Expect(b.Status.ClusterIPs).To(Equal(now.Spec.ClusterIPs))
	})

	DescribeTable("that takes a mark does not make a Service foreign",
		func(ctx SpecContext, strip func(*corev1.Service)) {
			up := h.upstream(ctx, b)
			for _, s := range []*corev1.Service{up, h.target(ctx, b)} {
				strip(s)
				Expect(h.Client.Update(ctx, s)).To(Succeed())
			}
			h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State = v1alpha1.StateReleased })
			h.reconcile(ctx, b)
			h.expectNoService(ctx, up.Namespace, up.Name)
			h.expectNoService(ctx, h.Target, "api")
			Expect(b.Status.Services).To(BeEmpty())
		},
		Entry("label", func(s *corev1.Service) { delete(s.Labels, installation.Label) }),
		Entry("place", func(s *corev1.Service) { delete(s.Annotations, installation.AnnotationPlace) }),
	)

	It("that takes a mark after a new projection id does not leave the old Service behind", func(ctx SpecContext) {
		up := h.upstream(ctx, b)
		delete(up.Labels, installation.Label)
		Expect(h.Client.Update(ctx, up)).To(Succeed())
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.ProjectionID = "ep-other" })
		h.reconcile(ctx, b)
		h.expectNoService(ctx, up.Namespace, up.Name)
	})

	DescribeTable("to what is not ours: the Service is left alone",
		func(ctx SpecContext, change func(s *corev1.Service)) {
			target := h.target(ctx, b)
			change(target)
			if target.UID == "" {
				Expect(h.Client.Delete(ctx, h.target(ctx, b))).To(Succeed())
				Expect(h.Client.Create(ctx, target)).To(Succeed())
			} else {
				Expect(h.Client.Update(ctx, target)).To(Succeed())
			}
			h.reconcile(ctx, b)
			h.reconcile(ctx, b)
			Expect(h.counter.takeWrites()).To(BeEmpty())
			expectCondition(b, v1alpha1.ConditionServicesReady, "False Conflict",
				client.ObjectKeyFromObject(target).String())
			h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) { s.State = v1alpha1.StateReleased })
			h.reconcile(ctx, b)
			Expect(h.target(ctx, b)).To(Equal(target))
		},
		Entry("both marks are taken off: it was given away", func(s *corev1.Service) {
			s.Labels, s.Annotations = nil, nil
		}),
		Entry("another installation has it", func(s *corev1.Service) {
			installation.Installation{Namespace: "other", Release: "blue"}.Mark(s)
		}),
		Entry("a copy in its place without the label", func(s *corev1.Service) {
			delete(s.Labels, installation.Label)
			s.UID, s.ResourceVersion = "", ""
		}),
		Entry("a copy in its place without the place", func(s *corev1.Service) {
			delete(s.Annotations, installation.AnnotationPlace)
			s.UID, s.ResourceVersion = "", ""
		}),
	)

	It("of one Service's hostname does not give it to another hostname, which would delete it", func(ctx SpecContext) {
		up := h.upstream(ctx, b)
		up.Annotations[installation.AnnotationHostname] = "web." + h.Target
		Expect(h.Client.Update(ctx, up)).To(Succeed())
		web := h.object(ctx, "web", h.Target, v1alpha1.BoundPort{Port: 80, Scheme: "http", TargetPort: 20082})
		h.reconcile(ctx, web)
		Expect(h.upstream(ctx, b).UID).To(Equal(up.UID))
		expectCondition(web, v1alpha1.ConditionServicesReady, "True Projected", "")
	})
})
