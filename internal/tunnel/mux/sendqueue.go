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
	session *Session // session ends when a write fails, and waits for the queue's goroutines.

	mu              sync.Mutex // mu guards what follows.
	writing         bool
	closedErr       error   // error of every frame after the session has ended
	pending         *batch  // frames that the next write sends, in order
	replyBytes      int     // bytes of replies in pending
	inFlight        int     // bytes that are being written
	firstWaiter     *Stream // head of the list of streams that wait for their turn
	lastWaiter      *Stream
	waitingBytes    int // bytes that the waiting streams want to write
	flushTimer      *time.Timer
	flushTimerArmed bool
	writeDeadline   time.Time
	writeStart      time.Time // start of the current or last write; only the goroutine with the turn uses it
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

// queued returns how many bytes are pending or being written.
func (q *sendQueue) queued() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.writing || q.closedErr != nil {
		return 0
	}
	return int64(q.pending.len() + q.inFlight + q.waitingBytes)
}

// appendFrame appends a frame to pending. mu must be held.
func (q *sendQueue) appendFrame(kind byte, flags uint16, id, length uint32) {
	if q.pending == nil {
		q.pending = batchPool.Get().(*batch)
	}
	q.pending.b = appendHeader(q.pending.b, kind, flags, id, length)
}

// sendData writes a data frame, with mode flushNow or flushDelayed. It waits for its turn if the
// frame is large or much is pending.
func (q *sendQueue) sendData(st *Stream, p []byte, mode flushMode) error {
	q.mu.Lock()
	if err := st.sendErrorLocked(); err != nil {
		q.mu.Unlock()
		return err
	}
	small := len(p) <= smallPayload
	if q.writing {
		if small && q.pending.len() <= maxPending {
			q.appendData(st, p, true)
			q.mu.Unlock()
			return nil
		}
		if err := q.awaitTurn(st, len(p)); err != nil {
			return err
		}
	}
	if small && mode == flushDelayed && !q.writing && q.pending.len() <= maxPending {
		q.appendData(st, p, true)
		q.flush(mode)
		return nil
	}
	q.writing = true
	q.appendData(st, p, small)
	if small {
		p = nil
	}
	return q.writeBatches(p)
}

// appendData appends a data frame to pending, preceded by the stream's SYN if that was not sent. mu
// must be held.
func (q *sendQueue) appendData(st *Stream, p []byte, withPayload bool) {
	q.sendSYN(st)
	if len(p) == 0 {
		return
	}
	q.appendFrame(typeData, 0, st.id, uint32(len(p)))
	if withPayload {
		q.pending.b = append(q.pending.b, p...)
	}
}

// sendSYN appends the frame that opens the stream, before its first other frame. mu must be held.
func (q *sendQueue) sendSYN(st *Stream) {
	if !st.synSent {
		st.synSent = true
		q.appendFrame(typeWindow, flagSYN, st.id, st.extraWindow)
	}
}

// sendControl sends a frame without a payload. It does not wait for its turn; with flushAsync it
// does not wait for the connection either.
func (q *sendQueue) sendControl(kind byte, flags uint16, id, length uint32, mode flushMode) {
	q.mu.Lock()
	if q.closedErr != nil {
		q.mu.Unlock()
		return
	}
	q.appendFrame(kind, flags, id, length)
	q.flush(mode)
}

// flushMode is when and by which goroutine a frame is written.
type flushMode int

const (
	flushNow     flushMode = iota
	flushAsync             // at once, by another goroutine
	flushDelayed           // with the next frame, or after maxFlushDelay
)

// flush sends pending as mode says, unless another goroutine writes and will do so. It unlocks mu.
func (q *sendQueue) flush(mode flushMode) {
	switch {
	case q.writing:
		q.mu.Unlock()
	case mode == flushNow:
		q.writing = true
		_ = q.writeBatches(nil) // an error ends the session
	case mode == flushAsync:
		q.writing = true
		q.flushInBackground()
		q.mu.Unlock()
	default:
		if !q.flushTimerArmed {
			q.flushTimerArmed = true
			if q.flushTimer == nil {
				q.flushTimer = time.AfterFunc(maxFlushDelay, q.flushIfDue)
			} else {
				q.flushTimer.Reset(maxFlushDelay)
			}
		}
		q.mu.Unlock()
	}
}

// flushIfDue sends pending frames whose maxFlushDelay has passed.
func (q *sendQueue) flushIfDue() {
	q.mu.Lock()
	q.flushTimerArmed = false
	if q.closedErr != nil || q.pending.len() == 0 {
		q.mu.Unlock()
		return
	}
	q.flush(flushAsync)
}

// sendReply sends a frame that answers the peer. Only the reader calls it, which must not wait:
// mode is not flushNow. It returns an error when the peer causes too many replies.
func (q *sendQueue) sendReply(kind byte, flags uint16, id, length uint32, mode flushMode) error {
	q.mu.Lock()
	if q.closedErr != nil {
		q.mu.Unlock()
		return q.closedErr
	}
	if q.replyBytes += headerSize; q.replyBytes > maxReplyBytes {
		q.mu.Unlock()
		return errReplyFlood
	}
	q.appendFrame(kind, flags, id, length)
	q.flush(mode)
	return nil
}

// flushInBackground starts a goroutine that continues with the turn. mu must be held, and the
// session must not have ended.
func (q *sendQueue) flushInBackground() {
	q.session.goroutines.Go(func() {
		q.mu.Lock()
		if q.closedErr != nil {
			q.mu.Unlock()
			return
		}
		_ = q.writeBatches(nil)
	})
}

// writeBatches writes pending and then payload, and passes the turn on. The caller has the turn. It
// unlocks mu.
func (q *sendQueue) writeBatches(payload []byte) error {
	err := q.writeOnce(payload)
	for rounds := 0; err == nil && !q.passTurn(rounds >= maxFlushRounds); rounds++ {
		err = q.writeOnce(nil)
	}
	return err
}

// passTurn passes the turn to the next waiting stream, or ends it when nothing is pending. Else it
// starts a goroutine for the pending frames, if background is set or the last write was slow;
// otherwise it returns false with mu locked: the caller must continue writing.
func (q *sendQueue) passTurn(background bool) bool {
	switch next := q.firstWaiter; {
	case q.closedErr != nil:
	case next != nil:
		q.removeWaiter(next)
		next.hasTurn = true
		wake(next.writable)
	case q.pending.len() == 0:
		q.writing = false
	// a slow connection must not hold up this writer, which may have a deadline
	case background, time.Since(q.writeStart) > maxSharedWrite:
		q.flushInBackground()
	default:
		return false
	}
	q.mu.Unlock()
	return true
}

// writeOnce writes pending and then payload. It is called with mu locked, and returns with it
// locked unless it fails.
func (q *sendQueue) writeOnce(payload []byte) error {
	frames := q.pending
	if frames == nil {
		return nil
	}
	q.pending, q.replyBytes, q.inFlight = nil, 0, len(frames.b)+len(payload)
	q.mu.Unlock()
	err := q.extendDeadline()
	if err == nil {
		err = q.session.conn.WriteFrames(frames.b, payload)
	}
	frames.free()
	if err != nil {
		q.session.fail(fmt.Errorf("writing: %w", err))
		return q.session.endError()
	}
	if time.Since(q.writeStart) >= slowWrite {
		q.session.monitor.activity.Or(monitorActivity) // the peer takes bytes: a ping waits behind them
	}
	q.mu.Lock()
	q.inFlight = 0
	return nil
}

// extendDeadline moves the connection's write deadline. Only the goroutine with the turn calls it.
func (q *sendQueue) extendDeadline() error {
	now := time.Now()
	q.writeStart = now
	if q.writeDeadline.Sub(now) >= q.session.cfg.Timeout {
		return nil
	}
	q.writeDeadline = now.Add(q.session.cfg.Timeout * 3 / 2) // so that it is not set for every write
	return q.session.conn.SetWriteDeadline(q.writeDeadline)
}

// awaitTurn waits until st has the turn to write n bytes. It is called with mu locked, and returns
// with it locked unless it fails.
func (q *sendQueue) awaitTurn(st *Stream, n int) error {
	if q.lastWaiter == nil {
		q.firstWaiter = st
	} else {
		q.lastWaiter.nextWaiter = st
	}
	q.lastWaiter, st.waitingBytes = st, n
	q.waitingBytes += n
	for {
		err := st.sendErrorLocked()
		if err == nil {
			if st.hasTurn {
				st.hasTurn = false
				return nil
			}
			q.mu.Unlock()
			if err = st.WriteError(); err == nil {
				<-st.writable
			}
			q.mu.Lock()
			if err == nil {
				continue
			}
		}
		if st.hasTurn {
			st.hasTurn = false
			_ = q.writeBatches(nil) // for the streams that wait behind it
		} else {
			q.removeWaiter(st)
			q.mu.Unlock()
		}
		return err
	}
}

// removeWaiter removes st from the list of streams that wait for their turn. mu must be held.
func (q *sendQueue) removeWaiter(st *Stream) {
	var before *Stream
	for x := q.firstWaiter; x != nil; before, x = x, x.nextWaiter {
		if x != st {
			continue
		}
		if before == nil {
			q.firstWaiter = x.nextWaiter
		} else {
			before.nextWaiter = x.nextWaiter
		}
		if q.lastWaiter == x {
			q.lastWaiter = before
		}
		q.waitingBytes -= x.waitingBytes
		x.nextWaiter = nil
		return
	}
}

// stop makes every later frame fail with err, because the session has ended.
func (q *sendQueue) stop(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closedErr = err
	if q.flushTimer != nil {
		q.flushTimer.Stop()
	}
}

func wake(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}
