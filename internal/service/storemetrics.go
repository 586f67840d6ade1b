// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// monitorInterval is how often the rows are counted that metrics show.
const monitorInterval = time.Minute

// storeMetrics are the metrics of the database and of the rows that an operator of the service has
// to know. It is a prometheus.Collector of the latter.
type storeMetrics struct {
	seconds map[store.CallKind]prometheus.Observer
	errors  map[store.CallKind]prometheus.Counter

	operators, expiry, oldestAudit *prometheus.Desc

	monitored atomic.Pointer[store.Monitored] // nil until it was read
}

func newStoreMetrics(registry *prometheus.Registry) *storeMetrics {
	const ns = "fairlead_server"
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Name: "store_seconds",
		Help:    "Time of the database's transactions by operation (read, write), with the wait for a turn to write.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"operation"})
	errors := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "store_errors_total",
		Help: "Transactions that the database failed, by operation (read, write)."}, []string{"operation"})
	m := &storeMetrics{seconds: map[store.CallKind]prometheus.Observer{},
		errors: map[store.CallKind]prometheus.Counter{},
		operators: prometheus.NewDesc(ns+"_operators",
			"Operators of all accounts: active, silent (not seen for 3 minutes), gone (for a day).",
			[]string{"state"}, nil),
		expiry: prometheus.NewDesc(ns+"_credential_expiry_timestamp_seconds",
			"When the next API key or authtoken expires, of those in use that live for two weeks or longer.",
			[]string{"kind"}, nil),
		oldestAudit: prometheus.NewDesc(ns+"_audit_oldest_event_timestamp_seconds",
			"When the oldest audit event occurred that is still kept, by class (security, activity).",
			[]string{"class"}, nil)}
	for _, kind := range []store.CallKind{store.CallRead, store.CallWrite} {
		m.seconds[kind], m.errors[kind] = seconds.WithLabelValues(string(kind)), errors.WithLabelValues(string(kind))
	}
	registry.MustRegister(seconds, errors, m)
	return m
}

// countCall is store.Options.OnCall.
func (m *storeMetrics) countCall(kind store.CallKind, took time.Duration, failed bool) {
	m.seconds[kind].Observe(took.Seconds())
	if failed {
		m.errors[kind].Inc()
	}
}

// Describe implements prometheus.Collector.
func (m *storeMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.operators
	to <- m.expiry
	to <- m.oldestAudit
}

// Collect implements prometheus.Collector.
func (m *storeMetrics) Collect(to chan<- prometheus.Metric) {
	now := m.monitored.Load()
	if now == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	gauge(m.operators, float64(now.ActiveOperators), "active")
	gauge(m.operators, float64(now.SilentOperators), "silent")
	gauge(m.operators, float64(now.GoneOperators), "gone")
	timestamp := func(d *prometheus.Desc, at time.Time, label string) {
		if !at.IsZero() {
			gauge(d, float64(at.Unix()), label)
		}
	}
	timestamp(m.expiry, now.APIKeyExpiry, "api_key")
	timestamp(m.expiry, now.AuthtokenExpiry, "authtoken")
	timestamp(m.oldestAudit, now.OldestSecurityEvent, "security")
	timestamp(m.oldestAudit, now.OldestActivityEvent, "activity")
}

// addStoreGauges registers what is computed on every scrape.
func (m *metrics) addStoreGauges(waiting func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "fairlead_server",
		Name: "store_writes_waiting", Help: "Calls that wait for their turn to write to the database."},
		func() float64 { return float64(waiting()) }))
}

// startMetrics starts what keeps metrics and the records of traffic, until ctx is done.
func (s *service) startMetrics(ctx context.Context) {
	s.tasks.Go(func() { s.traffic.Run(ctx) })
	s.tasks.Go(func() { s.dropDeletedMetrics(ctx) })
	s.tasks.Go(func() { s.monitorStore(ctx) })
	s.tasks.Go(func() { s.loginCertificates.run(ctx) })
}

// monitorStore reads what metrics show of the store's rows, every minute until ctx is done. While the
// database does not answer, the last values stay.
func (s *service) monitorStore(ctx context.Context) {
	for ok := true; ok; ok = timer.Sleep(ctx, monitorInterval) {
		if now, err := s.store.Monitored(ctx); err == nil {
			s.meter.store.monitored.Store(&now)
		}
	}
}
