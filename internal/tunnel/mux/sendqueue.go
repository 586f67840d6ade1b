// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	maxPending    = 64 << 10 // bytes of small frames that are pending; above it, a small frame waits for its turn, too
	maxReplyBytes = 64 << 10 // bytes of pending replies to the peer, above which the session ends
	// how often a writer sends the frames that others have added, before a goroutine of its own
	// does
	maxFlushRounds = 2
	// a writer whose write took longer leaves the frames of others to another goroutine
	maxSharedWrite = 5 * time.Millisecond
	maxFlushDelay  = 5 * time.Millisecond
)

var errReplyFlood = errors.New("the peer causes more answers than it reads")

// sendQueue is the writing half of a session. The goroutine that has the turn (writing) writes;
// pending is sent with the next write.
type sendQueue struct {
	mu              sync.Mutex
	writing         bool
	closedErr       error   // the session has ended
	pending         *batch  // frames, in order
	replyBytes      int     // bytes of replies in pending
	inFlight        int     // bytes that are being written
	firstWaiter     *Stream // a list of streams that wait for their turn
	lastWaiter      *Stream
	waitingBytes    int // bytes that the waiting streams want to write
	flushTimer      *time.Timer
	flushTimerArmed bool
	writeDeadline   time.Time
	writeStart      time.Time // when the current or last write began; only the goroutine with the turn uses it
}

// batch is a pooled buffer of frames.
type batch struct{ b []byte }

var batchPool = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) len() int {
	if b == nil {
		return 0
	}
	return len(b.b)
}

func (b *batch) free() {
	if b != nil && cap(b.b) <= 2*maxPending {
		b.b = b.b[:0]
		batchPool.Put(b)
	}
}

// Queued returns how many bytes are pending or being written.
func (s *Session) Queued() int64 {
	s.sendq.mu.Lock()
	defer s.sendq.mu.Unlock()
	if !s.sendq.writing || s.sendq.closedErr != nil {
		return 0
	}
	return int64(s.sendq.pending.len() + s.sendq.inFlight + s.sendq.waitingBytes)
}

// appendFrame appends a frame to pending. sendq.mu must be held.
func (s *Session) appendFrame(kind byte, flags uint16, id, length uint32) {
	if s.sendq.pending == nil {
		s.sendq.pending = batchPool.Get().(*batch)
	}
	s.sendq.pending.b = appendHeader(s.sendq.pending.b, kind, flags, id, length)
}

// sendData writes a data frame, with mode flushNow or flushDelayed. It waits for its turn if the
// frame is large or much is pending.
func (s *Session) sendData(st *Stream, p []byte, mode flushMode) error {
	s.sendq.mu.Lock()
	if err := st.sendErrorLocked(); err != nil {
		s.sendq.mu.Unlock()
		return err
	}
	small := len(p) <= smallPayload
	if s.sendq.writing {
		if small && s.sendq.pending.len() <= maxPending {
			s.appendData(st, p, true)
			s.sendq.mu.Unlock()
			return nil
		}
		if err := s.awaitTurn(st, len(p)); err != nil {
			return err
		}
	}
	if small && mode == flushDelayed && !s.sendq.writing && s.sendq.pending.len() <= maxPending {
		s.appendData(st, p, true)
		s.flush(mode)
		return nil
	}
	s.sendq.writing = true
	s.appendData(st, p, small)
	if small {
		p = nil
	}
	return s.writeBatches(p)
}

// appendData appends a data frame to pending, preceded by the stream's SYN if that was not sent.
// sendq.mu must be held.
func (s *Session) appendData(st *Stream, p []byte, withPayload bool) {
	s.sendSYN(st)
	if len(p) == 0 {
		return
	}
	s.appendFrame(typeData, 0, st.id, uint32(len(p)))
	if withPayload {
		s.sendq.pending.b = append(s.sendq.pending.b, p...)
	}
}

// sendSYN appends the frame that opens the stream, before its first other frame. sendq.mu must be
// held.
func (s *Session) sendSYN(st *Stream) {
	if !st.synSent {
		st.synSent = true
		s.appendFrame(typeWindow, flagSYN, st.id, st.extraWindow)
	}
}

// sendControl sends a frame without a payload. It does not wait for its turn; with flushAsync it
// does not wait for the connection either.
func (s *Session) sendControl(kind byte, flags uint16, id, length uint32, mode flushMode) {
	s.sendq.mu.Lock()
	if s.sendq.closedErr != nil {
		s.sendq.mu.Unlock()
		return
	}
	s.appendFrame(kind, flags, id, length)
	s.flush(mode)
}

// flushMode is when and by which goroutine a frame is written.
type flushMode int

const (
	flushNow     flushMode = iota
	flushAsync             // at once, by another goroutine
	flushDelayed           // with the next frame, or after maxFlushDelay
)

// flush sends pending as mode says, unless another goroutine is writing and will do so. It unlocks
// sendq.mu.
func (s *Session) flush(mode flushMode) {
	switch {
	case s.sendq.writing:
		s.sendq.mu.Unlock()
	case mode == flushNow:
		s.sendq.writing = true
		_ = s.writeBatches(nil) // an error ends the session
	case mode == flushAsync:
		s.sendq.writing = true
		s.flushInBackground()
		s.sendq.mu.Unlock()
	default:
		if !s.sendq.flushTimerArmed {
			s.sendq.flushTimerArmed = true
			if s.sendq.flushTimer == nil {
				s.sendq.flushTimer = time.AfterFunc(maxFlushDelay, s.flushIfDue)
			} else {
				s.sendq.flushTimer.Reset(maxFlushDelay)
			}
		}
		s.sendq.mu.Unlock()
	}
}

// flushIfDue sends pending frames whose maxFlushDelay has passed.
func (s *Session) flushIfDue() {
	s.sendq.mu.Lock()
	s.sendq.flushTimerArmed = false
	if s.sendq.writing || s.sendq.closedErr != nil || s.sendq.pending.len() == 0 {
		s.sendq.mu.Unlock()
		return
	}
	s.sendq.writing = true
	s.flushInBackground()
	s.sendq.mu.Unlock()
}

// sendReply sends a frame that answers the peer. Only the reader calls it, which must not wait:
// mode is not flushNow. It returns an error when the peer causes too many replies.
func (s *Session) sendReply(kind byte, flags uint16, id, length uint32, mode flushMode) error {
	s.sendq.mu.Lock()
	if s.sendq.closedErr != nil {
		s.sendq.mu.Unlock()
		return s.sendq.closedErr
	}
	if s.sendq.replyBytes += headerSize; s.sendq.replyBytes > maxReplyBytes {
		s.sendq.mu.Unlock()
		return errReplyFlood
	}
	s.appendFrame(kind, flags, id, length)
	s.flush(mode)
	return nil
}

// flushInBackground starts a goroutine that continues with the turn. sendq.mu must be held, and the
// session must not have ended.
func (s *Session) flushInBackground() {
	s.goroutines.Go(func() {
		s.sendq.mu.Lock()
		if s.sendq.closedErr != nil {
			s.sendq.mu.Unlock()
			return
		}
		_ = s.writeBatches(nil)
	})
}

// writeBatches writes pending and then payload, and passes the turn on. The caller has the turn. It
// unlocks sendq.mu.
func (s *Session) writeBatches(payload []byte) error {
	err := s.writeOnce(payload)
	for rounds := 0; err == nil && !s.passTurn(rounds >= maxFlushRounds); rounds++ {
		err = s.writeOnce(nil)
	}
	return err
}

// passTurn passes the turn to the next waiting stream, or ends it when nothing is pending. Else it
// starts a goroutine for the pending frames, if background is set or the last write was slow;
// otherwise it returns false with sendq.mu locked: the caller must continue writing.
func (s *Session) passTurn(background bool) bool {
	o := &s.sendq
	switch next := o.firstWaiter; {
	case o.closedErr != nil:
	case next != nil:
		s.removeWaiter(next)
		next.hasTurn = true
		wake(next.writable)
	case o.pending.len() == 0:
		o.writing = false
	// a slow connection must not hold up this writer, which may have a deadline
	case background, time.Since(o.writeStart) > maxSharedWrite:
		s.flushInBackground()
	default:
		return false
	}
	o.mu.Unlock()
	return true
}

// writeOnce writes pending and then payload. It is called with sendq.mu locked, and returns with it
// locked unless it fails.
func (s *Session) writeOnce(payload []byte) error {
	o := &s.sendq
	frames := o.pending
	if frames == nil {
		return nil
	}
	o.pending, o.replyBytes, o.inFlight = nil, 0, len(frames.b)+len(payload)
	o.mu.Unlock()
	err := s.extendDeadline()
	if err == nil {
		err = s.conn.WriteFrames(frames.b, payload)
	}
	frames.free()
	if err != nil {
		s.fail(fmt.Errorf("writing: %w", err))
		return s.endError()
	}
	if time.Since(o.writeStart) >= slowWrite {
		s.activity.Or(monitorActivity) // the peer takes bytes: a ping waits behind them
	}
	o.mu.Lock()
	o.inFlight = 0
	return nil
}

// extendDeadline moves the connection's write deadline. Only the goroutine with the turn calls it.
func (s *Session) extendDeadline() error {
	now := time.Now()
	s.sendq.writeStart = now
	if s.sendq.writeDeadline.Sub(now) >= s.cfg.Timeout {
		return nil
	}
	s.sendq.writeDeadline = now.Add(s.cfg.Timeout * 3 / 2) // so that it is not set for every write
	return s.conn.SetWriteDeadline(s.sendq.writeDeadline)
}

// awaitTurn waits until st has the turn to write n bytes. It is called with sendq.mu locked, and
// returns with it locked unless it fails.
func (s *Session) awaitTurn(st *Stream, n int) error {
	o := &s.sendq
	if o.lastWaiter == nil {
		o.firstWaiter = st
	} else {
		o.lastWaiter.nextWaiter = st
	}
	o.lastWaiter, st.waitingBytes = st, n
	o.waitingBytes += n
	for {
		err := st.sendErrorLocked()
		if err == nil {
			if st.hasTurn {
				st.hasTurn = false
				return nil
			}
			o.mu.Unlock()
			if err = st.writeError(); err == nil {
				<-st.writable
			}
			o.mu.Lock()
			if err == nil {
				continue
			}
		}
		if st.hasTurn {
			st.hasTurn = false
			_ = s.writeBatches(nil) // for the streams that wait behind it
		} else {
			s.removeWaiter(st)
			o.mu.Unlock()
		}
		return err
	}
}

// removeWaiter removes st from the list of streams that wait for their turn. sendq.mu must be held.
func (s *Session) removeWaiter(st *Stream) {
	o := &s.sendq
	var before *Stream
	for x := o.firstWaiter; x != nil; before, x = x, x.nextWaiter {
		if x != st {
			continue
		}
		if before == nil {
			o.firstWaiter = x.nextWaiter
		} else {
			before.nextWaiter = x.nextWaiter
		}
		if o.lastWaiter == x {
			o.lastWaiter = before
		}
		o.waitingBytes -= x.waitingBytes
		x.nextWaiter = nil
		return
	}
}

func wake(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}
