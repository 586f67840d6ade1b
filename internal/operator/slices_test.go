// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator"
)

// setForwarders writes the slice of the forwarders' Service as Kubernetes does.
func (r *release) setForwarders(ctx context.Context, addresses ...string) {
	GinkgoHelper()
	r.setForwardersOf(ctx, "fairlead-forwarders", addresses...)
}

// setForwardersOf does so for another Service of the operator's namespace.
func (r *release) setForwardersOf(ctx context.Context, service string, addresses ...string) {
	GinkgoHelper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: service,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true),
				Terminating: ptr.To(false)}})
	}
	if err := kube.Create(ctx, s.DeepCopy()); err == nil {
		return
	}
	live := &discoveryv1.EndpointSlice{}
	Expect(kube.Get(ctx, client.ObjectKeyFromObject(s), live)).To(Succeed())
	live.Endpoints = s.Endpoints
	Expect(kube.Update(ctx, live)).To(Succeed())
}

// label sets the projection of a namespace.
func (r *release) label(ctx context.Context, namespace, projection string) {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	Expect(kube.Get(ctx, client.ObjectKey{Name: namespace}, ns)).To(Succeed())
	ns.Labels[v1alpha1.LabelProjection] = projection
	Expect(kube.Update(ctx, ns)).To(Succeed())
}

// listed returns the ready addresses of a target Service's slices, sorted.
func (r *release) listed(ctx context.Context, namespace, service string) func() ([]string, error) {
	return func() ([]string, error) {
		var list discoveryv1.EndpointSliceList
		err := kube.List(ctx, &list, client.InNamespace(namespace),
			client.MatchingLabels{discoveryv1.LabelServiceName: service})
		all := []string{}
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				if *e.Conditions.Ready {
					all = append(all, e.Addresses...)
				}
			}
		}
		slices.Sort(all)
		return all, err
	}
}

// recorded returns the addresses that a stopping forwarder waits for.
func (r *release) recorded(ctx context.Context) func() ([]string, error) {
	return func() ([]string, error) {
		var o v1alpha1.KubernetesOperator
		err := kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "fairlead"}, &o)
		return o.Status.ProjectedForwarders, err
	}
}

var _ = Describe("the manager with projection by EndpointSlices", func() {
	for rendered, options := range map[string]func(*release) operator.ManagerOptions{
		clusterWide: (*release).options, listedNamespaces: (*release).listedOptions,
	} {
		It("lists the forwarders, recorded for as long, with the rights of "+rendered, func(ctx SpecContext) {
			r := newReleaseOf(ctx, rendered)
			r.setForwarders(ctx, "10.9.0.1", "10.9.0.2")
			o := options(r)
			o.Projection, o.RemovalDelay = v1alpha1.ProjectionEndpointSlice, 0
			stop := run(o)
			r.account.Put(endpoint("ep-1", "http://api."+r.target))
			Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
			Expect(service(ctx, r.target, "api")()).To(HaveField("Spec.Type", corev1.ServiceTypeClusterIP))
			Expect(service(ctx, r.namespace, "ep-1")()).To(BeZero())
			Expect(r.listed(ctx, r.target, "api")()).To(Equal([]string{"10.9.0.1", "10.9.0.2"}))
			Expect(r.recorded(ctx)()).To(Equal([]string{"10.9.0.1", "10.9.0.2"}))

			By("following a roll-out")
			r.setForwarders(ctx, "10.9.0.1", "10.9.0.3")
			Eventually(r.listed(ctx, r.target, "api")).Should(Equal([]string{"10.9.0.1", "10.9.0.3"}))
			Eventually(r.recorded(ctx)).Should(Equal([]string{"10.9.0.1", "10.9.0.3"}))

			By("taking over from a manager that ended")
			stop()
			r.setForwarders(ctx, "10.9.0.3")
			Consistently(r.recorded(ctx), "300ms").Should(ContainElement("10.9.0.1"))
			o.Metrics = prometheus.NewRegistry()
			stop = run(o)
			Eventually(r.listed(ctx, r.target, "api")).Should(Equal([]string{"10.9.0.3"}))
			Eventually(r.recorded(ctx)).Should(Equal([]string{"10.9.0.3"}))

			By("removing the endpoint")
			r.account.Delete("ep-1")
			Eventually(service(ctx, r.target, "api")).Should(BeZero())
			Eventually(r.recorded(ctx)).Should(BeEmpty())
			stop()
		})
	}

	It("follows the label of a namespace that is running, and repairs slices", func(ctx SpecContext) {
		r := newRelease(ctx)
		r.setForwarders(ctx, "10.9.0.1")
		run(r.options())
		r.account.Put(endpoint("ep-1", "http://api."+r.target), endpoint("ep-2", "http://web."+r.second))
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
		Eventually(r.ready(ctx, "web."+r.second)).Should(Equal("True Ready"))
		r.label(ctx, r.target, "endpointSlice")
		transition := func() ([]corev1.Service, error) {
			var list corev1.ServiceList
			err := kube.List(ctx, &list, client.InNamespace(r.namespace))
			return slices.DeleteFunc(list.Items, func(s corev1.Service) bool {
				return !strings.HasPrefix(s.Name, "transition-")
			}), err
		}
		Eventually(transition).Should(HaveLen(1))
		found, err := transition()
		Expect(err).NotTo(HaveOccurred())
		Expect(found[0].Annotations).To(HaveKeyWithValue("bindings.fairlead.dev/hostname", "api."+r.target))
		r.setForwardersOf(ctx, found[0].Name, "10.9.0.1") // as Kubernetes does
		Eventually(service(ctx, r.target, "api")).Should(HaveField("Spec.ClusterIP", found[0].Spec.ClusterIP))
		Expect(service(ctx, r.second, "web")()).To(HaveField("Spec.Type", corev1.ServiceTypeExternalName))

		Expect(kube.DeleteAllOf(ctx, &discoveryv1.EndpointSlice{}, client.InNamespace(r.target))).To(Succeed())
		Eventually(r.listed(ctx, r.target, "api")).Should(Equal([]string{"10.9.0.1"}))
	})
})
