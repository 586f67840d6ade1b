// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// errClientGone reports that the client aborted its connection before the stream was open.
var errClientGone = errors.New("client gone")

// clientConn is an accepted connection and the input that was read before its stream was open.
type clientConn struct {
	connection
	target          *portAssignment
	stats           *portStats
	source          *relay.Source
	buffered        requestBuffer
	acceptedAt      time.Time
	sessionDeadline time.Time         // end of the wait for a session
	header          tunnel.OpenHeader // header of the connection's streams
	pod             *caller.Pod       // pod that opened the connection; nil: unknown
	revoked         atomic.Bool       // revoked is set when a change of rules or labels ended the connection.
	failure         *failure          // reason why no stream opened; nil while one may
	refusedBy       string            // replica of the edge that refused the last stream as it drains
}

// clientIP returns the client's address; it is invalid for a connection without one.
func (c *clientConn) clientIP() netip.Addr {
	from, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return from.AddrPort().Addr().Unmap()
}

// caller returns NAMESPACE/NAME of the pod, or the address of an unknown caller.
func (c *clientConn) caller() string {
	if c.pod == nil {
		return c.clientIP().String()
	}
	return c.pod.Namespace + "/" + c.pod.Name
}

// release frees the buffers. The connection has ended or belongs to another owner.
func (c *clientConn) release() {
	c.source.Release()
	c.buffered.free()
}

// attempt relays a client's connection over one stream that the edge may yet refuse; relay.Join
// runs it. Until the edge opens the stream, the client's input is also buffered, and an abort ends
// only the attempt: the client's connection continues with another attempt or an error response.
type attempt struct {
	*clientConn
	stream   *attemptStream
	watchdog watchdog
	replay   []byte // copy of the input that earlier attempts read: opening the stream frees the buffer
	// decided is closed when the stream is open or the attempt has ended.
	decided chan struct{}

	open       atomic.Bool // open is set with mu held.
	mu         sync.Mutex
	ended      bool // ended is set when the attempt ended before the stream was open.
	clientGone bool // clientGone is set when the client aborted before the stream was open.
	givenUp    bool // givenUp is set by giveUp.
}

func newAttempt(c *clientConn, st *tunnel.Stream) *attempt {
	t := &attempt{clientConn: c, replay: bytes.Clone(c.buffered.buf), decided: make(chan struct{})}
	t.stream = &attemptStream{Stream: st, attempt: t}
	return t
}

// Next returns the client's input, and buffers it until the stream is open.
func (t *attempt) Next() ([]byte, error) {
	next := t.source.Next
	if !t.open.Load() || t.replay != nil {
		next = t.nextBuffered
	}
	p, err := next()
	if len(p) > 0 && t.target.Scheme == "http" && t.open.Load() { // the client expects a response
		t.watchdog.arm()
	}
	return p, err
}

func (t *attempt) nextBuffered() ([]byte, error) {
	if p := t.replay; len(p) > 0 {
		t.replay = nil
		return p, nil
	}
	if err := t.awaitBufferSpace(); err != nil {
		return nil, err
	}
	p, err := t.source.Next()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open.Load() {
		return p, err
	}
	if len(p) > 0 {
		t.buffered.add(p)
	}
	switch {
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded): // set by Abort
	case errors.Is(err, io.EOF):
		t.buffered.eof = true
	default:
		t.clientGone = true // the kernel reports it once; a later read returns io.EOF
	}
	return p, err
}

// awaitBufferSpace waits until more input may be read. It returns io.EOF if the client has sent
// everything.
func (t *attempt) awaitBufferSpace() error {
	t.mu.Lock()
	eof, wait := t.buffered.eof, !t.open.Load() && t.buffered.full()
	t.mu.Unlock()
	switch {
	case eof:
		return io.EOF
	case wait:
		t.source.Release()
		<-t.decided
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// markOpened commits the client's connection to this attempt. It returns false if the attempt has
// ended.
func (t *attempt) markOpened() bool {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return false
	}
	asks := t.target.Scheme == "http" && len(t.buffered.buf) > 0
	t.open.Store(true)
	close(t.decided)
	t.buffered.free()
	t.mu.Unlock()
	if !asks {
		t.watchdog.disarm()
	}
	return true
}

// setOpenDeadline bounds the wait for the edge to open the stream. It returns false if the stream
// is open.
func (t *attempt) setOpenDeadline(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open.Load() {
		return false
	}
	_ = t.stream.SetReadDeadline(at)
	return true
}

// Abort ends the attempt or, once the stream is open, resets the client's connection.
func (t *attempt) Abort() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.open.Load():
		reset(t.connection)
	case !t.ended:
		t.ended = true
		close(t.decided)
		return t.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

// isOpen reports whether the edge has opened the stream.
func (t *attempt) isOpen() bool { return t.open.Load() }

// finish makes the client's connection usable again after an attempt that failed, and returns why
// the stream never opened. A concurrent Abort, such as that of a context when relay.Join has
// returned, has no effect afterwards.
func (t *attempt) finish() error {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	_ = t.SetReadDeadline(time.Time{})
	if t.clientGone {
		return errClientGone
	}
	return t.stream.err
}

// Close closes the client's connection if the stream was open.
func (t *attempt) Close() error {
	if !t.isOpen() {
		return nil
	}
	return t.connection.Close()
}

// attemptStream is the edge's end of an attempt.
type attemptStream struct {
	*tunnel.Stream
	attempt *attempt
	open    bool
	err     error // error that kept the stream from opening
}

// Next waits until the edge has opened the stream, and then returns what the edge sends.
func (s *attemptStream) Next() ([]byte, error) {
	if !s.open {
		if s.err = s.WaitOpened(context.Background()); s.err != nil {
			return nil, s.err
		}
		at := s.attempt.acceptedAt // for http, so that it precedes what the edge reports about the requests
		if s.attempt.target.Scheme != "http" {
			at = time.Now()
		}
		if s.err = net.ErrClosed; !s.attempt.markOpened() {
			return nil, s.err
		}
		s.err, s.open = nil, true
		s.attempt.stats.recordSuccess(at)
		_ = s.SetReadDeadline(time.Time{})
	}
	p, err := s.Stream.Next()
	if len(p) > 0 {
		s.attempt.watchdog.disarm()
	}
	return p, err
}

// CloseWrite ends the client's direction. For http, an end that follows the edge's own end is sent
// later: the edge's HTTP server does not wait for it.
func (s *attemptStream) CloseWrite() error {
	if s.attempt.target.Scheme == "http" && s.SawEOF() {
		return s.CloseWriteLater()
	}
	return s.Stream.CloseWrite()
}

const (
	// requestBufferLimit is how many bytes of a client are kept until its stream is open; the last
	// read may exceed it by one buffer.
	requestBufferLimit = 64 << 10
	requestBufferSize  = 4 << 10 // the initial size, enough for most requests
)

// requestBuffer holds what a client sent before its stream was open, so that it can be sent again
// on another session and a request can be answered by the forwarder.
type requestBuffer struct {
	buf    []byte
	eof    bool                     // eof is set when the client has sent everything.
	pooled *[requestBufferSize]byte // initial memory of buf; nil: it is not from the pool
}

// requestBufferPool holds the initial memory of buffers; most connections need no more.
var requestBufferPool = sync.Pool{New: func() any { return new([requestBufferSize]byte) }}

// free returns the memory. buf must not be used afterwards.
func (e *requestBuffer) free() {
	if e.pooled != nil {
		requestBufferPool.Put(e.pooled)
	}
	e.buf, e.pooled = nil, nil
}

// add appends client input.
func (e *requestBuffer) add(p []byte) {
	if e.buf == nil {
		e.pooled = requestBufferPool.Get().(*[requestBufferSize]byte)
		e.buf = e.pooled[:0]
	}
	e.buf = append(e.buf, p...)
}

// full reports whether the limit is reached.
func (e *requestBuffer) full() bool { return len(e.buf) >= requestBufferLimit }
