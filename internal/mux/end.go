// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"fmt"
	"io"
	"net"
	"time"
)

// ResetError says that the peer has reset the stream.
type ResetError struct{ Code uint32 }

// Error returns a sentence.
func (e *ResetError) Error() string {
	return fmt.Sprintf("the peer reset the stream, with code %d", e.Code)
}

// CloseWrite says that nothing more follows: the peer reads io.EOF.
func (st *Stream) CloseWrite() error { return st.closeWrite(atOnce) }

// CloseWriteLater is CloseWrite for a peer that does not wait for it: it goes out with the next
// frame of any stream, within 5 ms.
func (st *Stream) CloseWriteLater() error { return st.closeWrite(whenDue) }

func (st *Stream) closeWrite(how manner) error {
	st.mu.Lock()
	if st.writeErr != nil {
		defer st.mu.Unlock()
		if st.closed {
			return nil
		}
		return st.writeErr
	}
	st.writeErr, st.closed = net.ErrClosed, true
	over := st.readErr != nil
	st.mu.Unlock()
	wake(st.writable)
	st.last(flagFIN, 0, how)
	if over {
		st.finish()
	}
	return nil
}

// Reset ends both directions: the peer's reads and writes fail with the code, this side's with
// net.ErrClosed. What the peer has not read is lost. It does not wait for the connection.
func (st *Stream) Reset(code uint32) error {
	if st.end(net.ErrClosed) {
		st.last(flagRST, code, async)
		st.finish()
		return nil
	}
	st.session.forget(st) // which whoever has ended it does, but maybe not yet
	return nil
}

// Release gives the stream's memory back. One that has not ended in both directions is reset.
func (st *Stream) Release() {
	_ = st.Reset(0)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.in.giveBack()
	st.in.clear()
}

// wasReset takes the peer's reset.
func (st *Stream) wasReset(code uint32) {
	if st.end(&ResetError{Code: code}) {
		st.session.out.mu.Lock()
		st.ended = true
		st.session.out.mu.Unlock()
		st.finish()
	}
}

// cut ends the stream with its connection.
func (st *Stream) cut(reason error) {
	if st.end(reason) {
		st.finish()
	}
}

// peerEnded takes the peer's CloseWrite.
func (st *Stream) peerEnded() {
	st.mu.Lock()
	if st.readErr == nil {
		st.readErr = io.EOF
	}
	over := st.writeErr != nil
	st.mu.Unlock()
	wake(st.readable)
	if over {
		st.finish()
	}
}

// end ends what is open, and says whether anything was.
func (st *Stream) end(err error) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.readErr != nil && st.writeErr != nil {
		return false
	}
	if st.readErr == nil {
		st.readErr = err
		st.in.clear()
		wake(st.readable)
	}
	if st.writeErr == nil {
		st.writeErr = err
		wake(st.writable)
	}
	return true
}

// last sends a frame after which no data follows.
func (st *Stream) last(flags uint16, code uint32, how manner) {
	s := st.session
	s.out.mu.Lock()
	st.ended = true
	if s.out.over != nil || !st.introduced { // the peer is gone, or has never heard of the stream
		s.out.mu.Unlock()
		return
	}
	s.frame(typeWindow, flags, st.id, code)
	s.dispatch(how)
}

// finish lets go of a stream that has ended in both directions.
func (st *Stream) finish() {
	st.session.forget(st)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.grown > 0 && st.session.cfg.Budget != nil {
		st.session.cfg.Budget.Release(int64(st.grown))
	}
	st.grown = 0
	for _, d := range []*deadline{&st.readDeadline, &st.writeDeadline} {
		if d.timer != nil {
			d.timer.Stop()
		}
	}
}

// SetReadDeadline is that of net.Conn: it also holds for a read that waits.
func (st *Stream) SetReadDeadline(t time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.readDeadline.set(t, st.readable)
	return nil
}

// SetWriteDeadline is that of net.Conn: it also holds for a write that waits for the peer, or for
// its turn.
func (st *Stream) SetWriteDeadline(t time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.writeDeadline.set(t, st.writable)
	return nil
}
