// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync/atomic"
	"time"
)

// How a session's number of connections follows its traffic. A connection is busy for busyTime
// after it has moved bulkMark bytes in one direction within bulkTime, or slowMark bytes of large
// frames in every slowTime for slowTime at least, or after a large frame took slowWrite to be
// written. The second is how who reads knows a slow connection that is full. Nobody looks at
// connections that are not busy: what is idle costs no timer.
const (
	bulkMark  = 1 << 20
	bulkTime  = 250 * time.Millisecond
	slowMark  = 64 << 10
	slowTime  = time.Second
	largePart = 4 << 10               // what is read or written in one go of a large frame is more
	slowWrite = 10 * time.Millisecond // 50 Mbit/s
	busyTime  = time.Second

	grownConnections = 8                // to which a session grows
	lossyConnections = maxConnections   // likewise, where packets are lost and each loss slows its connection down
	wishTime         = time.Minute      // how long a wish for more connections holds after the last busy moment
	idleTime         = 30 * time.Second // without a stream, until a connection that nobody wishes for is closed
	shrinkInterval   = 5 * time.Second  // how often a session that has grown looks for such a connection
)

// demand is the number of connections that a session with so many busy ones should have; 0 is no
// wish. Two more than are busy would do for the next stream; there are some in reserve, because
// streams that begin together are placed before it shows which of them are bulk.
func demand(busy int, lossy bool) int {
	switch {
	case busy == 0:
		return 0
	case lossy:
		return lossyConnections
	default:
		return min(2*busy+2, grownConnections)
	}
}

// gauge tells bulk from small talk in one direction of a connection. It is for one goroutine.
type gauge struct {
	bytes int
	since time.Time

	large   int       // bytes of large frames since last
	last    time.Time // when slowMark of them were complete
	lasting time.Time // since when that has taken no longer than slowTime each time
}

// add counts n bytes that came or went in one go, and reports whether the connection is busy with
// bulk.
func (g *gauge) add(n int) bool {
	bulk := false
	if g.bytes += n; g.bytes >= bulkMark {
		now := time.Now()
		bulk = now.Sub(g.since) < bulkTime
		g.bytes, g.since = 0, now
	}
	if n > largePart {
		g.large += n
	}
	if g.large < slowMark {
		return bulk
	}
	now := time.Now()
	if now.Sub(g.last) > slowTime {
		g.lasting = now
	}
	g.large, g.last = 0, now
	return bulk || now.Sub(g.lasting) >= slowTime
}

// busyMark remembers until when a connection counts as busy.
type busyMark struct{ until atomic.Int64 } // Unix nanoseconds

// set marks the connection and reports whether that is news, which it is twice within busyTime at
// most.
func (b *busyMark) set(now time.Time) bool {
	if b.until.Load() > now.Add(busyTime/2).UnixNano() {
		return false
	}
	b.until.Store(now.Add(busyTime).UnixNano())
	return true
}

func (b *busyMark) at(now time.Time) bool { return b.until.Load() > now.UnixNano() }

// load is what a connection carries, for the choice of one for a new stream.
type load struct {
	unresponsive    bool
	busy            bool
	queued, streams int64 // bytes; half streams
}

// load counts a connection that is busy without having a stream, because its last one has just
// ended, as more than an idle one and less than one with a stream.
func (l *link) load(now time.Time) load {
	_, unresponsive := l.mux.Unresponsive()
	busy, streams := l.conn.busy.at(now), l.streams.Load()
	if busy && streams == 0 {
		return load{unresponsive, false, l.mux.Queued(), 1}
	}
	return load{unresponsive, busy, l.mux.Queued(), 2 * streams}
}

func (a load) less(b load) bool {
	switch {
	case a.unresponsive != b.unresponsive:
		return b.unresponsive
	case a.busy != b.busy:
		return b.busy
	case a.queued != b.queued:
		return a.queued < b.queued
	default:
		return a.streams < b.streams
	}
}

// wish is how many connections the traffic asks for; the session's mutex guards it.
type wish struct {
	connections int
	at          time.Time
}

// renew takes a wish over that is not smaller than the one that holds. It reports whether that
// changes anything worth telling.
func (w *wish) renew(connections int, now time.Time) bool {
	age := now.Sub(w.at)
	if connections < w.connections && age < wishTime || connections == 0 {
		return false
	}
	if connections == w.connections && age < wishTime/3 {
		return false
	}
	w.connections, w.at = connections, now
	return true
}

// now returns the wish that holds, or 0.
func (w *wish) now(now time.Time) int {
	if now.Sub(w.at) >= wishTime {
		return 0
	}
	return w.connections
}

// becameBusy looks at the session's connections because one of them has become busy. It is called
// on the data path: it does not block.
func (s *Session) becameBusy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	busy, lossy := 0, false
	for _, l := range s.links {
		if l.conn.busy.at(now) {
			busy++
			lossy = l.losing() || lossy
		}
	}
	want := demand(busy, lossy)
	if !s.wish.renew(want, now) {
		return
	}
	if s.client {
		s.nudge()
		return
	}
	// ends with the session, or within controlTimeout
	go func() { _ = s.tell(&message{Type: typeConnections, Connections: want}) }()
}

// wished takes the server's wish.
func (s *Session) wished(connections int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wish.renew(min(connections, maxConnections), time.Now()) {
		s.nudge()
	}
}

// nudge has the client look at its number of connections.
func (s *Session) nudge() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}
