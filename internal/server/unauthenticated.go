// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
)

// maxStrangers is how many connections a client may have that have not shown a credential: half of
// the handshakes that are done at a time, so that one client alone cannot keep the others out.
// Clients of ours come back a moment later, with jitter.
const maxStrangers = 256

// strangers counts the connections that have not shown a credential, by client: an IPv4 address, or
// a /64 of IPv6, which is what one gets.
type strangers struct {
	most int
	log  *slog.Logger

	mu    sync.Mutex
	count map[netip.Prefix]int
	of    map[net.Conn]netip.Prefix
	told  map[netip.Prefix]bool // a client's first refusal since it had none
}

func newStrangers(most int, log *slog.Logger) *strangers {
	return &strangers{most: most, log: log, count: make(map[netip.Prefix]int), of: make(map[net.Conn]netip.Prefix),
		told: make(map[netip.Prefix]bool)}
}

// enter counts a connection and says whether there is room for it.
func (s *strangers) enter(c net.Conn) bool {
	client := clientOf(c.RemoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[client] >= s.most {
		if !s.told[client] {
			s.told[client] = true
			s.log.Warn("connections are closed: the client has too many that have not shown a credential", "client", client,
				"limit", s.most)
		}
		return false
	}
	s.count[client]++
	s.of[c] = client
	return true
}

// leave stops counting a connection: it has shown a credential, or has ended. Once is enough.
func (s *strangers) leave(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client, counted := s.of[c]
	if !counted {
		return
	}
	delete(s.of, c)
	if s.count[client]--; s.count[client] == 0 {
		delete(s.count, client)
		delete(s.told, client)
	}
}

func clientOf(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := at.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	client, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return client
}
