// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

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

	"github.com/fairlead-dev/fairlead/internal/relay"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// errClientGone: the client broke off before its stream was open.
var errClientGone = errors.New("client gone")

// clientConn is a pod's connection, and what it has sent while it was not certain where to.
type clientConn struct {
	connection
	target          *portAssignment
	stats           *portStats
	source          *relay.Source
	buffered        requestBuffer
	acceptedAt      time.Time
	sessionDeadline time.Time         // until then it waits for a session
	header          tunnel.OpenHeader // of its streams
	failure         *failure          // why it did not get through
}

// release gives memory back; the connection has ended or is somebody else's.
func (c *clientConn) release() {
	c.source.Release()
	c.buffered.free()
}

// attempt is the client's connection in the hands of relay.Join, together with a stream that the edge
// has not opened yet. Until it has, what the client sends is kept, too, and an abort ends the
// relaying only: the client's connection goes on, to another trial or to an answer of ours.
type attempt struct {
	*clientConn
	stream   *attemptStream
	watchdog watchdog
	replay   []byte // a copy of what is kept from an earlier trial: that memory goes back when the stream is open
	decided  chan struct{}

	open       atomic.Bool // set with mu
	mu         sync.Mutex
	ended      bool // before it was open
	clientGone bool // the client broke off before it was open
}

func newAttempt(c *clientConn, st *tunnel.Stream) *attempt {
	t := &attempt{clientConn: c, replay: bytes.Clone(c.buffered.buf), decided: make(chan struct{})}
	t.stream = &attemptStream{Stream: st, attempt: t}
	return t
}

// Next returns what the client has sent, and keeps it until the stream is open.
func (t *attempt) Next() ([]byte, error) {
	next := t.source.Next
	if !t.open.Load() || t.replay != nil {
		next = t.nextBuffered
	}
	p, err := next()
	if len(p) > 0 && t.target.scheme == "http" && t.open.Load() { // the client waits for an answer
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
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded): // that of Abort
	case errors.Is(err, io.EOF):
		t.buffered.eof = true
	default:
		t.clientGone = true // reported once by the system: a later read would look like the client's regular end
	}
	return p, err
}

// awaitBufferSpace waits until more may be read; io.EOF if the client has sent everything.
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

// markOpened makes the trial the client's only one. It returns false if the trial is over.
func (t *attempt) markOpened() bool {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return false
	}
	asks := t.target.scheme == "http" && len(t.buffered.buf) > 0
	t.open.Store(true)
	close(t.decided)
	t.buffered.free()
	t.mu.Unlock()
	if !asks {
		t.watchdog.disarm()
	}
	return true
}

// setOpenDeadline bounds the wait for the edge to open the stream. It returns false if the edge has.
func (t *attempt) setOpenDeadline(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open.Load() {
		return false
	}
	_ = t.stream.SetReadDeadline(at)
	return true
}

// Abort ends the relaying, and once the stream is open the client's connection.
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

// isOpen says whether the edge has opened the stream.
func (t *attempt) isOpen() bool { return t.open.Load() }

// finish leaves the client's connection as it was before a trial that is over, and says why the stream
// never opened. An abort may still be under way, that of a context when relay.Join has returned: it
// is without effect from now on.
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

// Close ends the client's connection if the stream has been open.
func (t *attempt) Close() error {
	if !t.isOpen() {
		return nil
	}
	return t.connection.Close()
}

// attemptStream is the other end.
type attemptStream struct {
	*tunnel.Stream
	attempt *attempt
	open    bool
	err     error // why it never opened
}

// Next returns what the edge has sent, after it has opened the stream.
func (s *attemptStream) Next() ([]byte, error) {
	if !s.open {
		if s.err = s.WaitOpened(context.Background()); s.err != nil {
			return nil, s.err
		}
		at := s.attempt.acceptedAt // of http, so that it is before whatever the edge tells of its requests
		if s.attempt.target.scheme != "http" {
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

// CloseWrite says that the client sends no more. The edge's HTTP server does not wait for the end
// of a client that it has finished with.
func (s *attemptStream) CloseWrite() error {
	if s.attempt.target.scheme == "http" && s.SawEOF() {
		return s.CloseWriteLater()
	}
	return s.Stream.CloseWrite()
}
