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

// caller is a pod's connection, and what it has sent while it was not certain where to.
type caller struct {
	connection
	to     *claim
	stats  *portStats
	source *relay.Source
	kept   early
	came   time.Time
	hold   time.Time         // until then it waits for a session
	header tunnel.OpenHeader // of its streams
	failed *failure          // why it did not get through
}

// release gives memory back; the connection has ended or is somebody else's.
func (c *caller) release() {
	c.source.Release()
	c.kept.forget()
}

// trial is the client's connection in the hands of relay.Join, together with a stream that the edge
// has not opened yet. Until it has, what the client sends is kept, too, and an abort ends the
// relaying only: the client's connection goes on, to another trial or to an answer of ours.
type trial struct {
	*caller
	far     *trialStream
	wait    unanswered
	again   []byte // a copy of what is kept from an earlier trial: that memory goes back when the stream is open
	settled chan struct{}

	open atomic.Bool // set with mu
	mu   sync.Mutex
	over bool // before it was open
	gone bool // the client broke off before it was open
}

func newTrial(c *caller, st *tunnel.Stream) *trial {
	t := &trial{caller: c, again: bytes.Clone(c.kept.buf), settled: make(chan struct{})}
	t.far = &trialStream{Stream: st, near: t}
	return t
}

// Next returns what the client has sent, and keeps it until the stream is open.
func (t *trial) Next() ([]byte, error) {
	next := t.source.Next
	if !t.open.Load() || t.again != nil {
		next = t.keepNext
	}
	p, err := next()
	if len(p) > 0 && t.to.scheme == "http" && t.open.Load() { // the client waits for an answer
		t.wait.asked()
	}
	return p, err
}

func (t *trial) keepNext() ([]byte, error) {
	if p := t.again; len(p) > 0 {
		t.again = nil
		return p, nil
	}
	if err := t.awaitRoom(); err != nil {
		return nil, err
	}
	p, err := t.source.Next()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open.Load() {
		return p, err
	}
	if len(p) > 0 {
		t.kept.add(p)
	}
	switch {
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded): // that of Abort
	case errors.Is(err, io.EOF):
		t.kept.eof = true
	default:
		t.gone = true // reported once by the system: a later read would look like the client's regular end
	}
	return p, err
}

// awaitRoom waits until more may be read; io.EOF if the client has sent everything.
func (t *trial) awaitRoom() error {
	t.mu.Lock()
	eof, wait := t.kept.eof, !t.open.Load() && t.kept.full()
	t.mu.Unlock()
	switch {
	case eof:
		return io.EOF
	case wait:
		t.source.Release()
		<-t.settled
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// opened makes the trial the client's only one. It returns false if the trial is over.
func (t *trial) opened() bool {
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return false
	}
	asks := t.to.scheme == "http" && len(t.kept.buf) > 0
	t.open.Store(true)
	close(t.settled)
	t.kept.forget()
	t.mu.Unlock()
	if !asks {
		t.wait.answered()
	}
	return true
}

// waitUntil bounds the wait for the edge to open the stream. It returns false if the edge has.
func (t *trial) waitUntil(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open.Load() {
		return false
	}
	_ = t.far.SetReadDeadline(at)
	return true
}

// Abort ends the relaying, and once the stream is open the client's connection.
func (t *trial) Abort() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.open.Load():
		reset(t.connection)
	case !t.over:
		t.over = true
		close(t.settled)
		return t.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

// isOpen says whether the edge has opened the stream.
func (t *trial) isOpen() bool { return t.open.Load() }

// end leaves the client's connection as it was before a trial that is over, and says why the stream
// never opened. An abort may still be under way, that of a context when relay.Join has returned: it
// is without effect from now on.
func (t *trial) end() error {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	_ = t.SetReadDeadline(time.Time{})
	if t.gone {
		return errClientGone
	}
	return t.far.err
}

// Close ends the client's connection if the stream has been open.
func (t *trial) Close() error {
	if !t.isOpen() {
		return nil
	}
	return t.connection.Close()
}

// trialStream is the other end.
type trialStream struct {
	*tunnel.Stream
	near *trial
	open bool
	err  error // why it never opened
}

// Next returns what the edge has sent, after it has opened the stream.
func (s *trialStream) Next() ([]byte, error) {
	if !s.open {
		if s.err = s.WaitOpened(context.Background()); s.err != nil {
			return nil, s.err
		}
		at := s.near.came // of http, so that it is before whatever the edge tells of its requests
		if s.near.to.scheme != "http" {
			at = time.Now()
		}
		if s.err = net.ErrClosed; !s.near.opened() {
			return nil, s.err
		}
		s.err, s.open = nil, true
		s.near.stats.opened(at)
		_ = s.SetReadDeadline(time.Time{})
	}
	p, err := s.Stream.Next()
	if len(p) > 0 {
		s.near.wait.answered()
	}
	return p, err
}

// CloseWrite says that the client sends no more. The edge's HTTP server does not wait for the end
// of a client that it has finished with.
func (s *trialStream) CloseWrite() error {
	if s.near.to.scheme == "http" && s.SawEOF() {
		return s.CloseWriteLater()
	}
	return s.Stream.CloseWrite()
}
