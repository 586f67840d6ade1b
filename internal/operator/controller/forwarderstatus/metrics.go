// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import "github.com/prometheus/client_golang/prometheus"

// collector counts the forwarders by state. It is a prometheus.Collector.
type collector struct {
	r    *Reader
	desc *prometheus.Desc
}

// RegisterMetrics registers the number of forwarders by their state, once the pods are known.
func (r *Reader) RegisterMetrics(registry prometheus.Registerer) error {
	return registry.Register(&collector{r, prometheus.NewDesc("fairlead_operator_forwarders",
		"Forwarders as the manager that leads sees them: with_session (to the edge), without_session, not_reporting "+
			"(their status), starting (not ready).", []string{"state"}, nil)})
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.r.mu.Lock()
	listed, now := c.r.listed, c.r.counts
	c.r.mu.Unlock()
	if !listed {
		return
	}
	for state, n := range map[string]int{
		"with_session": now.sessions, "without_session": now.running - now.notReporting - now.sessions,
		"not_reporting": now.notReporting, "starting": now.starting + now.pending,
	} {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), state)
	}
}
