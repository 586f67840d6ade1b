// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics registers gauges that read the Set and the Feed on every scrape.
func RegisterMetrics(registry prometheus.Registerer, set *Set, feed *Feed) error {
	gauge := func(name, help string, value func() float64) error {
		return registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "fairlead_operator",
			Name: name, Help: help}, value))
	}
	count := func(i int) func() float64 {
		return func() float64 {
			admitted, excluded, problems := set.Counts()
			return float64([]int{admitted, excluded, problems}[i])
		}
	}
	const of = "Kubernetes-bound endpoints of the account, and ports of Services that clusters export, that "
	return errors.Join(
		gauge("endpoints_admitted", of+"are to be projected.", count(0)),
		gauge("endpoints_excluded", of+"the selector excludes.", count(1)),
		gauge("endpoints_invalid",
			of+"cannot be projected: an impossible URL, or a selector that cannot be "+
				"evaluated for them.", count(2)),
		gauge("account_readable", "1 while the account's endpoints can be read.", func() float64 {
			return gaugeValue(feed.Status().Err == nil)
		}),
		gauge("account_polling", "1 while the server has no watches, and is asked every 10 s.", func() float64 {
			return gaugeValue(feed.Status().Polling)
		}),
		gauge("removals_held",
			"Hostnames whose removal waits for a second list, or for a changed account to be accepted.",
			func() float64 {
				if r := set.Removals(); r.Held || r.Frozen {
					return float64(r.Pending)
				}
				return 0
			}),
		gauge("account_changed",
			"1 while the lists come from another account or store than recorded, and nothing is removed.",
			func() float64 {
				return gaugeValue(set.Removals().Frozen)
			}),
	)
}

func gaugeValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
