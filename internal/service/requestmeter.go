// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/backend"
	"github.com/fairlead-dev/fairlead/internal/service/edge"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// requestMeter is the edge.Meter of the service: it feeds the counters, which are those of the traffic
// recorder, the traces and the access log.
type requestMeter struct {
	*metrics
	traffic   *traffic.Recorder
	sessions  *sessionMetrics
	store     *storeMetrics
	api       *apiMetrics
	accessLog *accessLog // nil = none
	tracing   *tracing   // nil = none
}

var _ edge.Meter = (*requestMeter)(nil)

// newRequestMeter makes a meter. At most so many endpoints, and backends, have metrics of their own.
func newRequestMeter(rows int) *requestMeter {
	m := &requestMeter{metrics: newMetrics(), traffic: traffic.New(traffic.Options{MaxOwn: rows})}
	m.registry.MustRegister(newTrafficMetrics("endpoint", m.traffic.Endpoints),
		newTrafficMetrics("backend", m.traffic.Backends))
	m.sessions = newSessionMetrics(m.registry)
	m.store, m.api = newStoreMetrics(m.registry), newAPIMetrics(m.registry)
	return m
}

// tracedCounters is the RequestRecord.State between Start and Finish where requests are traced.
type tracedCounters struct {
	counters *traffic.Counters
	span     trace.Span
}

// openObservability opens the access log and the tracing, as options and environment have it.
func (s *service) openObservability(ctx context.Context) (err error) {
	if s.opt.AccessLog != "" {
		if s.meter.accessLog, err = openAccessLog(s.opt.AccessLog, s.opt.AccessLogSample, s.opt.ReopenAccessLog,
			s.log); err != nil {
			return err
		}
		s.onClose(s.meter.accessLog.close)
		s.meter.registry.MustRegister(
			prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fairlead_server_access_log_dropped_total",
				Help: "Lines of the access log that could not be written, or not fast enough."}, func() float64 {
				return float64(s.meter.accessLog.dropped.Load())
			}))
	}
	if s.meter.tracing, err = newTracing(ctx, s.log); err != nil || s.meter.tracing == nil {
		return err
	}
	s.onClose(func() {
		if err := s.meter.tracing.close(); err != nil {
			s.log.Warn("traces are lost", "err", err)
		}
	})
	return nil
}

// Start implements edge.Meter.
func (m *requestMeter) Start(s *edge.RequestRecord) {
	c := m.traffic.Endpoints.Start(s)
	s.LiveTraffic = &c.Bytes
	s.State = c
	if m.tracing != nil {
		s.State = &tracedCounters{counters: c, span: m.tracing.startSpan(s)}
	}
}

// Finish implements edge.Meter.
func (m *requestMeter) Finish(s *edge.RequestRecord) {
	c, ok := s.State.(*traffic.Counters)
	if !ok {
		both := s.State.(*tracedCounters)
		c = both.counters
		endSpan(both.span, s)
	}
	if m.accessLog != nil {
		m.accessLog.record(s)
	}
	m.traffic.Endpoints.Finish(c, s)
	if s.BackendID != "" {
		m.traffic.Backends.CountFinished(s.BackendID, s)
	}
	if s.Request != nil {
		m.countRequest(s.Status, s.Duration)
	}
}

// dropDeletedInterval is how often series of deleted endpoints and backends are dropped.
const dropDeletedInterval = 10 * time.Second

// dropDeletedMetrics drops the series of deleted endpoints and backends, until ctx is done.
func (s *service) dropDeletedMetrics(ctx context.Context) {
	exists := func(err error) bool { return account.CodeOf(err) != account.CodeNotFound }
	interval := cmp.Or(s.opt.dropDeletedInterval, dropDeletedInterval)
	for timer.Sleep(ctx, interval) {
		before := time.Now().Add(-interval / 2)
		s.traffic.Endpoints.DropDeleted(ctx, before, func(ctx context.Context, accountID, id string) bool {
			_, err := s.store.Endpoint(ctx, accountID, id)
			return exists(err)
		})
		s.traffic.Backends.DropDeleted(ctx, before, func(ctx context.Context, accountID, id string) bool {
			_, err := s.store.BackendTree(ctx, accountID, id)
			return exists(err)
		})
	}
}

// activeChildren exports which child of each failover serves.
type activeChildren struct {
	desc     *prometheus.Desc
	backends *backend.Resolver
	maxRows  int // failovers
}

func (s *service) watchBackends() {
	s.meter.registry.MustRegister(&activeChildren{backends: s.backends, maxRows: s.opt.MetricsSeries,
		desc: prometheus.NewDesc("fairlead_server_backend_active",
			"1 for the child that serves a failover's new connections; child \"\": none is up.",
			[]string{"backend", "child"}, nil)})
}

// Describe implements prometheus.Collector.
func (a *activeChildren) Describe(to chan<- *prometheus.Desc) { to <- a.desc }

// Collect implements prometheus.Collector.
func (a *activeChildren) Collect(to chan<- prometheus.Metric) {
	left := a.maxRows
	a.backends.Failovers(func(_, id, active string) bool {
		if left--; left < 0 {
			return false
		}
		to <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, 1, id, active)
		return true
	})
}
