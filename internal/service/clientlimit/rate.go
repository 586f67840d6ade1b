// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clientlimit

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxKeys is how many keys Buckets remember for certain; they may remember as many more.
const maxKeys = 10_000

// Buckets limit how often something happens for each key, with a token bucket for each. Their memory
// is bounded: the buckets of keys that were not seen lately are dropped. They are safe for concurrent
// use.
type Buckets[K comparable] struct {
	perSecond rate.Limit
	burst     int

	mu           sync.Mutex
	recent, past map[K]*rate.Limiter // past is dropped when recent is full
}

// NewBuckets returns a limiter that allows burst steps at once for each key, and so many per second
// after that.
func NewBuckets[K comparable](perSecond rate.Limit, burst int) *Buckets[K] {
	return &Buckets[K]{perSecond: perSecond, burst: burst, recent: make(map[K]*rate.Limiter)}
}

// Allow takes a token of the key and reports whether there was one.
func (r *Buckets[K]) Allow(key K, now time.Time) bool { return r.bucket(key).AllowN(now, 1) }

// Wait returns how long it takes until Allow returns true, 0 if it would now. It takes no token.
func (r *Buckets[K]) Wait(key K, now time.Time) time.Duration {
	missing := 1 - r.bucket(key).TokensAt(now)
	return time.Duration(max(missing, 0) / float64(r.perSecond) * float64(time.Second))
}

func (r *Buckets[K]) bucket(key K) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.recent[key]
	if b == nil {
		if b = r.past[key]; b == nil {
			b = rate.NewLimiter(r.perSecond, r.burst)
		}
		if len(r.recent) >= maxKeys {
			r.past, r.recent = r.recent, make(map[K]*rate.Limiter)
		}
		r.recent[key] = b
	}
	return b
}

// Rate is Buckets for the clients of addresses.
type Rate struct{ buckets *Buckets[netip.Prefix] }

// NewRate returns a limiter that allows each client burst steps at once, and so many per second
// after that.
func NewRate(perSecond rate.Limit, burst int) *Rate {
	return &Rate{NewBuckets[netip.Prefix](perSecond, burst)}
}

// Allow takes a token of the address's client and reports whether there was one.
func (r *Rate) Allow(a netip.Addr, now time.Time) bool { return r.buckets.Allow(Key(a), now) }

// Wait returns how long it takes until Allow returns true, 0 if it would now. It takes no token.
func (r *Rate) Wait(a netip.Addr, now time.Time) time.Duration { return r.buckets.Wait(Key(a), now) }

// Key returns the client of an address: the IPv4 address (also of an IPv4-mapped IPv6 address) as a
// /32, or the /64 of an IPv6 address without its zone. The key of an invalid address is the zero
// Prefix, so that all callers without an address are one client.
func Key(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
