// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"fmt"
	"io"
	"net"
	"time"
)

// ResetError is the error of reads and writes on a stream that the peer has reset.
type ResetError struct{ Code uint32 }

// Error describes the reset and its code.
func (e *ResetError) Error() string {
	return fmt.Sprintf("the peer reset the stream, with code %d", e.Code)
}

// ResetHandler is told that the peer has reset a stream. HandleReset must not block.
type ResetHandler interface{ HandleReset(err *ResetError) }

// OnReset makes h be told that the peer has reset the stream, at once if it has.
func (st *Stream) OnReset(h ResetHandler) {
	st.mu.Lock()
	st.onReset = h
	reset, yes := st.writeErr.(*ResetError) //nolint:errorlint // never wrapped
	if !yes {
		reset, yes = st.readErr.(*ResetError) //nolint:errorlint // never wrapped
	}
	st.mu.Unlock()
	if yes {
		h.HandleReset(reset)
	}
}

// CloseWrite ends the direction towards the peer, which reads io.EOF.
func (st *Stream) CloseWrite() error { return st.closeWrite(flushNow) }

// CloseWriteLater is CloseWrite without its own write to the connection: the frame is sent with the
// next frame of any stream, within 5 ms.
func (st *Stream) CloseWriteLater() error { return st.closeWrite(flushDelayed) }

// HasEnded reports whether both sides have called CloseWrite.
func (st *Stream) HasEnded() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.writeClosed && st.readErr == io.EOF //nolint:errorlint // never wrapped
}

func (st *Stream) closeWrite(mode flushMode) error {
	st.mu.Lock()
	if st.writeErr != nil {
		defer st.mu.Unlock()
		if st.writeClosed {
			return nil
		}
		return st.writeErr
	}
	st.writeErr, st.writeClosed = net.ErrClosed, true
	readEnded := st.readErr != nil
	st.mu.Unlock()
	wake(st.writable)
	st.sendFinal(flagFIN, 0, mode)
	if readEnded {
		st.releaseResources()
	}
	return nil
}

// Reset ends both directions: the peer's writes, and its reads once it has read what was sent before,
// fail with a ResetError, this side's with net.ErrClosed. It does not wait for the connection.
func (st *Stream) Reset(code uint32) error {
	if st.setErrors(net.ErrClosed, false) {
		st.sendFinal(flagRST, code, flushAsync)
		st.releaseResources()
		return nil
	}
	st.session.removeStream(st) // the other caller does so too, maybe later
	return nil
}

// Release frees the stream's memory. It resets a stream that has not ended in both directions.
func (st *Stream) Release() {
	_ = st.Reset(0)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.recv.discardLent()
	st.recv.clear()
}

// handleRST ends the stream because the peer reset it. Bytes that came before can still be read, as
// with TCP: an upstream that answers and closes while it has unread input resets its connection, and
// its answer must not be lost.
func (st *Stream) handleRST(code uint32) {
	err := &ResetError{Code: code}
	if !st.setErrors(err, true) {
		return
	}
	st.session.sendq.mu.Lock()
	st.sendClosed = true
	st.session.sendq.mu.Unlock()
	st.releaseResources()
	st.mu.Lock()
	h := st.onReset
	st.mu.Unlock()
	if h != nil {
		h.HandleReset(err)
	}
}

// closeWithError ends the stream because its connection has ended.
func (st *Stream) closeWithError(reason error) {
	if st.setErrors(reason, false) {
		st.releaseResources()
	}
}

// handleFIN ends the direction from the peer.
func (st *Stream) handleFIN() {
	st.mu.Lock()
	if st.readErr == nil {
		st.readErr = io.EOF
	}
	writeEnded := st.writeErr != nil
	st.mu.Unlock()
	wake(st.readable)
	if writeEnded {
		st.releaseResources()
	}
}

// setErrors ends the directions that are open. It returns false when none was. Received bytes are
// discarded unless keepReceived is set.
func (st *Stream) setErrors(err error, keepReceived bool) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.readErr != nil && st.writeErr != nil {
		return false
	}
	if st.readErr == nil {
		st.readErr = err
		if !keepReceived {
			st.recv.clear()
		}
		wake(st.readable)
	}
	if st.writeErr == nil {
		st.writeErr = err
		wake(st.writable)
	}
	return true
}

// sendFinal sends a FIN or RST, after which the stream sends nothing more.
func (st *Stream) sendFinal(flags uint16, code uint32, mode flushMode) {
	q := &st.session.sendq
	q.mu.Lock()
	st.sendClosed = true
	if q.closedErr != nil || !st.synSent { // the session has ended, or the peer does not know the stream
		q.mu.Unlock()
		return
	}
	q.appendFrame(typeWindow, flags, st.id, code)
	q.flush(mode)
}

// releaseResources frees what a stream holds that has ended in both directions.
func (st *Stream) releaseResources() {
	st.session.removeStream(st)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.windowGrowth > 0 && st.session.cfg.Budget != nil {
		st.session.cfg.Budget.Release(int64(st.windowGrowth))
	}
	st.windowGrowth = 0
	for _, deadline := range []*deadline{&st.readDeadline, &st.writeDeadline} {
		if deadline.timer != nil {
			deadline.timer.Stop()
		}
	}
}

// SetReadDeadline implements net.Conn. It also applies to a read that is waiting.
func (st *Stream) SetReadDeadline(t time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.readDeadline.set(t, st.readable)
	return nil
}

// SetWriteDeadline implements net.Conn. It also applies to a write that is waiting for the peer's
// window or for its turn.
func (st *Stream) SetWriteDeadline(t time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.writeDeadline.set(t, st.writable)
	return nil
}
