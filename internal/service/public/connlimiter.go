// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"log/slog"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
)

// connLimiter limits the live connections, in total and per client, and counts them.
type connLimiter struct {
	max, maxPerClient int
	perClient         *clientlimit.Conns
	log               *slog.Logger

	mu         sync.Mutex
	conns      map[*conn]func() // ends of the count for a client; nil = not counted for one
	fullLogged bool             // fullLogged is set once a refusal was logged since there was room.
	closed     bool
	stats      Stats
}

// Stats count the connections of the public listeners.
type Stats struct {
	Live            int   // connections that are open now
	Accepted        int64 // connections that were let in, with those of the last two counts
	OverLimit       int64 // connections closed at once, as all clients had too many
	OverClientLimit int64 // connections closed as their client had too many
	HandshakeFailed int64 // connections that ended in their TLS handshake, or before
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	l := s.conns
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := l.stats
	stats.Live = len(l.conns)
	return stats
}

func newConnLimiter(max, maxPerClient int, log *slog.Logger) *connLimiter {
	return &connLimiter{max: max, maxPerClient: maxPerClient, perClient: clientlimit.NewConns(maxPerClient), log: log,
		conns: make(map[*conn]func())}
}

// countFailedHandshake counts a connection that ended before its first request.
func (l *connLimiter) countFailedHandshake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.HandshakeFailed++
}

// add counts a connection and reports whether there is room for it.
func (l *connLimiter) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.conns) >= l.max {
		if !l.closed && !l.fullLogged {
			l.fullLogged = true
			l.log.Warn("public connections are closed: there are too many", "limit", l.max)
		}
		l.stats.OverLimit++
		return false
	}
	l.stats.Accepted++
	l.conns[c] = nil
	return true
}

// addForClient counts a connection for its client, once that is known, and reports whether the
// client may have it. A trusted proxy has many clients: its connections count only for the client
// that a PROXY header names.
func (l *connLimiter) addForClient(c *conn) bool {
	if c.trusted && c.client == c.peer {
		return true
	}
	client := clientlimit.Key(c.client.Addr())
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, live := l.conns[c]; !live {
		return false
	}
	ok, firstRefusal := l.perClient.Acquire(client)
	if !ok {
		if firstRefusal {
			l.log.Warn("public connections are closed: a client has too many", "client", client, "limit",
				l.maxPerClient)
		}
		l.stats.OverClientLimit++
		return false
	}
	l.conns[c] = func() { l.perClient.Release(client) }
	return true
}

func (l *connLimiter) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if release := l.conns[c]; release != nil {
		release()
	}
	delete(l.conns, c)
	l.fullLogged = false
}

func (l *connLimiter) live() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// closeAll closes the live connections and refuses further ones.
func (l *connLimiter) closeAll() {
	l.mu.Lock()
	l.closed = true
	all := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}
