// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package relay joins two connections: it copies bytes, half-closes and aborts in both directions.
//
// What comes in: the two ends of a path, from the forwarder (a pod's connection and a tunnel
// stream), the edge (two streams) and the agent (a stream and its upstream), which give up their
// ownership. What goes out: byte counts and the reason of the end.
//
// An end of input becomes CloseWrite on the other side. An error, of either side and in either
// direction, becomes an abort of both, even when this process is killed: a reader must never
// mistake a broken connection for a finished one. What came before the error is delivered. Buffers
// of 64 KiB, the payload of one frame of the tunnel, are pooled and held only while there are bytes
// to copy, so an idle connection holds none; bytes of a tunnel stream are written without a copy.
// On Linux, bytes between two sockets stay in the kernel: see newSplice. There is no lock and no
// allocation per byte.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
)

// HalfCloser is a connection with half-close: *net.TCPConn, *tls.Conn and the tunnel's Stream
// implement it.
type HalfCloser interface {
	net.Conn
	CloseWrite() error
}

// Options configure Join. The zero value has the defaults.
type Options struct {
	// HalfCloseTimeout is how long a connection that is closed in one direction may be idle in the
	// other (up to a quarter more) before it is aborted. 0 = 1 h.
	HalfCloseTimeout time.Duration
}

// Result has the number of copied bytes per direction.
type Result struct{ AToB, BToA int64 }

// ErrIdle means that a half-closed connection was idle for Options.HalfCloseTimeout.
var ErrIdle = errors.New("half-closed connection was idle for too long")

// Join copies in both directions until both have ended or one has failed, then closes both ends. It
// owns a and b. The error is nil after two ordinary ends, else the first of: a read error, a write
// error, ctx's cause, ErrIdle.
func Join(ctx context.Context, a, b HalfCloser, opt Options) (Result, error) {
	if opt.HalfCloseTimeout <= 0 {
		opt.HalfCloseTimeout = time.Hour
	}
	j := &joinState{a: a, b: b, timeout: opt.HalfCloseTimeout}
	j.aToB.from, j.aToB.to, j.aToB.opposite, j.aToB.ended = a, b, &j.bToA, make(chan struct{})
	j.bToA.from, j.bToA.to, j.bToA.opposite, j.bToA.ended = b, a, &j.aToB, make(chan struct{})
	setResetOnClose(a, true)
	setResetOnClose(b, true)
	stop := context.AfterFunc(ctx, func() { j.fail(context.Cause(ctx)) })
	go j.copyOneWay(&j.bToA)
	j.copyOneWay(&j.aToB)
	<-j.bToA.ended
	stop()
	if j.err.Load() == nil {
		setResetOnClose(a, false)
		setResetOnClose(b, false)
	}
	_, _ = a.Close(), b.Close()
	res := Result{AToB: j.aToB.moved.Load(), BToA: j.bToA.moved.Load()}
	if err := j.err.Load(); err != nil {
		return res, *err
	}
	return res, nil
}

// setResetOnClose makes a TCP connection's close, also by the kernel after this process was killed,
// send a RST instead of a FIN, or restores the default.
func setResetOnClose(c net.Conn, reset bool) {
	if t, ok := c.(interface{ SetLinger(int) error }); ok {
		seconds := -1 // the kernel sends the remaining bytes in the background
		if reset {
			seconds = 0
		}
		_ = t.SetLinger(seconds)
	}
}

// joinState is shared by the two directions.
type joinState struct {
	a, b       HalfCloser
	timeout    time.Duration
	aToB, bToA direction
	err        atomic.Pointer[error] // first error of either direction

	mu         sync.Mutex // guards what follows
	ended      int        // directions that have ended
	idleTimer  *time.Timer
	lastMoved  int64 // sum of the counters at the last check
	idleChecks int   // consecutive checks without a change
}

// direction is one of the two directions of a Join.
type direction struct {
	from, to HalfCloser
	opposite *direction
	moved    atomic.Int64  // bytes
	closing  atomic.Bool   // closing is set before to.CloseWrite is called.
	ended    chan struct{} // ended is closed at the end of the direction.
}

// fail aborts both ends in parallel, as the abort of a stream may wait for its tunnel. Only the
// first error counts.
func (j *joinState) fail(err error) {
	if !j.err.CompareAndSwap(nil, &err) {
		return
	}
	var other sync.WaitGroup
	other.Go(func() { Abort(j.a) })
	Abort(j.b)
	other.Wait()
}

// lastBytesTimeout bounds how long a connection that takes no more bytes is read.
const lastBytesTimeout = time.Second

// copyOneWay copies in one direction until the input ends or an error occurs.
func (j *joinState) copyOneWay(d *direction) {
	defer close(d.ended)
	if err := d.copyUntilEOF(); err != nil {
		awaitLastBytes(err, d.opposite.ended)
		j.fail(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended++
	switch {
	case j.ended == 1 && j.err.Load() == nil:
		j.idleTimer = time.AfterFunc(j.timeout/idleChecksPerTimeout, j.checkIdle)
	case j.idleTimer != nil:
		j.idleTimer.Stop()
	}
}

// idleChecksPerTimeout is how often a half-closed connection is checked within its timeout.
const idleChecksPerTimeout = 4

// checkIdle aborts a half-closed connection that has copied nothing for its timeout.
func (j *joinState) checkIdle() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended > 1 {
		return
	}
	j.idleChecks++
	if moved := j.aToB.moved.Load() + j.bToA.moved.Load(); moved != j.lastMoved {
		j.lastMoved, j.idleChecks = moved, 0
	}
	if j.idleChecks >= idleChecksPerTimeout {
		go j.fail(ErrIdle) // an abort may wait for the network
		return
	}
	j.idleTimer.Reset(j.timeout / idleChecksPerTimeout)
}

// copyUntilEOF copies until the input ends, and then half-closes the output.
func (d *direction) copyUntilEOF() error {
	src := NewSource(d.from)
	defer src.Release()
	splice := newSplice(d, src)
	for {
		if splice != nil {
			if err := splice(); err != nil {
				return err
			}
		}
		buf, err := src.Next()
		if len(buf) > 0 {
			if _, err := d.to.Write(buf); err != nil {
				return &writeError{err}
			}
			d.moved.Add(int64(len(buf)))
		}
		switch {
		case err == nil:
		case !connread.IsEOF(err):
			return wrapError("reading", err)
		default:
			return d.endOutput()
		}
	}
}

// endOutput half-closes the output after the end of input. A connection that was reset shows the
// error once: if a write of the opposite direction has got it, the next read returns io.EOF.
func (d *direction) endOutput() error {
	if !d.opposite.closing.Load() && isReset(d.from) {
		return wrapError("reading", syscall.ECONNRESET)
	}
	d.closing.Store(true)
	return wrapError("closing", d.to.CloseWrite())
}

// awaitLastBytes waits after the error of a write until the other direction has ended, for
// lastBytesTimeout at most. A server that has answered and closed without reading everything resets
// its connection: writes to it fail, and its answer can still be read.
func awaitLastBytes(err error, otherEnded <-chan struct{}) {
	var broken *writeError
	if !errors.As(err, &broken) {
		return
	}
	timeout := time.NewTimer(lastBytesTimeout)
	defer timeout.Stop()
	select {
	case <-otherEnded:
	case <-timeout.C:
	}
}

// writeError is the error of a write.
type writeError struct{ cause error }

func (e *writeError) Error() string { return "writing: " + e.cause.Error() }
func (e *writeError) Unwrap() error { return e.cause }

// wrapError is not inlined into copyUntilEOF, whose stack every idle connection keeps.
func wrapError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Abort closes c so that its peer sees an error.
func Abort(c net.Conn) {
	if s, ok := c.(interface{ Abort() error }); ok {
		_ = s.Abort()
		return
	}
	for below := c; ; { // a TLS connection's Close would send close_notify
		switch t := below.(type) {
		case interface{ SetLinger(int) error }:
			_ = t.SetLinger(0)
			_ = below.Close()
		case interface{ NetConn() net.Conn }:
			below = t.NetConn()
			continue
		}
		break
	}
	_ = c.Close()
}

const (
	bufferSize = 64 << 10 // the payload of one frame of the tunnel
	probeSize  = 1 << 10
)

type buffer [bufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Source reads from a connection. It holds a buffer only while there are bytes to read, if the
// connection can be polled. A connection with a Next method lends its own bytes.
type Source struct {
	conn net.Conn
	buf  *buffer // buffer between calls of Next; nil: none is held

	zeroCopy interface{ Next() ([]byte, error) } // set for a connection that lends its bytes: a tunnel stream

	raw  syscall.RawConn // set for a socket that can be polled
	poll func(fd uintptr) bool
	n    int
	err  error

	probe []byte // buffer of a small first read, for any other connection
	bulk  bool   // bulk is set if the last read filled at least probe.
}

// NewSource returns a Source of c. No other reader of c is allowed.
func NewSource(c net.Conn) *Source {
	s := &Source{conn: c}
	if zeroCopy, ok := c.(interface{ Next() ([]byte, error) }); ok {
		s.zeroCopy = zeroCopy
		return s
	}
	if tcp, ok := c.(*net.TCPConn); ok && connread.CanPoll {
		if raw, err := tcp.SyscallConn(); err == nil {
			s.raw, s.poll = raw, s.pollRead
			return s
		}
	}
	s.probe = make([]byte, probeSize)
	return s
}

// Next returns bytes, valid until the next call of Next or Release, or an error, or both. The end
// of input is io.EOF, never wrapped.
func (s *Source) Next() ([]byte, error) {
	switch {
	case s.zeroCopy != nil:
		return s.zeroCopy.Next()
	case s.raw != nil:
		s.n, s.err = 0, nil
		if err := s.raw.Read(s.poll); err != nil {
			return nil, err
		}
		if s.buf == nil {
			return nil, s.err
		}
		return s.buf[:s.n], s.err
	default:
		return s.readProbed()
	}
}

// pollRead reads the bytes that are available. It holds a buffer only when there are some, and
// returns false to wait for them.
func (s *Source) pollRead(fd uintptr) (ready bool) {
	s.acquireBuffer()
	if s.n, ready, s.err = connread.Available(fd, s.buf[:]); s.n == 0 {
		s.Release()
	}
	return ready
}

// readProbed reads with the small buffer first, and with a large one while much arrives.
func (s *Source) readProbed() ([]byte, error) {
	b := s.probe
	if s.bulk {
		s.acquireBuffer()
		b = s.buf[:]
	} else {
		s.Release()
	}
	n, err := s.conn.Read(b)
	s.bulk = n >= probeSize
	return b[:n], err
}

func (s *Source) acquireBuffer() {
	if s.buf == nil {
		s.buf = buffers.Get().(*buffer)
	}
}

// Release returns the buffer to the pool, and ends the use of what a connection has lent.
func (s *Source) Release() {
	if lender, ok := s.zeroCopy.(interface{ ReleaseNext() }); ok {
		lender.ReleaseNext()
	}
	if s.buf != nil {
		buffers.Put(s.buf)
		s.buf = nil
	}
}
