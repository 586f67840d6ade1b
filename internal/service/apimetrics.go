// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// apiMetrics are the metrics of the API and the dashboard.
type apiMetrics struct {
	requests   *prometheus.CounterVec
	binds      *prometheus.CounterVec
	watchDelay prometheus.Histogram
}

func newAPIMetrics(registry *prometheus.Registry) *apiMetrics {
	const ns = "fairlead_server"
	m := &apiMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "api_requests_total",
			Help: "Requests to API and dashboard that have ended, by class of the status and code of " +
				"docs/fix/errors.md (none: no error)."}, []string{"class", "code"}),
		binds: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "binds_total",
			Help: "Endpoints and labelled tunnels that agents asked for, by outcome: accepted, or the refusal's code."},
			[]string{"outcome"}),
		watchDelay: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: ns, Name: "watch_delay_seconds",
			Help:    "Time from the creation of an endpoint until an open watch of the API was told.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}),
	}
	m.requests.WithLabelValues("2xx", "")
	m.binds.WithLabelValues("accepted")
	registry.MustRegister(m.requests, m.binds, m.watchDelay)
	return m
}

// countAnswer counts a request that ended with the status, and with the code of an error.
func (m *apiMetrics) countAnswer(status int, code account.Code) {
	m.requests.WithLabelValues(strconv.Itoa(status/100)+"xx", string(code)).Inc()
}

func (m *apiMetrics) countBind(outcome string) { m.binds.WithLabelValues(outcome).Inc() }

// observeWatch records how long after its creation an endpoint was reported. Clocks of replicas may
// differ a little.
func (m *apiMetrics) observeWatch(delay time.Duration) { m.watchDelay.Observe(max(0, delay).Seconds()) }
