// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/backend"
	"github.com/fairlead-dev/fairlead/internal/edge"
)

// meter tells all who want to know what the edge sees: the counters, the trace and the access log.
type meter struct {
	*metrics
	endpoints, backends *tally
	people              *sessionMeter
	access              *accessLog // nil = none
	tracing             *tracing   // nil = none
}

var _ edge.Meter = (*meter)(nil)

// newMeter makes a meter whose endpoints and backends have at most so many rows each.
func newMeter(rows int) *meter {
	m := &meter{metrics: newMetrics(), endpoints: newTally("endpoint", rows), backends: newTally("backend", rows)}
	m.registry.MustRegister(m.endpoints, m.backends)
	m.people = newSessionMeter(m.registry)
	return m
}

// marks is what Start leaves for Finish where requests are traced.
type marks struct {
	row  *row
	span trace.Span
}

// observe opens the access log and the tracing, as options and environment have it.
func (s *service) observe(ctx context.Context) (err error) {
	if s.opt.AccessLog != "" {
		if s.meter.access, err = openAccessLog(s.opt.AccessLog, s.opt.AccessLogSample, s.opt.ReopenAccessLog,
			s.log); err != nil {
			return err
		}
		s.onClose(s.meter.access.close)
		s.meter.registry.MustRegister(
			prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fairlead_server_access_log_dropped_total",
				Help: "Lines of the access log that could not be written, or not fast enough."}, func() float64 {
				return float64(s.meter.access.dropped.Load())
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
func (m *meter) Start(s *edge.RequestRecord) {
	r := m.endpoints.row(s.Endpoint.AccountID, s.Endpoint.ID, s.StartedAt)
	r.open.Add(1)
	s.LiveTraffic = &r.traffic
	s.State = r
	if m.tracing != nil {
		s.State = &marks{row: r, span: m.tracing.begin(s)}
	}
}

// Finish implements edge.Meter.
func (m *meter) Finish(s *edge.RequestRecord) {
	r, ok := s.State.(*row)
	if !ok {
		both := s.State.(*marks)
		r = both.row
		endSpan(both.span, s)
	}
	if m.access != nil {
		m.access.note(s)
	}
	r.open.Add(-1)
	r.end(s)
	if s.BackendID != "" {
		b := m.backends.row(s.Endpoint.AccountID, s.BackendID, s.StartedAt)
		b.end(s)
		b.traffic.Add(s.Traffic.Totals())
	}
	if s.Request != nil {
		m.request(s.Status, s.Duration)
	}
}

// forgetEvery is how often series of what was deleted are looked for.
const forgetEvery = 10 * time.Second

// forgetDeleted drops the series of what was deleted, until ctx is done.
func (s *service) forgetDeleted(ctx context.Context) {
	exists := func(err error) bool { return account.CodeOf(err) != account.CodeNotFound }
	for wait(ctx, cmp.Or(s.opt.forgetEvery, forgetEvery)) {
		before := time.Now().Add(-cmp.Or(s.opt.forgetEvery, forgetEvery) / 2)
		s.meter.endpoints.forget(ctx, before, func(ctx context.Context, accountID, id string) bool {
			_, err := s.store.Endpoint(ctx, accountID, id)
			return exists(err)
		})
		s.meter.backends.forget(ctx, before, func(ctx context.Context, accountID, id string) bool {
			_, err := s.store.BackendTree(ctx, accountID, id)
			return exists(err)
		})
	}
}

// activeChildren says which child of each failover serves.
type activeChildren struct {
	desc     *prometheus.Desc
	backends *backend.Resolver
	most     int // failovers
}

func (s *service) watchBackends() {
	s.meter.registry.MustRegister(&activeChildren{backends: s.backends, most: s.opt.MetricsSeries,
		desc: prometheus.NewDesc("fairlead_server_backend_active",
			"1 for the child that serves a failover's new connections; child \"\": none is up.", []string{"backend", "child"},
			nil)})
}

// Describe implements prometheus.Collector.
func (a *activeChildren) Describe(to chan<- *prometheus.Desc) { to <- a.desc }

// Collect implements prometheus.Collector.
func (a *activeChildren) Collect(to chan<- prometheus.Metric) {
	left := a.most
	a.backends.Failovers(func(_, id, active string) bool {
		if left--; left < 0 {
			return false
		}
		to <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, 1, id, active)
		return true
	})
}
