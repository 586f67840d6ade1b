// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clientlimit

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxClients is how many clients a Rate remembers for certain; it may remember as many more.
const maxClients = 10_000

// Rate limits how often each client does something, with a token bucket for each. Its memory is
// bounded: the buckets of clients that were not seen lately are dropped. It is safe for concurrent
// use.
type Rate struct {
	perSecond rate.Limit
	burst     int

	mu           sync.Mutex
	recent, past map[netip.Prefix]*rate.Limiter // past is dropped when recent is full
}

// NewRate returns a limiter that allows each client burst steps at once, and so many per second
// after that.
func NewRate(perSecond rate.Limit, burst int) *Rate {
	return &Rate{perSecond: perSecond, burst: burst, recent: make(map[netip.Prefix]*rate.Limiter)}
}

// Allow takes a token of the address's client and reports whether there was one.
func (r *Rate) Allow(a netip.Addr, now time.Time) bool { return r.bucket(a).AllowN(now, 1) }

// Wait returns how long it takes until Allow returns true, 0 if it would now. It takes no token.
func (r *Rate) Wait(a netip.Addr, now time.Time) time.Duration {
	missing := 1 - r.bucket(a).TokensAt(now)
	return time.Duration(max(missing, 0) / float64(r.perSecond) * float64(time.Second))
}

func (r *Rate) bucket(a netip.Addr) *rate.Limiter {
	client := Key(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.recent[client]
	if b == nil {
		if b = r.past[client]; b == nil {
			b = rate.NewLimiter(r.perSecond, r.burst)
		}
		if len(r.recent) >= maxClients {
			r.past, r.recent = r.recent, make(map[netip.Prefix]*rate.Limiter)
		}
		r.recent[client] = b
	}
	return b
}
