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

// The observers' bits of peerMonitor.activity.
const (
	keepAliveActivity = 1 << iota
	monitorActivity
)

// peerMonitor detects within about 1.5 s that the peer does not answer, while calls wait for it. It
// counts intervals instead of time, so that a process that was itself suspended checks again before
// it marks its peer as unresponsive. While no call waits it costs nothing.
type peerMonitor struct {
	session *Session

	activity     atomic.Uint32 // activity has a bit per observer, set by bytes and cleared by the observer.
	unresponsive atomic.Bool

	mu                sync.Mutex // guards what follows
	waiting           map[*waitingCall]struct{}
	timer             *time.Timer
	timerRuns         bool
	stopped           bool      // stopped is set when the session has ended.
	pinged            bool      // pinged is set while no frame has arrived since the last ping.
	idleIntervals     int       // intervals without a frame, if pinged those since the ping
	pingAfter         int       // intervals without a frame before the next ping
	unresponsiveAfter int       // intervals without a frame after the ping that make the peer unresponsive
	pingedAt          time.Time // time of the last ping
}

type waitingCall struct{ onUnresponsive func() }

// onUnresponsive adds a call that waits, or calls f at once. It implements Session.OnUnresponsive.
func (w *peerMonitor) onUnresponsive(f func()) (stop func()) {
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
		w.activity.And(^uint32(monitorActivity))
		w.idleIntervals = 0
	}
	w.startTimer()
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.waiting, c)
		w.mu.Unlock()
	}
}

// isUnresponsive implements Session.Unresponsive.
func (w *peerMonitor) isUnresponsive() (since time.Time, yes bool) {
	if !w.unresponsive.Load() {
		return time.Time{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pingedAt, w.unresponsive.Load()
}

// probe implements Session.Probe.
func (w *peerMonitor) probe() {
	w.mu.Lock()
	if w.pinged || w.unresponsive.Load() {
		w.mu.Unlock()
		return
	}
	w.activity.And(^uint32(monitorActivity))
	w.startPingCount()
	w.startTimer()
	w.mu.Unlock()
	w.session.ping.send()
}

// startPingCount starts to count intervals from a ping that is about to be sent. mu must be held.
func (w *peerMonitor) startPingCount() {
	slow := w.session.ping.maxRTT(maxUnanswered * monitorInterval / 3)
	w.pinged, w.idleIntervals, w.pingedAt = true, 0, time.Now()
	w.unresponsiveAfter = max(minUnanswered, int((3*slow+monitorInterval-1)/monitorInterval))
}

// startTimer starts the timer unless it runs. mu must be held.
func (w *peerMonitor) startTimer() {
	switch {
	case w.timerRuns || w.stopped:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(monitorInterval, w.checkPeer)
	default:
		w.timer.Reset(monitorInterval)
	}
	w.timerRuns = true
}

// checkPeer is called after each interval while calls wait or a ping is unanswered.
func (w *peerMonitor) checkPeer() {
	w.mu.Lock()
	w.timerRuns = false
	w.idleIntervals++
	if w.activity.And(^uint32(monitorActivity))&monitorActivity != 0 {
		if w.pinged { // only the ping was answered, or the peer sends too little to be pinged every second
			w.pingAfter = min(2*w.pingAfter, maxPingAfter)
		}
		w.pinged, w.idleIntervals = false, 0
	}
	switch {
	case len(w.waiting) == 0 && !w.pinged:
		w.mu.Unlock()
	case w.pinged && w.idleIntervals >= w.unresponsiveAfter:
		w.markUnresponsive()
	case !w.pinged && w.idleIntervals >= w.pingAfter:
		w.startPingCount()
		w.startTimer()
		w.mu.Unlock()
		w.session.ping.send()
		if w.session.cfg.OnProbe != nil {
			w.session.cfg.OnProbe()
		}
	default:
		w.startTimer()
		w.mu.Unlock()
	}
}

// markUnresponsive calls the callbacks that wait for the peer. It unlocks mu.
func (w *peerMonitor) markUnresponsive() {
	calls := w.waiting
	w.waiting, w.pinged = nil, false
	w.unresponsive.Store(true)
	w.mu.Unlock()
	if w.activity.Load()&monitorActivity != 0 { // a frame has just arrived
		w.markResponsive()
	}
	w.responsivenessChanged()
	for c := range calls {
		c.onUnresponsive()
	}
}

// markResponsive handles a frame of an unresponsive peer. Only the reader calls it.
func (w *peerMonitor) markResponsive() {
	w.mu.Lock()
	was := w.unresponsive.Swap(false)
	w.mu.Unlock()
	if was {
		w.responsivenessChanged()
	}
}

func (w *peerMonitor) responsivenessChanged() {
	if f := w.session.cfg.OnResponsiveness; f != nil {
		f()
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
