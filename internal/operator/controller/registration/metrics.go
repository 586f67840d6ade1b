// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import "github.com/prometheus/client_golang/prometheus"

// RegisterMetrics registers when the account last answered a heartbeat.
func (r *Registration) RegisterMetrics(registry prometheus.Registerer) error {
	return registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "fairlead_operator",
		Name: "heartbeat_timestamp_seconds",
		Help: "When the account last confirmed the registration of this installation to this manager; " +
			"0 = never, as in one that does not lead.",
	}, func() float64 { return float64(r.confirmed.Load()) }))
}
