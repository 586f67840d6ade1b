// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	monitorInterval = 250 * time.Millisecond
	// A peer is unresponsive after this many intervals without a frame since a ping: at least
	// minUnanswered, and three times the slowest recent round trip, up to maxUnanswered.
	minUnanswered = 4
	maxUnanswered = 12
	maxPingAfter  = 8                     // intervals without a frame between two pings while the same calls wait
	slowWrite     = 50 * time.Millisecond // a write that took longer has waited for the peer to take bytes
)

// The observers' bits of Session.activity.
const (
	keepAliveActivity = 1 << iota
	monitorActivity
)

// peerMonitor detects within about 1.5 s that the peer does not answer, while calls wait for it. It
// counts intervals instead of time, so that a process that was itself suspended checks again before
// it marks its peer as unresponsive. While no call waits it costs nothing.
type peerMonitor struct {
	unresponsive atomic.Bool

	mu                sync.Mutex // guards what follows
	waiting           map[*waitingCall]struct{}
	timer             *time.Timer
	timerRuns         bool
	stopped           bool      // the session has ended
	pinged            bool      // a ping was sent, and no frame has arrived since
	idleIntervals     int       // intervals without a frame; since the ping if pinged
	pingAfter         int       // intervals without a frame before the next ping
	unresponsiveAfter int       // intervals without a frame after the ping that make the peer unresponsive
	pingedAt          time.Time // when the last ping was sent
}

type waitingCall struct{ onUnresponsive func() }

// OnUnresponsive calls f once, unless stop is called before, when the peer has not answered a ping
// for a second (three where round trips are slow) and has sent nothing else; at once if that is
// already so. f must not block. The session continues: Config.KeepAlive and Config.Timeout end it.
func (s *Session) OnUnresponsive(f func()) (stop func()) {
	w := &s.monitor
	w.mu.Lock()
	if w.unresponsive.Load() {
		w.mu.Unlock()
		f()
		return func() {}
	}
	c := &waitingCall{f}
	if w.waiting == nil {
		w.waiting = make(map[*waitingCall]struct{})
	}
	w.waiting[c] = struct{}{}
	w.pingAfter = 1
	if !w.timerRuns { // earlier activity does not count
		s.activity.And(^uint32(monitorActivity))
		w.idleIntervals = 0
	}
	s.startMonitorTimer()
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.waiting, c)
		w.mu.Unlock()
	}
}

// Unresponsive reports whether the peer is unresponsive, and since when a ping has had no answer.
func (s *Session) Unresponsive() (since time.Time, yes bool) {
	w := &s.monitor
	if !w.unresponsive.Load() {
		return time.Time{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pingedAt, w.unresponsive.Load()
}

// Probe pings the peer to detect whether it is unresponsive although no call waits.
func (s *Session) Probe() {
	w := &s.monitor
	w.mu.Lock()
	if w.pinged || w.unresponsive.Load() {
		w.mu.Unlock()
		return
	}
	s.activity.And(^uint32(monitorActivity))
	s.startPingCount()
	s.startMonitorTimer()
	w.mu.Unlock()
	s.sendPing()
}

// startPingCount starts to count intervals from a ping that is about to be sent. monitor.mu must be
// held.
func (s *Session) startPingCount() {
	w := &s.monitor
	slow := s.ping.maxRTT(maxUnanswered * monitorInterval / 3)
	w.pinged, w.idleIntervals, w.pingedAt = true, 0, time.Now()
	w.unresponsiveAfter = max(minUnanswered, int((3*slow+monitorInterval-1)/monitorInterval))
}

// startMonitorTimer starts the timer unless it runs. monitor.mu must be held.
func (s *Session) startMonitorTimer() {
	w := &s.monitor
	switch {
	case w.timerRuns || w.stopped:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(monitorInterval, s.checkPeer)
	default:
		w.timer.Reset(monitorInterval)
	}
	w.timerRuns = true
}

// checkPeer is called after each interval while calls wait or a ping is unanswered.
func (s *Session) checkPeer() {
	w := &s.monitor
	w.mu.Lock()
	w.timerRuns = false
	w.idleIntervals++
	if s.activity.And(^uint32(monitorActivity))&monitorActivity != 0 {
		if w.pinged { // only the ping was answered, or the peer sends too little to be pinged every second
			w.pingAfter = min(2*w.pingAfter, maxPingAfter)
		}
		w.pinged, w.idleIntervals = false, 0
	}
	switch {
	case len(w.waiting) == 0 && !w.pinged:
		w.mu.Unlock()
	case w.pinged && w.idleIntervals >= w.unresponsiveAfter:
		s.markUnresponsive()
	case !w.pinged && w.idleIntervals >= w.pingAfter:
		s.startPingCount()
		s.startMonitorTimer()
		w.mu.Unlock()
		s.sendPing()
		if s.cfg.OnProbe != nil {
			s.cfg.OnProbe()
		}
	default:
		s.startMonitorTimer()
		w.mu.Unlock()
	}
}

// markUnresponsive calls the callbacks that wait for the peer. It unlocks monitor.mu.
func (s *Session) markUnresponsive() {
	w := &s.monitor
	calls := w.waiting
	w.waiting, w.pinged = nil, false
	w.unresponsive.Store(true)
	w.mu.Unlock()
	if s.activity.Load()&monitorActivity != 0 { // a frame has just arrived
		s.markResponsive()
	}
	s.responsivenessChanged()
	for c := range calls {
		c.onUnresponsive()
	}
}

// markResponsive handles a frame of an unresponsive peer. Only the reader calls it.
func (s *Session) markResponsive() {
	s.monitor.mu.Lock()
	was := s.monitor.unresponsive.Swap(false)
	s.monitor.mu.Unlock()
	if was {
		s.responsivenessChanged()
	}
}

func (s *Session) responsivenessChanged() {
	if s.cfg.OnResponsiveness != nil {
		s.cfg.OnResponsiveness()
	}
}

func (w *peerMonitor) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped, w.waiting = true, nil
	if w.timer != nil {
		w.timer.Stop()
	}
}
