// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/tls"
	"sync"
)

const (
	ticketsPerServer = 4
	maxServers       = 64
)

// ticketCache is a tls.ClientSessionCache that keeps a few tickets of each server. crypto/tls
// discards a ticket when the handshake that used it fails, even when the connection was cut or the
// dial was cancelled: that happens to all clients at once when a server restarts, and should not
// cost full handshakes. A ticket that the server rejects is used up after a few failures.
type ticketCache struct {
	mu       sync.Mutex
	byServer map[string][]*tls.ClientSessionState // oldest first
}

func newTicketCache() *ticketCache {
	return &ticketCache{byServer: map[string][]*tls.ClientSessionState{}}
}

// Get returns the newest ticket.
func (t *ticketCache) Get(server string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.byServer[server]
	if len(kept) == 0 {
		return nil, false
	}
	return kept[len(kept)-1], true
}

// Put adds a ticket; nil removes the newest.
func (t *ticketCache) Put(server string, s *tls.ClientSessionState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.byServer[server]
	switch {
	case s == nil && len(kept) > 1:
		t.byServer[server] = kept[:len(kept)-1]
		return
	case s == nil:
		delete(t.byServer, server)
		return
	case kept == nil && len(t.byServer) >= maxServers:
		clear(t.byServer)
	}
	if len(kept) >= ticketsPerServer {
		kept = kept[1:]
	}
	t.byServer[server] = append(kept, s)
}

// clear removes all tickets.
func (t *ticketCache) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.byServer)
}
