// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"cmp"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Stream is one stream of a Session. One goroutine may read while another writes and others end it;
// concurrent readers, or writers, wait for each other.
type Stream struct {
	id             uint32
	local          bool   // local reports that this side opened the stream.
	extraWindow    uint32 // initial receive window beyond initialWindow, sent with the SYN or ACK
	session        *Session
	unacknowledged atomic.Bool // unacknowledged is set until this side's SYN is acknowledged.
	readable       chan struct{}
	writable       chan struct{}

	reading sync.Mutex // reading serializes readers.
	writing sync.Mutex // writing serializes writers.

	mu            sync.Mutex // guards what follows
	recv          recvBuffer
	windowSize    uint32 // receive window that updates restore
	recvWindow    uint32 // bytes that the peer may send now
	epochStart    time.Time
	windowGrowth  uint32 // growth of the window in bytes, reserved from the budget
	sendWindow    uint32 // bytes that this side may send now
	readErr       error  // error of reads after the buffered bytes; nil: the direction is open
	writeErr      error  // error of writes; nil: the direction is open
	writeClosed   bool   // writeClosed is set by CloseWrite.
	onReset       ResetHandler
	readDeadline  deadline
	writeDeadline deadline

	// The session's sendq.mu guards what follows.
	synSent      bool // synSent is set once this side's SYN was sent, and where the peer opened the stream.
	sendClosed   bool // sendClosed is set once FIN or RST was sent.
	hasTurn      bool // hasTurn is set while the stream has the turn to write.
	waitingBytes int
	nextWaiter   *Stream
}

// deadline is a deadline of reads or writes, and the timer that wakes the waiting one.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set changes the deadline and wakes a call that waits on token when it passes. The stream's mu
// must be held.
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

// lowLatency is the round trip below which streams begin with the protocol's own window. A larger
// one would only be read ahead of the stream's reader and delay the bytes of other streams.
const lowLatency = 2 * time.Millisecond

func newStream(s *Session, id uint32, local bool) *Stream {
	window := s.cfg.Window
	if rtt := s.ping.rtt(); rtt > 0 && rtt < lowLatency {
		window = initialWindow
	}
	st := &Stream{
		id: id, local: local, session: s, synSent: !local, windowSize: window, recvWindow: window,
		sendWindow:  initialWindow,
		extraWindow: window - initialWindow,
		readable:    make(chan struct{}, 1), writable: make(chan struct{}, 1), epochStart: time.Now(),
	}
	st.unacknowledged.Store(local)
	return st
}

// ID returns the stream's id.
func (st *Stream) ID() uint32 { return st.id }

// Read returns bytes that have arrived, or waits for some. It returns io.EOF only after the peer's
// CloseWrite.
func (st *Stream) Read(p []byte) (int, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	if err := st.awaitData(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		st.mu.Unlock()
		return 0, nil
	}
	n := 0
	for n < len(p) && st.recv.unread > 0 {
		m := copy(p[n:], st.recv.head())
		st.recv.discard(m)
		n += m
	}
	st.updateWindow()
	return n, nil
}

// Next is Read without a copy: the bytes are valid until the next call of Next, Read or Release.
func (st *Stream) Next() ([]byte, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	if err := st.awaitData(); err != nil {
		return nil, err
	}
	p := st.recv.head()
	st.recv.lent = len(p)
	st.mu.Unlock()
	return p, nil
}

// Buffered returns how many bytes can be read without waiting.
func (st *Stream) Buffered() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.recv.unread - st.recv.lent
}

// IsIdle reports whether nothing is to be read: neither bytes nor an end or an error.
func (st *Stream) IsIdle() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.readErr == nil && st.recv.unread == st.recv.lent
}

// awaitData waits until there are bytes to read, and returns with mu locked, or an error. It
// discards the bytes that Next has returned before.
func (st *Stream) awaitData() error {
	st.mu.Lock()
	if st.recv.discardLent() > 0 {
		st.updateWindow()
		st.mu.Lock()
	}
	for {
		switch {
		case st.readErr != nil && st.recv.unread == 0:
			defer st.mu.Unlock()
			return st.readErr
		case st.readDeadline.passed():
			st.mu.Unlock()
			return os.ErrDeadlineExceeded
		case st.recv.unread > 0:
			return nil
		}
		st.mu.Unlock()
		<-st.readable
		st.mu.Lock()
	}
}

// updateWindow sends a window update once half of the window is free. When the reader has consumed
// that much within four round trips, the window limits its speed: then the window doubles. It
// unlocks mu.
func (st *Stream) updateWindow() {
	current := st.recvWindow + uint32(st.recv.unread)
	if st.readErr != nil || current > st.windowSize/2 {
		st.mu.Unlock()
		return
	}
	now := time.Now()
	rtt, cfg := st.session.ping.rtt(), &st.session.cfg
	if rtt > 0 && now.Sub(st.epochStart) < 4*rtt && st.windowSize < cfg.MaxWindow {
		more := min(st.windowSize, cfg.MaxWindow-st.windowSize)
		if b := cfg.Budget; b == nil || b.Reserve(int64(more)) {
			st.windowSize += more
			st.windowGrowth += more
		}
	}
	delta := st.windowSize - current
	st.recvWindow += delta
	st.epochStart = now
	st.mu.Unlock()
	st.session.sendq.sendControl(typeWindow, 0, st.id, delta, flushNow)
}

// Write sends p. It waits while the peer's window is full.
func (st *Stream) Write(p []byte) (int, error) { return st.write(p, flushNow) }

// WriteLater is Write without its own write to the connection: small frames are sent with the next
// frame of any stream, within 5 ms.
func (st *Stream) WriteLater(p []byte) (int, error) { return st.write(p, flushDelayed) }

func (st *Stream) write(p []byte, mode flushMode) (int, error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	total := 0
	for total < len(p) {
		n, err := st.reserveSendWindow(min(len(p)-total, maxPayload))
		if err != nil {
			return total, err
		}
		if err := st.session.sendq.sendData(st, p[total:total+n], mode); err != nil {
			st.mu.Lock()
			st.sendWindow += uint32(n) // the stream remains usable after a timeout
			err = cmp.Or(st.writeErrorLocked(), err)
			st.mu.Unlock()
			return total, err
		}
		total += n
	}
	return total, nil
}

// reserveSendWindow waits until the send window is not empty, and reserves up to n bytes of it.
func (st *Stream) reserveSendWindow(n int) (int, error) {
	for {
		st.mu.Lock()
		err := st.writeErrorLocked()
		if err == nil && st.sendWindow > 0 {
			n = int(min(uint32(n), st.sendWindow))
			st.sendWindow -= uint32(n)
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

// WriteError returns why nothing can be written, or nil.
func (st *Stream) WriteError() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.writeErrorLocked()
}

// sendErrorLocked returns why the stream can send nothing more, or nil. The session's sendq.mu must
// be held.
func (st *Stream) sendErrorLocked() error {
	switch {
	case st.session.sendq.closedErr != nil:
		return st.session.sendq.closedErr
	case st.sendClosed:
		return net.ErrClosed
	}
	return nil
}
