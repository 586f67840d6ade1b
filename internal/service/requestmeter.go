// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/service/backend"
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

// newRequestMeter makes a meter that counts in the recorder.
func newRequestMeter(recorder *traffic.Recorder) *requestMeter {
	m := &requestMeter{metrics: newMetrics(), traffic: recorder}
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

// activeChildren exports which child of each failover serves.
type activeChildren struct {
	desc     *prometheus.Desc
	backends *backend.Resolver
	maxRows  int // failovers
}

func newActiveChildren(r *backend.Resolver, maxRows int) *activeChildren {
	return &activeChildren{backends: r, maxRows: maxRows,
		desc: prometheus.NewDesc("fairlead_server_backend_active",
			"1 for the child that serves a failover's new connections; child \"\": none is up.",
			[]string{"backend", "child"}, nil)}
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

// overflowLabel is the label of the objects that have no metrics of their own.
const overflowLabel = "other"

// trafficMetrics exports the counters of a table: of endpoints, or of backends.
type trafficMetrics struct {
	table                                           *traffic.Table
	requests, errors, bytes, duration, open, served *prometheus.Desc
}

func newTrafficMetrics(kind string, table *traffic.Table) *trafficMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_server_"+kind+"_"+name,
			help+"; the ones beyond --metrics-series together as \"other\".", append([]string{kind}, labels...), nil)
	}
	return &trafficMetrics{
		table: table,
		requests: desc("requests_total",
			"HTTP requests by "+kind+" and class of the status (gone: the client left first)", "class"),
		errors: desc("errors_total", "Requests and connections that got no answer of an upstream, by "+kind+
			" and code of docs/fix/errors.md", "code"),
		bytes: desc("bytes_total", "Bytes of bodies and connections by "+kind+" and direction (in: from clients)",
			"direction"),
		duration: desc("duration_seconds", "Time from the begin to the end of requests and connections by "+kind),
		open:     desc("open", "Requests and connections under way by "+kind),
		served:   desc("connections_total", "Connections to tcp endpoints by "+kind),
	}
}

// Describe implements prometheus.Collector.
func (t *trafficMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{t.requests, t.errors, t.bytes, t.duration, t.open, t.served} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (t *trafficMetrics) Collect(to chan<- prometheus.Metric) {
	t.table.Each(func(id string, of *traffic.Totals) {
		id = cmp.Or(id, overflowLabel)
		t.collect(to, id, of)
	})
}

func (t *trafficMetrics) collect(to chan<- prometheus.Metric, id string, of *traffic.Totals) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{id}, labels...)...)
	}
	var total int64
	for class, n := range of.Requests {
		total += n
		switch {
		case n == 0:
		case class == 0:
			count(t.requests, n, "gone")
		default:
			count(t.requests, n, strconv.Itoa(class)+"xx")
		}
	}
	if of.Connections > 0 {
		count(t.served, of.Connections)
	}
	count(t.bytes, of.BytesIn, "in")
	count(t.bytes, of.BytesOut, "out")
	to <- prometheus.MustNewConstMetric(t.open, prometheus.GaugeValue, float64(of.Open), id)
	to <- prometheus.MustNewConstSummary(t.duration, uint64(total+of.Connections), of.Duration.Seconds(), nil, id)
	for code, n := range of.Errors {
		count(t.errors, n, string(code))
	}
}
