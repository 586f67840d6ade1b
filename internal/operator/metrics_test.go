// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

// metricOf returns a function that returns the value of a series without a label, or with this one;
// of a histogram, how many values it has. Nil: there is no such series.
func metricOf(registry *prometheus.Registry, name string, label ...string) func() any {
	return func() any {
		families, err := registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() != name || len(label) > 0 && m.GetLabel()[0].GetValue() != label[0] {
					continue
				}
				if h := m.GetHistogram(); h != nil {
					return float64(h.GetSampleCount())
				}
				return m.GetGauge().GetValue()
			}
		}
		return nil
	}
}

var _ = Describe("the manager's metrics", func() {
	It("measure new URLs until both Services exist, and none that cannot be projected", func(ctx SpecContext) {
		r := newRelease(ctx)
		o := r.options()
		registry := o.Metrics.(*prometheus.Registry)
		measured := metricOf(registry, "fairlead_operator_projection_seconds")
		pending := metricOf(registry, "fairlead_operator_projections_pending")
		reason := func(name string) func() any { return metricOf(registry, "fairlead_operator_bound_endpoints", name) }
		before := time.Now()
		run(o)
		r.account.Put(endpoint("ep-first", "http://first."+r.target))
		Eventually(service(ctx, r.target, "first")).ShouldNot(BeZero())
		Eventually(reason("Ready")).Should(BeEquivalentTo(1))
		known := measured().(float64) // 1, unless the first list had it

		r.account.Put(endpoint("ep-second", "http://second."+r.target))
		Eventually(service(ctx, r.target, "second")).ShouldNot(BeZero())
		Eventually(measured).Should(BeEquivalentTo(known + 1))
		Eventually(reason("Ready")).Should(BeEquivalentTo(2))

		r.account.Put(endpoint("ep-nowhere", "http://api.no-such-namespace"))
		Eventually(reason("NamespaceNotFound")).Should(BeEquivalentTo(1))
		Expect(pending()).To(BeZero())
		r.account.Put(endpoint("ep-again", "http://second."+r.target)) // of a URL that has its Services
		Consistently(measured).WithTimeout(500 * time.Millisecond).Should(BeEquivalentTo(known + 1))
		Expect(pending()).To(BeZero())
		Eventually(metricOf(registry, "fairlead_operator_heartbeat_timestamp_seconds")).
			Should(BeNumerically(">=", before.Unix()))
	})

	It("show no heartbeat while the account refuses them", func(ctx SpecContext) {
		r := newRelease(ctx)
		o := r.options()
		r.account.Fail(errDown)
		run(o)
		Eventually(r.condition(ctx, "APIReachable")).Should(Equal("False Unreachable"))
		Expect(metricOf(o.Metrics.(*prometheus.Registry), "fairlead_operator_heartbeat_timestamp_seconds")()).
			To(BeZero())
	})
})
