// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clientlimit

import (
	"net/netip"
	"sync"
)

// Conns limits how many connections each client has at a time. It is safe for concurrent use.
type Conns struct {
	max int

	mu      sync.Mutex
	clients map[netip.Prefix]*connCount // only of clients with connections
}

type connCount struct {
	live    int
	refused bool // Acquire has refused a connection since the client had none
}

// NewConns returns a limiter that allows each client at most so many connections.
func NewConns(max int) *Conns { return &Conns{max: max, clients: make(map[netip.Prefix]*connCount)} }

// Acquire counts a connection of the client, unless the client has as many as it may. It reports
// whether the connection was counted and, if not, whether this is the client's first refusal since
// it had no connection, which is the one to log. Each counted connection needs a Release.
func (c *Conns) Acquire(client netip.Prefix) (ok, firstRefusal bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.clients[client]
	if n == nil {
		n = &connCount{}
		c.clients[client] = n
	}
	if n.live >= c.max {
		firstRefusal = !n.refused
		n.refused = true
		return false, firstRefusal
	}
	n.live++
	return true, false
}

// Release ends the count of one connection that Acquire has counted for the client.
func (c *Conns) Release(client netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.clients[client]
	if n.live--; n.live == 0 {
		delete(c.clients, client)
	}
}
