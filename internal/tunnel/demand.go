// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync/atomic"
	"time"
)

// How a session's number of connections follows its traffic. A connection is busy for busyTime
// after it has moved bulkMark bytes in one direction within bulkTime, or slowMark bytes of large
// frames in every slowTime for at least slowTime, or after the write of a large frame took
// slowWrite. The second rule lets the reading side detect a slow connection that is full.
// Connections that are not busy cost no timer.
const (
	bulkMark  = 1 << 20
	bulkTime  = 250 * time.Millisecond
	slowMark  = 64 << 10
	slowTime  = time.Second
	largePart = 4 << 10               // a larger read or write is part of a large frame
	slowWrite = 10 * time.Millisecond // 50 Mbit/s
	busyTime  = time.Second

	grownConnections = 8                // the most connections of a growing session
	lossyConnections = maxConnections   // where packets are lost: each loss slows its connection down
	desireTime       = time.Minute      // how long a session keeps its desired number after it was last busy
	idleTime         = 30 * time.Second // without a stream, until a surplus connection is closed
	shrinkInterval   = 5 * time.Second  // how often a grown session looks for surplus connections
)

// desiredFor returns how many connections a session with this many busy ones should have; 0 = no
// opinion. It keeps some in reserve, because streams that begin together are assigned before it is
// known which of them carry bulk.
func desiredFor(busy int, lossy bool) int {
	switch {
	case busy == 0:
		return 0
	case lossy:
		return lossyConnections
	default:
		return min(2*busy+2, grownConnections)
	}
}

// bulkDetector distinguishes bulk transfer from small messages in one direction of a connection. It
// is not safe for concurrent use.
type bulkDetector struct {
	bytes int
	since time.Time

	largeBytes   int       // bytes of large frames since lastSlowMark
	lastSlowMark time.Time // time of the last slowMark bytes of largeBytes
	slowSince    time.Time // start of the time in which each slowMark took at most slowTime
}

// add counts n bytes of one read or write, and reports whether the connection carries bulk.
func (g *bulkDetector) add(n int) bool {
	bulk := false
	if g.bytes += n; g.bytes >= bulkMark {
		now := time.Now()
		bulk = now.Sub(g.since) < bulkTime
		g.bytes, g.since = 0, now
	}
	if n > largePart {
		g.largeBytes += n
	}
	if g.largeBytes < slowMark {
		return bulk
	}
	now := time.Now()
	if now.Sub(g.lastSlowMark) > slowTime {
		g.slowSince = now
	}
	g.largeBytes, g.lastSlowMark = 0, now
	return bulk || now.Sub(g.slowSince) >= slowTime
}

// busyUntil is the time until which a connection counts as busy.
type busyUntil struct{ unixNano atomic.Int64 }

// set marks the connection as busy, and reports whether that is news, which is at most twice within
// busyTime.
func (b *busyUntil) set(now time.Time) bool {
	if b.unixNano.Load() > now.Add(busyTime/2).UnixNano() {
		return false
	}
	b.unixNano.Store(now.Add(busyTime).UnixNano())
	return true
}

func (b *busyUntil) isBusy(now time.Time) bool { return b.unixNano.Load() > now.UnixNano() }

// desiredConns is the number of connections that the traffic asks for. The session's mutex guards
// it.
type desiredConns struct {
	number int
	at     time.Time
}

// update replaces the number unless a larger one is still valid. It reports whether the change
// matters to the session.
func (w *desiredConns) update(number int, now time.Time) bool {
	age := now.Sub(w.at)
	if number < w.number && age < desireTime || number == 0 {
		return false
	}
	if number == w.number && age < desireTime/3 {
		return false
	}
	w.number, w.at = number, now
	return true
}

// current returns the number that is still valid, or 0.
func (w *desiredConns) current(now time.Time) int {
	if now.Sub(w.at) >= desireTime {
		return 0
	}
	return w.number
}

// updateDesiredConns recomputes the desired number because a connection has become busy. It is on
// the data path and does not block.
func (s *Session) updateDesiredConns(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	busy, lossy := 0, false
	for _, l := range s.links.active {
		if l.conn.busy.isBusy(now) {
			busy++
			lossy = l.conn.isLossy() || lossy
		}
	}
	want := desiredFor(busy, lossy)
	if !s.desired.update(want, now) {
		return
	}
	if s.legs != nil {
		wake(s.legs.connsChanged)
		return
	}
	// ends with the session, or within controlTimeout
	go func() { _ = s.sendMessage(anyLink, &message{Type: typeConnections, Connections: want}) }()
}
