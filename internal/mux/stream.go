// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"cmp"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Stream is one of many. One goroutine may read while another writes and others end it; of several
// readers, or writers, one waits for the other.
type Stream struct {
	id             uint32
	own            bool   // this side opened it
	extra          uint32 // what the peer may send from the beginning, beyond the protocol's initialWindow
	session        *Session
	unacknowledged atomic.Bool // an opening of this side's
	readable       chan struct{}
	writable       chan struct{}

	reading sync.Mutex // one reader
	writing sync.Mutex // one writer

	mu            sync.Mutex // guards what follows
	in            inbox
	window        uint32 // what the peer may send at most before something is read
	credit        uint32 // what it may send now
	epoch         time.Time
	grown         uint32 // taken from the budget
	room          uint32 // what this side may send
	readErr       error  // nil: open. io.EOF comes after what is in
	writeErr      error  // nil: open
	closed        bool   // by CloseWrite
	readDeadline  deadline
	writeDeadline deadline

	// The session's out.mu guards what follows.
	introduced bool // its opening is sent, or was the peer's
	ended      bool // nothing more is sent
	turn       bool // it may write
	promised   int
	next       *Stream
}

// deadline is a time, and what wakes who waits at it.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set is called with the stream's mu.
func (d *deadline) set(t time.Time, token chan struct{}) {
	d.at = t
	left := time.Until(t)
	switch {
	case t.IsZero() || left <= 0:
		if d.timer != nil {
			d.timer.Stop()
		}
		if !t.IsZero() {
			wake(token)
		}
	case d.timer == nil:
		d.timer = time.AfterFunc(left, func() { wake(token) })
	default:
		d.timer.Reset(left)
	}
}

// nearby is a round trip for which the protocol's own window is enough to begin with. More would
// only be read ahead of the stream's reader, and be in the way of other streams' bytes, in the
// caches and in the turn of goroutines.
const nearby = 2 * time.Millisecond

func newStream(s *Session, id uint32, own bool) *Stream {
	window := s.cfg.Window
	if rtt := s.rtt(); rtt > 0 && rtt < nearby {
		window = initialWindow
	}
	st := &Stream{
		id: id, own: own, session: s, introduced: !own, window: window, credit: window, room: initialWindow,
		extra:    window - initialWindow,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1), epoch: time.Now(),
	}
	st.unacknowledged.Store(own)
	return st
}

// ID returns the stream's number.
func (st *Stream) ID() uint32 { return st.id }

// Read takes bytes that have arrived, or waits for some. io.EOF comes only after the peer's
// CloseWrite.
func (st *Stream) Read(p []byte) (int, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	if err := st.await(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		st.mu.Unlock()
		return 0, nil
	}
	n := 0
	for n < len(p) && st.in.unread > 0 {
		m := copy(p[n:], st.in.head())
		st.in.take(m)
		n += m
	}
	st.restock()
	return n, nil
}

// Next returns bytes that have arrived, or waits for some. They are valid until the next call of
// Next, Read or Release.
func (st *Stream) Next() ([]byte, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	if err := st.await(); err != nil {
		return nil, err
	}
	p := st.in.head()
	st.in.lent = len(p)
	st.mu.Unlock()
	return p, nil
}

// Buffered returns how many bytes a Read would find.
func (st *Stream) Buffered() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.in.unread - st.in.lent
}

// await waits until there is something to read, and returns with mu, or an error. It takes back
// what was lent.
func (st *Stream) await() error {
	st.mu.Lock()
	if st.in.giveBack() > 0 {
		st.restock()
		st.mu.Lock()
	}
	for {
		switch {
		case st.readErr != nil && (st.readErr != io.EOF || st.in.unread == 0): //nolint:errorlint // io.EOF itself
			defer st.mu.Unlock()
			return st.readErr
		case st.readDeadline.passed():
			st.mu.Unlock()
			return os.ErrDeadlineExceeded
		case st.in.unread > 0:
			return nil
		}
		st.mu.Unlock()
		<-st.readable
		st.mu.Lock()
	}
}

// restock lets the peer send more once half of the window is free. A reader that has taken that
// much within four round trips is as fast as the window lets it be: then the window grows. It
// unlocks mu.
func (st *Stream) restock() {
	current := st.credit + uint32(st.in.unread)
	if st.readErr != nil || current > st.window/2 {
		st.mu.Unlock()
		return
	}
	now := time.Now()
	if rtt := st.session.rtt(); rtt > 0 && now.Sub(st.epoch) < 4*rtt && st.window < st.session.cfg.MaxWindow {
		more := min(st.window, st.session.cfg.MaxWindow-st.window)
		if b := st.session.cfg.Budget; b == nil || b.Reserve(int64(more)) {
			st.window += more
			st.grown += more
		}
	}
	delta := st.window - current
	st.credit += delta
	st.epoch = now
	st.mu.Unlock()
	st.session.sendControl(typeWindow, 0, st.id, delta, atOnce)
}

// Write sends p. It waits while the peer takes no more.
func (st *Stream) Write(p []byte) (int, error) { return st.write(p, atOnce) }

// WriteLater is Write for what the peer does not wait for: p goes out with the next frame of any
// stream, within 5 ms.
func (st *Stream) WriteLater(p []byte) (int, error) { return st.write(p, whenDue) }

func (st *Stream) write(p []byte, how manner) (int, error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	total := 0
	for total < len(p) {
		n, err := st.awaitRoom(min(len(p)-total, maxPayload))
		if err != nil {
			return total, err
		}
		if err := st.session.sendData(st, p[total:total+n], how); err != nil {
			st.mu.Lock()
			st.room += uint32(n) // after a time-out the stream may go on
			err = cmp.Or(st.writeErrorLocked(), err)
			st.mu.Unlock()
			return total, err
		}
		total += n
	}
	return total, nil
}

// awaitRoom waits until something may be sent, and takes up to n bytes of the room.
func (st *Stream) awaitRoom(n int) (int, error) {
	for {
		st.mu.Lock()
		err := st.writeErrorLocked()
		if err == nil && st.room > 0 {
			n = int(min(uint32(n), st.room))
			st.room -= uint32(n)
			st.mu.Unlock()
			return n, nil
		}
		st.mu.Unlock()
		if err != nil {
			return 0, err
		}
		<-st.writable
	}
}

func (st *Stream) writeErrorLocked() error {
	if st.writeErr == nil && st.writeDeadline.passed() {
		return os.ErrDeadlineExceeded
	}
	return st.writeErr
}

// writeError says why nothing can be written.
func (st *Stream) writeError() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.writeErrorLocked()
}

// maySend is called with the session's out.mu.
func (st *Stream) maySend() error {
	switch {
	case st.session.out.over != nil:
		return st.session.out.over
	case st.ended:
		return net.ErrClosed
	}
	return nil
}
