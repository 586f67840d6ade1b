// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
)

// maxUnauthenticated is how many connections a client may have that have not shown a credential:
// half of maxHandshakes, so that one client alone cannot keep the others out. Agents, operators and
// forwarders that are refused retry a moment later, with jitter.
const maxUnauthenticated = 256

// unauthenticatedLimiter limits how many connections without a credential each client has. It is
// safe for concurrent use.
type unauthenticatedLimiter struct {
	max    int
	counts *clientlimit.Conns
	log    *slog.Logger

	refused atomic.Int64 // connections

	mu      sync.Mutex
	clients map[net.Conn]netip.Prefix // networks of the counted connections
}

func newUnauthenticatedLimiter(max int, log *slog.Logger) *unauthenticatedLimiter {
	return &unauthenticatedLimiter{max: max, counts: clientlimit.NewConns(max), log: log,
		clients: make(map[net.Conn]netip.Prefix)}
}

// add counts a new connection and reports whether its client may have it. It logs a client's first
// refusal since the client had no connection.
func (u *unauthenticatedLimiter) add(c net.Conn) bool {
	remote, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // connections without an IP address are one client
	client := clientlimit.Key(remote.Addr())
	ok, firstRefusal := u.counts.Acquire(client)
	if !ok {
		u.refused.Add(1)
		if firstRefusal {
			u.log.Warn("connections are closed: the client has too many that have not shown a credential",
				"client", client, "limit", u.max)
		}
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.clients[c] = client
	return true
}

// refusals returns how many connections add has refused.
func (u *unauthenticatedLimiter) refusals() int64 { return u.refused.Load() }

// remove ends the count of a connection that has shown a credential or has ended. A second call for
// the same connection does nothing.
func (u *unauthenticatedLimiter) remove(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if client, counted := u.clients[c]; counted {
		delete(u.clients, c)
		u.counts.Release(client)
	}
}
