// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	maxDenials         = 64          // denials that are kept
	denialLogInterval  = time.Minute // between two log lines about the same
	denialLogRate      = 5           // log lines about different ones a second
	denialLogRateBurst = 20
)

// Denial is what forwarders denied, as /status shows it: calls of one URL by one caller for one
// reason.
type Denial struct {
	Hostname string    `json:"hostname"`
	Port     int       `json:"port"`   // port of the URL
	Caller   string    `json:"caller"` // NAMESPACE/POD, or the address of an unknown caller
	Reason   string    `json:"reason"` // label of fairlead_forwarder_access_denied_total
	Count    int64     `json:"count"`
	LastTime time.Time `json:"last_time"`
}

type denialKey struct {
	hostname string
	port     int
	caller   string
	reason   string
}

type denialEntry struct {
	count        int64
	last, logged time.Time
}

// denials stores the latest denials and logs them. Its methods are safe for concurrent use.
type denials struct {
	log   *slog.Logger
	limit *rate.Limiter // limit of log lines

	mu      sync.Mutex
	entries map[denialKey]*denialEntry
}

func newDenials(log *slog.Logger) denials {
	return denials{log: log, limit: rate.NewLimiter(denialLogRate, denialLogRateBurst),
		entries: map[denialKey]*denialEntry{}}
}

// add records a denial. Of more than maxDenials different ones the oldest is dropped.
func (d *denials) add(k denialKey, now time.Time) {
	d.mu.Lock()
	e := d.entries[k]
	if e == nil {
		if len(d.entries) >= maxDenials {
			d.dropOldest()
		}
		e = &denialEntry{}
		d.entries[k] = e
	}
	e.count++
	e.last = now
	count, logs := e.count, now.Sub(e.logged) >= denialLogInterval && d.limit.AllowN(now, 1)
	if logs {
		e.logged = now
	}
	d.mu.Unlock()
	if logs {
		d.log.Warn("call denied by EndpointAccess", "hostname", k.hostname, "port", k.port, "caller", k.caller,
			"reason", k.reason, "count", count)
	}
}

// dropOldest drops the entry that was denied longest ago; mu must be held.
func (d *denials) dropOldest() {
	var oldest denialKey
	var last time.Time
	for k, e := range d.entries {
		if last.IsZero() || e.last.Before(last) {
			oldest, last = k, e.last
		}
	}
	delete(d.entries, oldest)
}

// list returns the denials, latest first.
func (d *denials) list() []Denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Denial, 0, len(d.entries))
	for k, e := range d.entries {
		list = append(list, Denial{k.hostname, k.port, k.caller, k.reason, e.count,
			e.last.UTC().Truncate(time.Millisecond)})
	}
	slices.SortFunc(list, func(a, b Denial) int {
		return cmp.Or(b.LastTime.Compare(a.LastTime), cmp.Compare(a.Hostname, b.Hostname),
			cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
