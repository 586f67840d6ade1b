// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	watchInterval = 250 * time.Millisecond
	// A peer is unresponsive after so many intervals without a frame since a ping: at least
	// minUnanswered, and three times as long as the slowest of the last round trips, up to
	// maxUnanswered.
	minUnanswered = 4
	maxUnanswered = 12
	maxCalm       = 8                     // intervals without a frame between two pings while the same calls wait
	slowWrite     = 50 * time.Millisecond // a write that took so long has waited for the peer to take bytes
)

// What of Session.heard is whose.
const (
	heardByKeepAlive = 1 << iota
	heardByWatch
)

// watch finds out within about a second and a half that the peer does not answer, while calls wait
// for it. It counts intervals and not time: a process that was stopped itself looks again before it
// judges its peer. While no call waits it costs nothing.
type watch struct {
	unresponsive atomic.Bool

	mu      sync.Mutex // guards what follows
	calls   map[*watchedCall]struct{}
	timer   *time.Timer
	armed   bool
	ended   bool      // the session has
	pinged  bool      // and no frame has come since
	quiet   int       // intervals without a frame, since the ping if pinged
	calm    int       // intervals without a frame before the next ping
	limit   int       // intervals without a frame after the ping
	unheard time.Time // when the peer that is unresponsive was pinged
}

type watchedCall struct{ f func() }

// OnUnresponsive calls f once, unless stop is called before, when the peer has not answered a ping
// for a second (three where round trips are slow) and sends nothing else either; at once when that
// is known already. f must not block. The session goes on: it ends by Config.KeepAlive and
// Config.Timeout.
func (s *Session) OnUnresponsive(f func()) (stop func()) {
	w := &s.watch
	w.mu.Lock()
	if w.unresponsive.Load() {
		w.mu.Unlock()
		f()
		return func() {}
	}
	c := &watchedCall{f}
	if w.calls == nil {
		w.calls = make(map[*watchedCall]struct{})
	}
	w.calls[c] = struct{}{}
	w.calm = 1
	if !w.armed { // what came before does not count
		s.heard.And(^uint32(heardByWatch))
		w.quiet = 0
	}
	s.arm()
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.calls, c)
		w.mu.Unlock()
	}
}

// Unresponsive returns since when a ping has had no answer, where that is so long that the peer
// counts as unresponsive.
func (s *Session) Unresponsive() (since time.Time, yes bool) {
	w := &s.watch
	if !w.unresponsive.Load() {
		return time.Time{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unheard, w.unresponsive.Load()
}

// Probe pings the peer, and finds out whether it is unresponsive although no call waits.
func (s *Session) Probe() {
	w := &s.watch
	w.mu.Lock()
	if w.pinged || w.unresponsive.Load() {
		w.mu.Unlock()
		return
	}
	s.heard.And(^uint32(heardByWatch))
	s.expectAnswer()
	s.arm()
	w.mu.Unlock()
	s.sendPing()
}

// expectAnswer begins to count intervals from a ping that is about to be sent. The caller holds
// watch.mu.
func (s *Session) expectAnswer() {
	w := &s.watch
	slow := s.ping.slowest(maxUnanswered * watchInterval / 3)
	w.pinged, w.quiet, w.unheard = true, 0, time.Now()
	w.limit = max(minUnanswered, int((3*slow+watchInterval-1)/watchInterval))
}

// arm starts the timer unless it runs. The caller holds watch.mu.
func (s *Session) arm() {
	w := &s.watch
	switch {
	case w.armed || w.ended:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(watchInterval, s.watchPeer)
	default:
		w.timer.Reset(watchInterval)
	}
	w.armed = true
}

// watchPeer is called after each interval while calls wait, or a ping does.
func (s *Session) watchPeer() {
	w := &s.watch
	w.mu.Lock()
	w.armed = false
	w.quiet++
	if s.heard.And(^uint32(heardByWatch))&heardByWatch != 0 {
		if w.pinged { // only the ping was answered, or what came is not worth a ping a second
			w.calm = min(2*w.calm, maxCalm)
		}
		w.pinged, w.quiet = false, 0
	}
	switch {
	case len(w.calls) == 0 && !w.pinged:
		w.mu.Unlock()
	case w.pinged && w.quiet >= w.limit:
		s.isUnresponsive()
	case !w.pinged && w.quiet >= w.calm:
		s.expectAnswer()
		s.arm()
		w.mu.Unlock()
		s.sendPing()
		if s.cfg.OnProbe != nil {
			s.cfg.OnProbe()
		}
	default:
		s.arm()
		w.mu.Unlock()
	}
}

// isUnresponsive tells those who wait for the peer. It unlocks watch.mu.
func (s *Session) isUnresponsive() {
	w := &s.watch
	calls := w.calls
	w.calls, w.pinged = nil, false
	w.unresponsive.Store(true)
	w.mu.Unlock()
	if s.heard.Load()&heardByWatch != 0 { // just now
		s.isResponsive()
	}
	s.responsivenessChanged()
	for c := range calls {
		c.f()
	}
}

// isResponsive takes a frame of a peer that was unresponsive. It is called by who reads.
func (s *Session) isResponsive() {
	s.watch.mu.Lock()
	was := s.watch.unresponsive.Swap(false)
	s.watch.mu.Unlock()
	if was {
		s.responsivenessChanged()
	}
}

func (s *Session) responsivenessChanged() {
	if s.cfg.OnResponsiveness != nil {
		s.cfg.OnResponsiveness()
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.calls = true, nil
	if w.timer != nil {
		w.timer.Stop()
	}
}
