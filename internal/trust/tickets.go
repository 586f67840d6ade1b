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

// tickets is a tls.ClientSessionCache that keeps a few tickets of each server. crypto/tls throws a
// ticket away when the handshake that used it fails, also when it fails because the connection was
// cut or the dial was cancelled: that happens to everybody at once when a server restarts, and is
// no reason to come back with a full handshake. With a ticket that is really bad, each failure
// takes one away until none is left.
type tickets struct {
	mu       sync.Mutex
	byServer map[string][]*tls.ClientSessionState // oldest first
}

func newTickets() *tickets { return &tickets{byServer: map[string][]*tls.ClientSessionState{}} }

// Get returns the newest ticket.
func (t *tickets) Get(server string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.byServer[server]
	if len(kept) == 0 {
		return nil, false
	}
	return kept[len(kept)-1], true
}

// Put adds a ticket; nil takes the newest away.
func (t *tickets) Put(server string, s *tls.ClientSessionState) {
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
