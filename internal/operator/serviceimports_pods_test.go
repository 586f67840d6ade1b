// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// headless is the export of a headless Service hello with port 42 by cluster a.
func headless(namespace string, pods ...account.ServiceExportPod) account.Endpoint {
	e := record(namespace, "a", tcp("tcp", 42))
	e.ServiceExport.Type, e.ServiceExport.Pods = account.ExportHeadless, pods
	return e
}

// podPort is port 42 of one of its pods, which the cluster carries.
func podPort(namespace, hostname string) account.Endpoint {
	return port(namespace, "a", int(account.PodPort(hostname, 42)))
}

// pods returns what DNS lists of ServiceImport hello, and where each leads to, such as
// "pod-0 ready tcp:42 a:34117 10.9.0.1": hostname, port, the port of the cluster and the forwarders.
func (r *release) pods(ctx context.Context, namespace string) func() ([]string, error) {
	return func() (all []string, err error) {
		var lists, targets discoveryv1.EndpointSliceList
		of := client.MatchingLabels{mcsv1beta1.LabelServiceName: "hello", mcsv1beta1.LabelSourceCluster: "a"}
		if err := kube.List(ctx, &lists, client.InNamespace(namespace), of); err != nil {
			return nil, err
		}
		for _, s := range lists.Items {
			if s.Labels[discoveryv1.LabelServiceName] != "" {
				return nil, fmt.Errorf("%s is of Service %s", s.Name, s.Labels[discoveryv1.LabelServiceName])
			}
			for _, e := range s.Endpoints {
				var of corev1.Service
				key := client.ObjectKey{Namespace: namespace, Name: e.TargetRef.Name}
				if err := kube.Get(ctx, key, &of); err != nil {
					return nil, err
				}
				if of.Spec.ClusterIP != e.Addresses[0] || *s.Ports[0].Port != of.Spec.Ports[0].Port {
					return nil, fmt.Errorf("%s lists %s:%d, its Service has %+v", s.Name, e.Addresses[0],
						*s.Ports[0].Port, of.Spec)
				}
				text := *e.Hostname
				if *e.Conditions.Ready {
					text += " ready"
				}
				text += fmt.Sprintf(" %s:%d", *s.Ports[0].Name, *s.Ports[0].Port)
				if err := kube.List(ctx, &targets, client.InNamespace(namespace),
					client.MatchingLabels{discoveryv1.LabelServiceName: of.Name}); err != nil {
					return nil, err
				}
				for _, t := range targets.Items {
					text += r.describe(ctx, &t)
				}
				all = append(all, text)
			}
		}
		return all, nil
	}
}

// describe returns the cluster's port that a slice leads to, and the forwarders.
func (r *release) describe(ctx context.Context, s *discoveryv1.EndpointSlice) (text string) {
	for _, p := range s.Ports {
		text += " " + r.targets(ctx)[*p.Port]
	}
	for _, e := range s.Endpoints {
		text += " " + e.Addresses[0]
	}
	return text
}

var _ = Describe("the manager that imports headless Services", func() {
	var r *release
	zero, one := account.ServiceExportPod{Hostname: "pod-0", Ready: true}, account.ServiceExportPod{Hostname: "pod-1"}
	at := func(hostname string) string { return fmt.Sprintf("a:%d", account.PodPort(hostname, 42)) }
	BeforeEach(func(ctx SpecContext) {
		installMulticlusterCRDs()
		r = newReleaseOf(ctx, importing)
		r.setForwarders(ctx, "10.9.0.1")
	})
	// services returns the Services of the pods.
	services := func(ctx context.Context) func() ([]corev1.Service, error) {
		return func() ([]corev1.Service, error) {
			var list corev1.ServiceList
			err := kube.List(ctx, &list, client.InNamespace(r.target), client.HasLabels{"bindings.fairlead.dev/pod"})
			return list.Items, err
		}
	}

	It("gives each pod an address, and follows them", func(ctx SpecContext) {
		theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: r.target, Name: "clusterset-pod-0"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(kube.Create(ctx, theirs)).To(Succeed())
		run(r.importingOptions())
		r.account.Put(headless(r.target, zero, one, account.ServiceExportPod{Hostname: "no_label", Ready: true}),
			podPort(r.target, "pod-0"), podPort(r.target, "pod-1"))
		Eventually(r.pods(ctx, r.target)).Should(Equal([]string{"pod-0 ready tcp:42 " + at("pod-0") + " 10.9.0.1",
			"pod-1 tcp:42 " + at("pod-1") + " 10.9.0.1"}))
		before, err := services(ctx)()
		Expect(err).NotTo(HaveOccurred())
		Expect(before).To(ConsistOf(HaveField("Name", "clusterset-pod-1"), HaveField("Name", "clusterset-pod-2")))
		Eventually(imported(ctx, r.target)).Should(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Status", metav1.ConditionTrue),
			HaveField("Message", ContainSubstring("2 pods as HOSTNAME.CLUSTER.hello."+r.target))))))
		Eventually(imported(ctx, r.target)).Should(HaveField("Spec.IPFamilies", before[0].Spec.IPFamilies))

		By("replacing a pod and the forwarders, with the other pod's address as it is")
		ready := one
		ready.Hostname, ready.Ready = "pod-2", true
		r.account.Put(headless(r.target, zero, ready), podPort(r.target, "pod-2"))
		r.setForwarders(ctx, "10.9.0.2")
		Eventually(r.pods(ctx, r.target)).Should(Equal([]string{"pod-0 ready tcp:42 " + at("pod-0") + " 10.9.0.2",
			"pod-2 ready tcp:42 " + at("pod-2") + " 10.9.0.2"}))
		Eventually(services(ctx)).Should(And(HaveLen(2), ContainElement(And(HaveField("UID", before[0].UID),
			HaveField("Spec.ClusterIP", before[0].Spec.ClusterIP)))))

		By("not listing one that is not bound as ready")
		offline := podPort(r.target, "pod-2")
		offline.Status = account.StatusOffline
		r.account.Put(offline)
		Eventually(r.pods(ctx, r.target)).Should(ContainElement(HavePrefix("pod-2 tcp")))

		By("removing all with the export")
		r.account.Delete("ep-a-" + r.target)
		Eventually(imported(ctx, r.target)).Should(BeNil())
		Eventually(services(ctx)).Should(BeEmpty())
		Eventually(r.pods(ctx, r.target)).Should(BeEmpty())
		Eventually(r.recorded(ctx)).Should(BeEmpty())
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
		Expect(theirs.Spec.Ports[0].Port).To(BeEquivalentTo(1))
	})

	It("imports at most 64 pods into a namespace, and changes its type in place", func(ctx SpecContext) {
		run(r.importingOptions())
		var many []account.ServiceExportPod
		for n := range 64 {
			many = append(many, account.ServiceExportPod{Hostname: fmt.Sprintf("pod-%02d", n), Ready: true})
		}
		b := record(r.target, "b", tcp("tcp", 42))
		b.ServiceExport.Type, b.ServiceExport.Pods = account.ExportHeadless, many[:2]
		r.account.Put(headless(r.target, many...), b)
		Eventually(func(g Gomega) {
			s, err := imported(ctx, r.target)()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s).NotTo(BeNil())
			c := meta.FindStatusCondition(s.Status.Conditions, "Ready")
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Reason + c.Message).To(And(HavePrefix("PodsLeftOut"), ContainSubstring("2 more are left out")))
		}).WithTimeout(2 * time.Minute).Should(Succeed())
		Expect(services(ctx)()).To(HaveLen(64))

		r.account.Put(record(r.target, "a", tcp("tcp", 42)), port(r.target, "a", 42))
		// one after another, before the ServiceImport is ready
		Eventually(services(ctx)).WithTimeout(2 * time.Minute).Should(BeEmpty())
		addressed(ctx, r.target)
		Eventually(r.carried(ctx, r.target)).Should(Equal(map[string]string{"a": "tcp=a:42 10.9.0.1 "}))
	})
})
