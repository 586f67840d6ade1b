// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/edge"
)

// overflowLabel is the label of the objects beyond maxRows.
const overflowLabel = "other"

// trafficMetrics counts the traffic of each object of one kind (endpoints or backends). It has at
// most maxRows rows, so that clients cannot create series without limit; further objects are
// counted together as "other". It is safe for concurrent use.
type trafficMetrics struct {
	maxRows                                         int
	requests, errors, bytes, duration, open, served *prometheus.Desc

	mu    sync.RWMutex
	rows  map[string]*trafficCounters // by the object's id
	other trafficCounters
}

// trafficCounters is one object's counters.
type trafficCounters struct {
	accountID     string
	traffic       edge.Traffic
	requests      [6]atomic.Int64 // by the hundreds of the status; at 0 the clients that left
	connections   atomic.Int64
	open          atomic.Int64
	durationNanos atomic.Int64
	lastUsed      atomic.Int64 // in Unix nanoseconds

	mu     sync.Mutex
	errors map[account.Code]int64
}

func newTrafficMetrics(kind string, maxRows int) *trafficMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_server_"+kind+"_"+name,
			help+"; the ones beyond --metrics-series together as \"other\".", append([]string{kind}, labels...), nil)
	}
	return &trafficMetrics{
		maxRows: maxRows, rows: map[string]*trafficCounters{}, other: trafficCounters{},
		requests: desc("requests_total",
			"HTTP requests by "+kind+" and class of the status (gone: the client left first)", "class"),
		errors: desc("errors_total", "Requests and connections that got no answer of an upstream, by "+kind+
			" and code of docs/errors.md", "code"),
		bytes: desc("bytes_total", "Bytes of bodies and connections by "+kind+" and direction (in: from clients)",
			"direction"),
		duration: desc("duration_seconds", "Time from the begin to the end of requests and connections by "+kind),
		open:     desc("open", "Requests and connections under way by "+kind),
		served:   desc("connections_total", "Connections to tcp endpoints by "+kind),
	}
}

// counters returns the object's counters; beyond maxRows objects, those of the overflow.
func (t *trafficMetrics) counters(accountID, id string, now time.Time) *trafficCounters {
	t.mu.RLock()
	r := t.rows[id]
	t.mu.RUnlock()
	if r == nil {
		t.mu.Lock()
		if r = t.rows[id]; r == nil {
			if len(t.rows) >= t.maxRows {
				r = &t.other
			} else {
				r = &trafficCounters{accountID: accountID}
				t.rows[id] = r
			}
		}
		t.mu.Unlock()
	}
	r.lastUsed.Store(now.UnixNano())
	return r
}

// countFinished counts a finished request or connection.
func (r *trafficCounters) countFinished(s *edge.RequestRecord) {
	r.durationNanos.Add(int64(s.Duration))
	r.lastUsed.Store(s.StartedAt.Add(s.Duration).UnixNano())
	switch class := s.Status / 100; {
	case s.Request == nil:
		r.connections.Add(1)
	case s.Status == statusClientGone || class >= len(r.requests):
		r.requests[0].Add(1)
	default:
		r.requests[class].Add(1)
	}
	if s.Code == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.errors == nil {
		r.errors = map[account.Code]int64{}
	}
	r.errors[s.Code]++
}

// statusClientGone is the status of requests whose client left before the answer.
const statusClientGone = 499

// dropDeleted drops the rows of objects that no longer exist. It calls exists only for rows that
// were not used since before.
func (t *trafficMetrics) dropDeleted(
	ctx context.Context, before time.Time, exists func(ctx context.Context, accountID, id string) bool,
) {
	idle := map[string]string{}
	t.mu.RLock()
	for id, r := range t.rows {
		if r.lastUsed.Load() < before.UnixNano() && r.open.Load() == 0 {
			idle[id] = r.accountID
		}
	}
	t.mu.RUnlock()
	for id, accountID := range idle {
		if ctx.Err() == nil && !exists(ctx, accountID, id) {
			t.mu.Lock()
			if r := t.rows[id]; r.open.Load() == 0 {
				delete(t.rows, id)
			}
			t.mu.Unlock()
		}
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
	t.mu.RLock()
	rows := make(map[string]*trafficCounters, len(t.rows)+1)
	for id, r := range t.rows {
		rows[id] = r
	}
	t.mu.RUnlock()
	if t.other.lastUsed.Load() > 0 {
		rows[overflowLabel] = &t.other
	}
	for id, r := range rows {
		t.collect(to, id, r)
	}
}

func (t *trafficMetrics) collect(to chan<- prometheus.Metric, id string, r *trafficCounters) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{id}, labels...)...)
	}
	var total int64
	for class := range r.requests {
		n := r.requests[class].Load()
		total += n
		switch {
		case n == 0:
		case class == 0:
			count(t.requests, n, "gone")
		default:
			count(t.requests, n, strconv.Itoa(class)+"xx")
		}
	}
	served := r.connections.Load()
	if served > 0 {
		count(t.served, served)
	}
	in, out := r.traffic.Totals()
	count(t.bytes, in, "in")
	count(t.bytes, out, "out")
	to <- prometheus.MustNewConstMetric(t.open, prometheus.GaugeValue, float64(r.open.Load()), id)
	to <- prometheus.MustNewConstSummary(t.duration, uint64(total+served),
		time.Duration(r.durationNanos.Load()).Seconds(), nil, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	for code, n := range r.errors {
		count(t.errors, n, string(code))
	}
}
