// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"log/slog"
	"net/netip"
	"sync"
)

// census counts live connections, of all and of each client: an IPv4 address, or a /64 of IPv6,
// which is what one gets.
type census struct {
	most, mostPerClient int
	log                 *slog.Logger

	mu     sync.Mutex
	conns  map[*conn]netip.Prefix // the client it is counted for; the zero Prefix = none
	count  map[netip.Prefix]int
	full   bool                  // the first refusal since there was room has been told
	told   map[netip.Prefix]bool // the same of a client
	closed bool
	stats  Stats
}

// Stats count the connections of the public listeners.
type Stats struct {
	Live            int   // now
	Accepted        int64 // that were let in; the rest is counted besides
	OverLimit       int64 // closed because there were too many of all clients
	OverClientLimit int64 // closed because a client had too many
	HandshakeFailed int64 // ended in their TLS handshake, or before
}

// Stats returns the counts.
func (e *Server) Stats() Stats {
	n := e.conns
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stats
	s.Live = len(n.conns)
	return s
}

// unshaken counts a connection that did not get to its first request.
func (n *census) unshaken() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.HandshakeFailed++
}

func newCensus(most, mostPerClient int, log *slog.Logger) *census {
	return &census{most: most, mostPerClient: mostPerClient, log: log, conns: make(map[*conn]netip.Prefix),
		count: make(map[netip.Prefix]int), told: make(map[netip.Prefix]bool)}
}

// enter counts a connection and says whether there is room for it.
func (n *census) enter(c *conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || len(n.conns) >= n.most {
		if !n.closed && !n.full {
			n.full = true
			n.log.Warn("public connections are closed: there are too many", "limit", n.most)
		}
		n.stats.OverLimit++
		return false
	}
	n.stats.Accepted++
	n.conns[c] = netip.Prefix{}
	c.gone = func() { n.leave(c) }
	return true
}

// admit counts a connection for its client, when that is known, and says whether it may have it.
// Proxies have many clients, whose connections count for them only where a header names them.
func (n *census) admit(c *conn) bool {
	if c.trusted && c.client == c.peer {
		return true
	}
	client := clientOf(c.client.Addr())
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, live := n.conns[c]; !live {
		return false
	}
	if n.count[client] >= n.mostPerClient {
		if !n.told[client] {
			n.told[client] = true
			n.log.Warn("public connections are closed: a client has too many", "client", client, "limit", n.mostPerClient)
		}
		n.stats.OverClientLimit++
		return false
	}
	n.count[client]++
	n.conns[c] = client
	return true
}

func (n *census) leave(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	client := n.conns[c]
	delete(n.conns, c)
	n.full = false
	if !client.IsValid() {
		return
	}
	if n.count[client]--; n.count[client] == 0 {
		delete(n.count, client)
		delete(n.told, client)
	}
}

func (n *census) live() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// closeAll closes what lives and lets nothing more in.
func (n *census) closeAll() {
	n.mu.Lock()
	n.closed = true
	all := make([]*conn, 0, len(n.conns))
	for c := range n.conns {
		all = append(all, c)
	}
	n.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

func clientOf(a netip.Addr) netip.Prefix {
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
