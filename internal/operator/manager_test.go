// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

var _ = Describe("the manager", func() {
	It("makes two Services of an endpoint, as the mission's table has them", func(ctx SpecContext) {
		r := newRelease(ctx)
		run(r.options())
		r.account.put(endpoint("ep-00000000000000000000000001", "http://api."+r.target))

		upstream, err := service(ctx, r.namespace, "ep-00000000000000000000000001"), error(nil)
		Eventually(upstream).Should(HaveField("Spec.ClusterIP", Not(BeEmpty())))
		up, err := upstream()
		Expect(err).NotTo(HaveOccurred())
		Expect(up.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		Expect(up.Spec.Selector).To(HaveKeyWithValue("app.kubernetes.io/name", "fairlead-forwarder"))
		Expect(up.Spec.Ports).To(HaveLen(1))
		Expect(up.Spec.Ports[0].Port).To(BeEquivalentTo(80))
		Expect(up.Spec.Ports[0].TargetPort.IntVal).To(And(BeNumerically(">=", 10000), BeNumerically("<=", 32767)))
		Eventually(service(ctx, r.target, "api")).Should(And(
			HaveField("Spec.Type", corev1.ServiceTypeExternalName),
			HaveField("Spec.ExternalName", "ep-00000000000000000000000001."+r.namespace+".svc.cluster.local")))
		Eventually(func(g Gomega) {
			b := r.bep(ctx, hostnameIn(r.target, "api"))
			g.Expect(meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
			g.Expect(b.Status.ClusterIP).To(Equal(up.Spec.ClusterIP))
		}).Should(Succeed())
	})

	It("needs 100 ms from an event to both Services in the median, 250 ms at most", func(ctx SpecContext) {
		r := newRelease(ctx)
		run(r.options())
		r.account.put(endpoint("ep-warm", "http://warm."+r.target))
		Eventually(service(ctx, r.target, "warm")).Should(Not(BeNil()))
		withWatch, err := client.NewWithWatch(config, client.Options{Scheme: kube.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		w, err := withWatch.Watch(ctx, &corev1.ServiceList{}, client.InNamespace(r.target))
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()

		var took []time.Duration
		for i := range 30 {
			name := fmt.Sprintf("e%d", i)
			began := time.Now()
			r.account.put(endpoint("ep-"+name, "http://"+name+"."+r.target))
			waitFor(ctx, w, name)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		median, longest := took[len(took)/2], took[len(took)-1]
		AddReportEntry("event to both Services", fmt.Sprintf("median %s, maximum %s of %d", median, longest, len(took)))
		Expect(median).To(BeNumerically("<=", 100*time.Millisecond))
	}, SpecTimeout(time.Minute))
})

// waitFor returns when the watch has shown the Service of that name; the target Service is the second of the two to be written.
func waitFor(ctx context.Context, w watch.Interface, name string) {
	GinkgoHelper()
	for {
		select {
		case <-ctx.Done():
			Fail("no Service " + name)
		case e := <-w.ResultChan():
			if s, ok := e.Object.(*corev1.Service); ok && s.Name == name && e.Type == watch.Added {
				return
			}
		}
	}
}
