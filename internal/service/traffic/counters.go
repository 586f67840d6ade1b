// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
)

// statusClientGone is the status of requests whose client left before the answer.
const statusClientGone = 499

// Counters are one object's counters since its first traffic. They are safe for concurrent use.
type Counters struct {
	Bytes edge.Traffic // bytes, counted while they are moved

	table           *Table
	accountID       string
	requests        [6]atomic.Int64 // by the hundreds of the status; at 0 the clients that left
	connections     atomic.Int64
	failed          atomic.Int64
	open            atomic.Int64
	durationNanos   atomic.Int64
	lastUsed        atomic.Int64 // in Unix nanoseconds
	latency         histogram    // latencies since the last step
	recent, failing atomic.Pointer[ring]

	mu     sync.Mutex
	errors map[account.Code]int64

	// guarded by Table.mu
	own  bool   // whether it has metrics of its own
	base Totals // what the metrics of the others have of it
	gone bool   // was dropped

	history history // guarded by Recorder.mu
}

// countersSize is about the memory of Counters and of their place in a table, in bytes.
const countersSize = 1200

// Totals are what Counters have counted.
type Totals struct {
	Requests          [6]int64 // by the hundreds of the status; at 0 the clients that left
	Connections       int64
	Failed            int64
	Open              int64
	BytesIn, BytesOut int64
	Duration          time.Duration
	Errors            map[account.Code]int64

	used bool // anything was added
}

// add adds o as often as times.
func (t *Totals) add(o *Totals, times int64) {
	for i := range t.Requests {
		t.Requests[i] += times * o.Requests[i]
	}
	t.Connections += times * o.Connections
	t.Failed += times * o.Failed
	t.Open += times * o.Open
	t.BytesIn += times * o.BytesIn
	t.BytesOut += times * o.BytesOut
	t.Duration += time.Duration(times) * o.Duration
	for code, n := range o.Errors {
		if t.Errors == nil {
			t.Errors = map[account.Code]int64{}
		}
		t.Errors[code] += times * n
	}
}

// clone returns a copy that shares nothing with t.
func (t *Totals) clone() Totals {
	copied := *t
	copied.Errors = maps.Clone(t.Errors)
	return copied
}

// totals returns what was counted so far.
func (c *Counters) totals(withErrors bool) (t Totals) {
	for i := range c.requests {
		t.Requests[i] = c.requests[i].Load()
	}
	t.Connections, t.Failed, t.Open = c.connections.Load(), c.failed.Load(), c.open.Load()
	t.Duration = time.Duration(c.durationNanos.Load())
	t.BytesIn, t.BytesOut = c.Bytes.Totals()
	if withErrors {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Errors = maps.Clone(c.errors)
	}
	return t
}

// failing reports whether a request or connection failed by its code and status.
func failing(code account.Code, status int) bool {
	return status >= 500 || status < 400 && code != "" && code.Status() >= 500
}

// finish counts a finished request or connection.
func (c *Counters) finish(s *edge.RequestRecord) {
	c.durationNanos.Add(int64(s.Duration))
	c.latency.add(s.Duration)
	c.lastUsed.Store(s.StartedAt.Add(s.Duration).UnixNano())
	if failing(s.Code, s.Status) {
		c.failed.Add(1)
	}
	switch class := s.Status / 100; {
	case s.Request == nil:
		c.connections.Add(1)
	case s.Status == statusClientGone || class >= len(c.requests):
		c.requests[0].Add(1)
	default:
		c.requests[class].Add(1)
	}
	if s.Code == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors == nil {
		c.errors = map[account.Code]int64{}
	}
	c.errors[s.Code]++
}

// takeStep returns what was counted since the last call. Recorder.mu must be held.
func (c *Counters) takeStep(step *counts) {
	now, last := c.totals(false), &c.history.counted
	*step = counts{}
	for i := range now.Requests {
		step.value[i] = uint64(now.Requests[i] - last.Requests[i])
	}
	step.value[countConnections] = uint64(now.Connections - last.Connections)
	step.value[countFailed] = uint64(now.Failed - last.Failed)
	step.value[countBytesIn] = uint64(now.BytesIn - last.BytesIn)
	step.value[countBytesOut] = uint64(now.BytesOut - last.BytesOut)
	step.value[countOpen] = uint64(max(now.Open, 0))
	c.latency.moveTo(step)
	c.history.counted = now
}
