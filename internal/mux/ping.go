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
	looks      = 3 // within KeepAlive
	firstLooks = 3 // that measure the round trip in any case: the very first ping may find a peer that is just starting
	rttPeriod  = 6 // looks, after which a busy session measures it again
	// of which the least counts: a route may have become longer, while the last ones may have waited
	// for others' bytes
	rttSamples = 8
)

// pinger measures round trips, and finds out that the peer is gone.
type pinger struct {
	mu     sync.Mutex // guards what follows
	watch  *time.Timer
	id     uint32
	sent   time.Time
	answer chan struct{} // closed by the answer to the ping that is under way; nil: there is none
	took   time.Duration // of the last one
	recent [rttSamples]time.Duration
	count  int

	least atomic.Int64 // of recent, nanoseconds; 0: not known

	quiet, turn int // looks without a frame; all looks. They are look's own
}

// keepAlive begins to look after the connection.
func (s *Session) keepAlive() {
	p, every := &s.ping, s.cfg.KeepAlive/looks
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = time.AfterFunc(every, func() {
		if s.look() {
			p.mu.Lock()
			p.watch.Reset(every)
			p.mu.Unlock()
		}
	})
}

func (p *pinger) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch.Stop()
}

// look is called a few times within KeepAlive. It costs next to nothing while there are frames.
func (s *Session) look() bool {
	p := &s.ping
	p.turn++
	p.quiet++
	if s.heard.And(^uint32(heardByKeepAlive))&heardByKeepAlive != 0 {
		p.quiet = 0
	}
	every := s.cfg.KeepAlive / looks
	switch {
	case s.Err() != nil:
		return false
	case time.Duration(p.quiet)*every >= s.cfg.KeepAlive+s.cfg.Timeout:
		s.fail(ErrKeepAlive)
		return false
	case p.quiet == looks, p.turn < firstLooks, p.turn%rttPeriod == 0 && s.NumStreams() > 1:
		s.sendPing()
	}
	return true
}

// sendPing sends a ping, unless one is under way. It returns a channel that is closed by the
// answer.
func (s *Session) sendPing() <-chan struct{} {
	p := &s.ping
	p.mu.Lock()
	answer, now := p.answer, time.Now()
	if answer != nil && now.Sub(p.sent) < s.cfg.Timeout {
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
	s.sendControl(typePing, flagSYN, 0, id, async)
	return answer
}

// answered takes the answer to a ping.
func (s *Session) answered(id uint32) {
	p := &s.ping
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer == nil || p.id != id {
		return
	}
	p.measured(time.Since(p.sent))
	close(p.answer)
	p.answer = nil
}

// measured notes a round trip. The caller holds mu.
func (p *pinger) measured(took time.Duration) {
	p.took = took
	p.recent[p.count%rttSamples] = max(1, took)
	p.count++
	p.least.Store(int64(slices.Min(p.recent[:min(p.count, rttSamples)])))
}

// slowest returns the longest of the recent round trips that took at most limit. A peer that was
// away for longer says nothing of the way to it.
func (p *pinger) slowest(limit time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := time.Duration(0)
	for _, took := range p.recent {
		if took <= limit {
			longest = max(longest, took)
		}
	}
	return longest
}

// rtt returns how long a round trip takes when nothing is in its way; 0: not known.
func (s *Session) rtt() time.Duration { return time.Duration(s.ping.least.Load()) }

// Ping returns how long a frame takes to the peer and back. It waits for at most Timeout.
func (s *Session) Ping() (time.Duration, error) {
	if err := s.Err(); err != nil {
		return 0, s.brokenBy(err)
	}
	answer := s.sendPing()
	timer := time.NewTimer(s.cfg.Timeout)
	defer timer.Stop()
	select {
	case <-answer:
		s.ping.mu.Lock()
		defer s.ping.mu.Unlock()
		return s.ping.took, nil
	case <-s.done:
		return 0, s.broken()
	case <-timer.C:
		return 0, ErrKeepAlive
	}
}
