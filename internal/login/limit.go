// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxClients is how many clients a limiter remembers for certain; it may remember as many more.
const maxClients = 10_000

// limiter limits how often each client takes a step. A client is an IPv4 address or an IPv6 /64. It
// is safe for concurrent use.
type limiter struct {
	rate  rate.Limit
	burst int

	mu           sync.Mutex
	recent, past map[netip.Prefix]*rate.Limiter // past ones are forgotten when the recent ones are too many
}

func newLimiter(r rate.Limit, burst int) *limiter {
	return &limiter{rate: r, burst: burst, recent: make(map[netip.Prefix]*rate.Limiter)}
}

// allow counts one step of the client and reports whether it may take it. Clients without an
// address share one count.
func (l *limiter) allow(ip netip.Addr, now time.Time) bool { return l.of(ip).AllowN(now, 1) }

// exhausted reports whether allow would refuse, and counts nothing.
func (l *limiter) exhausted(ip netip.Addr, now time.Time) bool { return l.of(ip).TokensAt(now) < 1 }

func (l *limiter) of(ip netip.Addr) *rate.Limiter {
	client := clientOf(ip)
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.recent[client]
	if of == nil {
		if of = l.past[client]; of == nil {
			of = rate.NewLimiter(l.rate, l.burst)
		}
		if len(l.recent) >= maxClients {
			l.past, l.recent = l.recent, make(map[netip.Prefix]*rate.Limiter)
		}
		l.recent[client] = of
	}
	return of
}

func clientOf(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
