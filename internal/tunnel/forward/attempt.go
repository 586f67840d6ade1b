// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// errClientGone reports that the client aborted its connection before the stream was open.
var errClientGone = errors.New("client gone")

// Conn is an accepted connection and the input that was read before its stream was open.
type Conn struct {
	Connection

	URL             account.EndpointURL // URL of the endpoint that is called
	Header          tunnel.OpenHeader   // header of the connection's streams
	Stats           Stats
	SessionDeadline time.Time // end of the wait for a session

	acceptedAt time.Time
	source     *relay.Source
	buffered   requestBuffer
	refusedBy  string // replica of the edge that refused the last stream as it drains
}

// Release frees the buffers. The connection has ended or belongs to another owner.
func (c *Conn) Release() {
	c.source.Release()
	c.buffered.free()
}

// attempt relays a client's connection over one stream that the edge may yet refuse; relay.Join
// runs it. Until the edge opens the stream, the client's input is also buffered, and an abort ends
// only the attempt: the client's connection continues with another attempt or an error response.
type attempt struct {
	*Conn
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

func newAttempt(c *Conn, st *tunnel.Stream) *attempt {
	t := &attempt{Conn: c, replay: bytes.Clone(c.buffered.buf), decided: make(chan struct{})}
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
	if len(p) > 0 && t.URL.Scheme == "http" && t.open.Load() { // the client expects a response
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
	asks := t.URL.Scheme == "http" && len(t.buffered.buf) > 0
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
		Reset(t.Connection)
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
	return t.Connection.Close()
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
		if s.attempt.URL.Scheme != "http" {
			at = time.Now()
		}
		if s.err = net.ErrClosed; !s.attempt.markOpened() {
			return nil, s.err
		}
		s.err, s.open = nil, true
		s.attempt.Stats.Opened(at)
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
	if s.attempt.URL.Scheme == "http" && s.SawEOF() {
		return s.CloseWriteLater()
	}
	return s.Stream.CloseWrite()
}

const (
	// BufferLimit is how many bytes of a client are kept until its stream is open; the last read may
	// exceed it by one buffer.
	BufferLimit = 64 << 10
	// BufferSize is the initial size of that buffer, enough for most requests.
	BufferSize = 4 << 10
)

// requestBuffer holds what a client sent before its stream was open, so that it can be sent again
// on another session and a request can be answered by the forwarder.
type requestBuffer struct {
	buf    []byte
	eof    bool              // eof is set when the client has sent everything.
	pooled *[BufferSize]byte // initial memory of buf; nil: it is not from the pool
}

// requestBufferPool holds the initial memory of buffers; most connections need no more.
var requestBufferPool = sync.Pool{New: func() any { return new([BufferSize]byte) }}

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
		e.pooled = requestBufferPool.Get().(*[BufferSize]byte)
		e.buf = e.pooled[:0]
	}
	e.buf = append(e.buf, p...)
}

// full reports whether the limit is reached.
func (e *requestBuffer) full() bool { return len(e.buf) >= BufferLimit }
