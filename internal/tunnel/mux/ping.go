// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	checksPerKeepAlive = 3 // keep-alive checks within KeepAlive
	// checks that measure the round trip in any case: the first ping may find a peer that is just
	// starting
	initialRTTChecks = 3
	rttEveryChecks   = 6 // checks after which a busy session measures the round trip again
	// the least of them counts: a route may have become longer, while the last ones may have waited
	// for other bytes
	rttSamples = 8
)

// pinger measures round trips and detects a peer that no longer answers.
type pinger struct {
	session *Session

	mu         sync.Mutex // guards what follows
	timer      *time.Timer
	id         uint32
	sent       time.Time
	answer     chan struct{} // answer is closed when the current ping is answered; nil: there is none.
	lastRTT    time.Duration // the last ping's round trip
	recentRTTs [rttSamples]time.Duration
	rttCount   int

	minRTT atomic.Int64 // the least of recentRTTs, in nanoseconds; 0: unknown

	idleChecks, checks int // consecutive checks without a frame, and all checks; only check uses them
}

// start starts the periodic check of the connection.
func (p *pinger) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(p.session.cfg.KeepAlive/checksPerKeepAlive, p.check)
}

func (p *pinger) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
}

// check is called checksPerKeepAlive times within KeepAlive until the session has ended. It sends
// no ping while there are frames, except to measure round trips.
func (p *pinger) check() {
	s, interval := p.session, p.session.cfg.KeepAlive/checksPerKeepAlive
	p.checks++
	p.idleChecks++
	if s.monitor.activity.And(^uint32(keepAliveActivity))&keepAliveActivity != 0 {
		p.idleChecks = 0
	}
	switch {
	case s.Err() != nil:
		return
	case time.Duration(p.idleChecks)*interval >= s.cfg.KeepAlive+s.cfg.Timeout:
		s.fail(ErrKeepAlive)
		return
	case p.idleChecks == checksPerKeepAlive, p.checks < initialRTTChecks,
		p.checks%rttEveryChecks == 0 && s.NumStreams() > 1:
		p.send()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Reset(interval)
}

// send sends a ping, unless one is in progress. It returns a channel that is closed by the
// answer.
func (p *pinger) send() <-chan struct{} {
	p.mu.Lock()
	answer, now := p.answer, time.Now()
	if answer != nil && now.Sub(p.sent) < p.session.cfg.Timeout {
		p.mu.Unlock()
		return answer
	}
	if answer == nil {
		answer = make(chan struct{})
	}
	p.id++
	p.answer, p.sent = answer, now
	id := p.id
	p.mu.Unlock()
	p.session.sendq.sendControl(typePing, flagSYN, 0, id, flushAsync)
	return answer
}

// handlePong handles the answer to the ping with this id.
func (p *pinger) handlePong(id uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer == nil || p.id != id {
		return
	}
	p.recordRTT(time.Since(p.sent))
	close(p.answer)
	p.answer = nil
}

// recordRTT records a round trip. mu must be held.
func (p *pinger) recordRTT(took time.Duration) {
	p.lastRTT = took
	p.recentRTTs[p.rttCount%rttSamples] = max(1, took)
	p.rttCount++
	p.minRTT.Store(int64(slices.Min(p.recentRTTs[:min(p.rttCount, rttSamples)])))
}

// maxRTT returns the longest recent round trip of at most limit. A longer one tells more about a
// peer that was stopped than about the network.
func (p *pinger) maxRTT(limit time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := time.Duration(0)
	for _, took := range p.recentRTTs {
		if took <= limit {
			longest = max(longest, took)
		}
	}
	return longest
}

// rtt returns the shortest recent round trip; 0 while it is unknown.
func (p *pinger) rtt() time.Duration { return time.Duration(p.minRTT.Load()) }

// Ping measures a round trip to the peer. It waits for at most Config.Timeout.
func (s *Session) Ping() (time.Duration, error) {
	answer := s.ping.send()
	timer := time.NewTimer(s.cfg.Timeout)
	defer timer.Stop()
	select {
	case <-answer:
		s.ping.mu.Lock()
		defer s.ping.mu.Unlock()
		return s.ping.lastRTT, nil
	case <-s.done:
		return 0, s.endError()
	case <-timer.C:
		return 0, ErrKeepAlive
	}
}
