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
	pendingMark  = 64 << 10 // bytes of small frames that wait; beyond, who adds one waits for a turn
	answersLimit = 64 << 10 // bytes of frames that the peer has caused and does not read
	// how often a writer writes what others have left it, until a goroutine of its own does
	servedRounds = 2
	patience     = 5 * time.Millisecond // what a write may have taken for its writer to go on with those of others
	lazyTime     = 5 * time.Millisecond
)

var errFlood = errors.New("the peer causes more answers than it reads")

// outbox is the writing half of a session. Whoever has the turn (busy) writes; pending goes out
// with the next write.
type outbox struct {
	mu        sync.Mutex
	busy      bool
	over      error   // the session has ended
	pending   *batch  // frames, in order
	answers   int     // bytes of pending that the peer has caused
	underWay  int     // bytes that are being written
	first     *Stream // that wait for their turn
	last      *Stream
	promised  int // bytes that they want to write
	lazy      *time.Timer
	lazyArmed bool
	deadline  time.Time
	began     time.Time // the write that is under way, or was; who has the turn reads and sets it
}

// batch is a buffer of frames, from a pool.
type batch struct{ b []byte }

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) len() int {
	if b == nil {
		return 0
	}
	return len(b.b)
}

func (b *batch) free() {
	if b != nil && cap(b.b) <= 2*pendingMark {
		b.b = b.b[:0]
		batches.Put(b)
	}
}

// Queued returns how many bytes wait to be written, or are just being written.
func (s *Session) Queued() int64 {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if !s.out.busy || s.out.over != nil {
		return 0
	}
	return int64(s.out.pending.len() + s.out.underWay + s.out.promised)
}

// frame appends a frame to pending. The caller holds out.mu.
func (s *Session) frame(kind byte, flags uint16, id, length uint32) {
	if s.out.pending == nil {
		s.out.pending = batches.Get().(*batch)
	}
	s.out.pending.b = appendHeader(s.out.pending.b, kind, flags, id, length)
}

// sendData writes a data frame, atOnce or whenDue. It waits for its turn if the frame is large, or
// if much is pending.
func (s *Session) sendData(st *Stream, p []byte, how manner) error {
	s.out.mu.Lock()
	if err := st.maySend(); err != nil {
		s.out.mu.Unlock()
		return err
	}
	small := len(p) <= smallPayload
	if s.out.busy {
		if small && s.out.pending.len() <= pendingMark {
			s.data(st, p, true)
			s.out.mu.Unlock()
			return nil
		}
		if err := s.awaitTurn(st, len(p)); err != nil {
			return err
		}
	}
	if small && how == whenDue && !s.out.busy && s.out.pending.len() <= pendingMark {
		s.data(st, p, true)
		s.dispatch(how)
		return nil
	}
	s.out.busy = true
	s.data(st, p, small)
	if small {
		p = nil
	}
	return s.write(p)
}

// data appends a data frame to pending, and the opening of its stream if this is its first frame.
// The caller holds out.mu.
func (s *Session) data(st *Stream, p []byte, whole bool) {
	s.introduce(st)
	if len(p) == 0 {
		return
	}
	s.frame(typeData, 0, st.id, uint32(len(p)))
	if whole {
		s.out.pending.b = append(s.out.pending.b, p...)
	}
}

// introduce puts the opening of a stream before its first frame. The caller holds out.mu.
func (s *Session) introduce(st *Stream) {
	if !st.introduced {
		st.introduced = true
		s.frame(typeWindow, flagSYN, st.id, st.extra)
	}
}

// sendControl writes a frame without a payload; the caller does not wait for anybody's turn. With
// async it does not wait for the connection, either.
func (s *Session) sendControl(kind byte, flags uint16, id, length uint32, how manner) {
	s.out.mu.Lock()
	if s.out.over != nil {
		s.out.mu.Unlock()
		return
	}
	s.frame(kind, flags, id, length)
	s.dispatch(how)
}

// manner is how soon a frame has to go out.
type manner int

const (
	atOnce  manner = iota
	async          // at once, by another goroutine
	whenDue        // with the next frame, or in lazyTime
)

// dispatch sees to it that pending goes out. It unlocks out.mu.
func (s *Session) dispatch(how manner) {
	switch {
	case s.out.busy:
		s.out.mu.Unlock()
	case how == atOnce:
		s.out.busy = true
		_ = s.write(nil) // an error ends the session
	case how == async:
		s.out.busy = true
		s.flushAside()
		s.out.mu.Unlock()
	default:
		if !s.out.lazyArmed {
			s.out.lazyArmed = true
			if s.out.lazy == nil {
				s.out.lazy = time.AfterFunc(lazyTime, s.due)
			} else {
				s.out.lazy.Reset(lazyTime)
			}
		}
		s.out.mu.Unlock()
	}
}

// due writes what waited for company.
func (s *Session) due() {
	s.out.mu.Lock()
	s.out.lazyArmed = false
	if s.out.busy || s.out.over != nil || s.out.pending.len() == 0 {
		s.out.mu.Unlock()
		return
	}
	s.out.busy = true
	s.flushAside()
	s.out.mu.Unlock()
}

// answer sends a frame that the peer has caused; it is the reader's, which waits for nobody, so how
// is not atOnce.
func (s *Session) answer(kind byte, flags uint16, id, length uint32, how manner) error {
	s.out.mu.Lock()
	if s.out.over != nil {
		s.out.mu.Unlock()
		return s.out.over
	}
	if s.out.answers += headerSize; s.out.answers > answersLimit {
		s.out.mu.Unlock()
		return errFlood
	}
	s.frame(kind, flags, id, length)
	s.dispatch(how)
	return nil
}

// flushAside has a goroutine go on with the turn. The caller holds out.mu, and the session has not
// ended.
func (s *Session) flushAside() {
	s.running.Go(func() {
		s.out.mu.Lock()
		if s.out.over != nil {
			s.out.mu.Unlock()
			return
		}
		_ = s.write(nil)
	})
}

// write writes pending and then payload, and gives up the turn, which is the caller's. It unlocks
// out.mu.
func (s *Session) write(payload []byte) error {
	err := s.writeOnce(payload)
	for rounds := 0; err == nil && !s.pass(rounds >= servedRounds); rounds++ {
		err = s.writeOnce(nil)
	}
	return err
}

// pass gives the turn to the next stream that waits for it, or to nobody when nothing is left to be
// written. Else, and if it is not to leave that to a goroutine, it returns false, with out.mu: the
// caller has to go on.
func (s *Session) pass(aside bool) bool {
	o := &s.out
	switch next := o.first; {
	case o.over != nil:
	case next != nil:
		s.leave(next)
		next.turn = true
		wake(next.writable)
	case o.pending.len() == 0:
		o.busy = false
	// or the connection is slow, and whoever writes has a context or a deadline of its own
	case aside, time.Since(o.began) > patience:
		s.flushAside()
	default:
		return false
	}
	o.mu.Unlock()
	return true
}

// writeOnce writes pending and then payload. It holds out.mu before and, unless it fails, after.
func (s *Session) writeOnce(payload []byte) error {
	o := &s.out
	frames := o.pending
	if frames == nil {
		return nil
	}
	o.pending, o.answers, o.underWay = nil, 0, len(frames.b)+len(payload)
	o.mu.Unlock()
	err := s.extendDeadline()
	if err == nil {
		err = s.conn.WriteFrames(frames.b, payload)
	}
	frames.free()
	if err != nil {
		s.fail(fmt.Errorf("writing: %w", err))
		return s.broken()
	}
	if time.Since(o.began) >= slowWrite {
		s.heard.Or(heardByWatch) // bytes get through: a ping waits behind them
	}
	o.mu.Lock()
	o.underWay = 0
	return nil
}

// extendDeadline is called by who has the turn.
func (s *Session) extendDeadline() error {
	now := time.Now()
	s.out.began = now
	if s.out.deadline.Sub(now) >= s.cfg.Timeout {
		return nil
	}
	s.out.deadline = now.Add(s.cfg.Timeout * 3 / 2) // not for every write anew
	return s.conn.SetWriteDeadline(s.out.deadline)
}

// awaitTurn waits until st is the one that writes. It is called with out.mu and returns with it,
// unless it fails.
func (s *Session) awaitTurn(st *Stream, n int) error {
	o := &s.out
	if o.last == nil {
		o.first = st
	} else {
		o.last.next = st
	}
	o.last, st.promised = st, n
	o.promised += n
	for {
		err := st.maySend()
		if err == nil {
			if st.turn {
				st.turn = false
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
		if st.turn {
			st.turn = false
			_ = s.write(nil) // for those that wait behind it
		} else {
			s.leave(st)
			o.mu.Unlock()
		}
		return err
	}
}

// leave takes st out of the row of those that wait. The caller holds out.mu.
func (s *Session) leave(st *Stream) {
	o := &s.out
	var before *Stream
	for x := o.first; x != nil; before, x = x, x.next {
		if x != st {
			continue
		}
		if before == nil {
			o.first = x.next
		} else {
			before.next = x.next
		}
		if o.last == x {
			o.last = before
		}
		o.promised -= x.promised
		x.next = nil
		return
	}
}

func wake(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}
