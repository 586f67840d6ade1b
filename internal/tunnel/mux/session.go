// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// Conn is the connection below a session. At most one goroutine reads and one writes at a time;
// Close makes both return.
type Conn interface {
	io.Reader
	// WriteFrames writes head and then payload, which may be nil. It keeps neither.
	WriteFrames(head, payload []byte) error
	// SetWriteDeadline is as in net.Conn.
	SetWriteDeadline(t time.Time) error
	Close() error
}

// Budget bounds by how much the windows of all sessions grow. It is safe for concurrent use.
type Budget interface {
	Reserve(n int64) bool // reserves n bytes; false: the budget is used up
	Release(n int64)
}

// Config configures a session. The zero value is a server's with the defaults.
type Config struct {
	Client     bool          // Client makes the ids of this side's streams odd.
	Window     uint32        // a stream's initial receive window in bytes, at least 256 KiB; 0 = 1 MiB
	MaxWindow  uint32        // largest receive window, reached while the reader is as fast as the peer; 0 = 16 MiB
	Budget     Budget        // limit of growth beyond Window; nil = unlimited
	MaxStreams int           // concurrent streams of the peer, beyond which new ones are reset; 0 = 65,536
	Backlog    int           // streams that wait for Accept or Serve, beyond which new ones are reset; 0 = 4096
	KeepAlive  time.Duration // idle time (up to a third more) after which a ping is sent; 0 = 15 s
	Timeout    time.Duration // limit of a write (up to half more) and of a ping, after which the session ends; 0 = 30 s

	// OnProbe is called when the session pings a peer that has been silent while calls wait for it.
	// OnResponsiveness is called when the result of Unresponsive has changed. Neither may block;
	// both may be nil.
	OnProbe, OnResponsiveness func()
}

const (
	defaultBacklog = 4096 // SYNs that the peer has not acknowledged
	readBuffer     = 4 << 10
)

// ErrKeepAlive means that the peer was silent for Config.KeepAlive, and for Config.Timeout after a
// ping.
var ErrKeepAlive = errors.New("the peer does not answer")

var (
	errClosed     = errors.New("the session was closed")
	errNoStreamID = errors.New("the connection has no number left for a stream")
)

// Session multiplexes streams over one connection. All methods are safe for concurrent use.
type Session struct {
	conn Conn
	cfg  Config

	done        chan struct{}
	goroutines  sync.WaitGroup
	endOnce     sync.Once
	synSlots    chan struct{} // synSlots holds a token for each SYN that is not acknowledged.
	acceptReady chan struct{} // acceptReady gets a token when a stream can be accepted.

	mu            sync.Mutex // guards what follows
	err           error      // why the session has ended; nil while it lives
	streams       map[uint32]*Stream
	remoteStreams int // number of streams that the peer opened
	nextID        uint32
	accepted      []*Stream // streams that wait for Accept or Serve
	serveFunc     func(*Stream)

	sendq   sendQueue
	ping    pinger
	monitor peerMonitor
}

// New starts a session on c.
func New(c Conn, cfg Config) *Session {
	cfg.Window = max(cmp.Or(cfg.Window, 1<<20), initialWindow)
	cfg.MaxWindow = max(cmp.Or(cfg.MaxWindow, 16<<20), cfg.Window)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 65536)
	cfg.Backlog = cmp.Or(cfg.Backlog, defaultBacklog)
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 15*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	s := &Session{
		conn: c, cfg: cfg, done: make(chan struct{}), synSlots: make(chan struct{}, defaultBacklog),
		acceptReady: make(chan struct{}, 1),
		streams:     make(map[uint32]*Stream), nextID: 2,
	}
	if cfg.Client {
		s.nextID = 1
	}
	s.sendq.session, s.ping.session, s.monitor.session = s, s, s
	s.ping.start()
	s.goroutines.Go(func() { s.fail(s.readFrames()) })
	s.ping.send() // measures the first round trip
	return s
}

// Open opens a stream and sends first, of at most 64 KiB, in one write with the SYN. It waits for
// its turn to write, and while 4,096 SYNs are not acknowledged by the peer; ctx ends these waits,
// but not a write to the connection that has begun. The session ends when its 2^31 stream ids are
// used up.
func (s *Session) Open(ctx context.Context, first []byte) (*Stream, error) {
	return s.open(ctx, first, flushNow)
}

// OpenLater is Open for a caller that is about to write more: the SYN is sent with those bytes, or
// with the next frame of any stream, within 5 ms.
func (s *Session) OpenLater(ctx context.Context, first []byte) (*Stream, error) {
	return s.open(ctx, first, flushDelayed)
}

func (s *Session) open(ctx context.Context, first []byte, mode flushMode) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case s.synSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.done:
		return nil, s.endError()
	}
	st, err := s.newLocalStream()
	if err != nil {
		<-s.synSlots
		if err == errNoStreamID { //nolint:errorlint // never wrapped
			s.fail(err) // the next connection starts with new ids
		}
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = st.Reset(0) })
	if _, err = st.write(first, mode); err == nil && len(first) == 0 {
		err = s.sendq.sendData(st, nil, mode)
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = st.Reset(0)
		return nil, err
	}
	return st, nil
}

// newLocalStream adds a stream that this side opens.
func (s *Session) newLocalStream() (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.wrapEndReason(s.err)
	}
	if s.nextID >= math.MaxUint32-1 {
		return nil, errNoStreamID
	}
	st := newStream(s, s.nextID, true)
	s.nextID += 2
	s.streams[st.id] = st
	return st, nil
}

// Accept waits for a stream that the peer opens.
func (s *Session) Accept() (*Stream, error) {
	for {
		s.mu.Lock()
		if len(s.accepted) > 0 {
			st := s.accepted[0]
			s.accepted = s.accepted[1:]
			if len(s.accepted) > 0 {
				wake(s.acceptReady) // for the next Accept
			}
			s.mu.Unlock()
			return st, nil
		}
		s.mu.Unlock()
		select {
		case <-s.acceptReady:
		case <-s.done:
			return nil, s.endError()
		}
	}
}

// Serve makes f handle the peer's streams from now on: those that wait for Accept at once, further
// ones as they arrive. f runs on the goroutine that reads the connection and must not block.
func (s *Session) Serve(f func(*Stream)) {
	s.mu.Lock()
	waiting := s.accepted
	s.accepted, s.serveFunc = nil, f
	s.mu.Unlock()
	for _, st := range waiting {
		f(st)
	}
}

// NumStreams returns the number of streams that are open in at least one direction.
func (s *Session) NumStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Queued returns how many bytes are pending or being written.
func (s *Session) Queued() int64 { return s.sendq.queued() }

// OnUnresponsive calls f once, unless stop is called before, when the peer has not answered a ping
// for a second (three where round trips are slow) and has sent nothing else; at once if that is
// already so. f must not block. The session continues: Config.KeepAlive and Config.Timeout end it.
func (s *Session) OnUnresponsive(f func()) (stop func()) { return s.monitor.onUnresponsive(f) }

// Unresponsive reports whether the peer is unresponsive, and since when a ping has had no answer.
func (s *Session) Unresponsive() (since time.Time, yes bool) { return s.monitor.isUnresponsive() }

// Probe pings the peer to detect whether it is unresponsive although no call waits.
func (s *Session) Probe() { s.monitor.probe() }

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session has ended, or nil while it lives.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and its streams at once, and waits until all its goroutines have ended.
// Callbacks of the session must not call it. The first reason counts; nil stands for a default.
func (s *Session) Close(reason error) {
	s.fail(cmp.Or(reason, errClosed))
	s.goroutines.Wait()
}

// fail is Close without waiting for the session's goroutines, which call it.
func (s *Session) fail(reason error) { s.endOnce.Do(func() { s.shutdown(reason) }) }

func (s *Session) shutdown(reason error) {
	s.mu.Lock()
	s.err = reason
	streams := s.streams
	s.streams, s.accepted = nil, nil
	s.mu.Unlock()
	close(s.done)
	endErr := s.wrapEndReason(reason)
	s.sendq.stop(endErr)
	s.ping.stop()
	s.monitor.stop()
	for _, st := range streams { // before the connection, whose TLS close may take seconds
		st.closeWithError(endErr)
	}
	_ = s.conn.Close()
}

// endError returns the error that callers get after the session has ended.
func (s *Session) endError() error { return s.wrapEndReason(s.Err()) }

// wrapEndReason hides what the reason wraps: a broken connection is not the end of a stream, not a
// timeout of a call, and was not closed by the caller.
//
//nolint:errorlint // see above
func (s *Session) wrapEndReason(reason error) error {
	return fmt.Errorf("the connection broke: %v", reason)
}

// removeStream removes a stream that has ended in both directions.
func (s *Session) removeStream(st *Stream) {
	s.mu.Lock()
	if s.streams[st.id] == st { // the peer may have used the id again
		delete(s.streams, st.id)
		if !st.local {
			s.remoteStreams--
		}
	}
	s.mu.Unlock()
	if st.local && st.unacknowledged.Swap(false) {
		<-s.synSlots
	}
}
