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
	"sync/atomic"
	"time"
)

// Conn is what a session runs over. One goroutine reads and one writes at a time; Close makes both
// return.
type Conn interface {
	io.Reader
	// WriteFrames writes head, and then payload, which may be nil. Neither is touched after it
	// returns.
	WriteFrames(head, payload []byte) error
	// SetWriteDeadline is that of net.Conn.
	SetWriteDeadline(t time.Time) error
	Close() error
}

// Budget bounds what the windows of all sessions take together. It is safe for concurrent use.
type Budget interface {
	Reserve(n int64) bool // n more bytes; false: there are none to be had
	Release(n int64)
}

// Config says how a session works.
type Config struct {
	Client     bool          // this side's streams have odd numbers
	Window     uint32        // a stream's receive window in bytes, at least 256 KiB; 0 = 1 MiB
	MaxWindow  uint32        // to which it grows while its reader keeps up; 0 = 16 MiB
	Budget     Budget        // is asked before a window grows beyond Window; nil = it may
	MaxStreams int           // of the peer's at a time, beyond which they are reset; 0 = 65,536
	Backlog    int           // of these that wait for Accept or Serve, beyond which they are reset; 0 = 4096
	KeepAlive  time.Duration // a ping after so long (and up to a third more) without a frame; 0 = 15 s
	Timeout    time.Duration // of a write (and up to half more), and of a ping's answer, then the session ends; 0 = 30 s

	// OnProbe is called when the session pings a peer that has been silent while calls wait for it.
	// OnResponsiveness is called when the result of Unresponsive has changed. Neither may block; both
	// may be nil.
	OnProbe, OnResponsiveness func()
}

const (
	backlog    = 4096 // openings that the peer has not acknowledged
	readBuffer = 4 << 10
)

// ErrKeepAlive says that the peer was silent for KeepAlive, and then for Timeout after a ping.
var ErrKeepAlive = errors.New("the peer does not answer")

var (
	errClosed  = errors.New("the session was closed")
	errNumbers = errors.New("the connection has no number left for a stream")
)

// Session is a connection and its streams. All methods are safe for concurrent use.
type Session struct {
	conn Conn
	cfg  Config

	done    chan struct{}
	running sync.WaitGroup
	ending  sync.Once
	opening chan struct{} // a token for each opening that is not acknowledged
	news    chan struct{} // gets a token when a stream is to be accepted

	mu       sync.Mutex // guards what follows
	err      error      // why it has ended
	streams  map[uint32]*Stream
	foreign  int // of streams: the peer's
	nextID   uint32
	accepted []*Stream // wait for Accept or Serve
	serve    func(*Stream)

	out   outbox
	ping  pinger
	watch watch

	heard atomic.Uint32 // what looks at it, when something has come since it last did
}

// New starts a session.
func New(c Conn, cfg Config) *Session {
	cfg.Window = max(cmp.Or(cfg.Window, 1<<20), initialWindow)
	cfg.MaxWindow = max(cmp.Or(cfg.MaxWindow, 16<<20), cfg.Window)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 65536)
	cfg.Backlog = cmp.Or(cfg.Backlog, backlog)
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 15*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	s := &Session{
		conn: c, cfg: cfg, done: make(chan struct{}), opening: make(chan struct{}, backlog), news: make(chan struct{}, 1),
		streams: make(map[uint32]*Stream), nextID: 2,
	}
	if cfg.Client {
		s.nextID = 1
	}
	s.keepAlive()
	s.running.Go(func() { s.fail(s.read()) })
	s.sendPing() // the first time of a round trip
	return s
}

// Open opens a stream and sends first, of at most 64 KiB, in one go with the opening. It waits for
// its turn to write, and while the peer has not acknowledged 4,096 openings; ctx ends that, but not
// a write to the connection that has begun. A session whose numbers are used up, which are 2^31,
// ends.
func (s *Session) Open(ctx context.Context, first []byte) (*Stream, error) {
	return s.open(ctx, first, atOnce)
}

// OpenLater is Open for who is about to write more: the opening goes out with that, or with the
// next frame of any stream, within 5 ms.
func (s *Session) OpenLater(ctx context.Context, first []byte) (*Stream, error) {
	return s.open(ctx, first, whenDue)
}

func (s *Session) open(ctx context.Context, first []byte, how manner) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.done:
		return nil, s.broken()
	}
	st, err := s.register()
	if err != nil {
		<-s.opening
		if err == errNumbers { //nolint:errorlint // itself
			s.fail(err) // the next connection has all of them
		}
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = st.Reset(0) })
	if _, err = st.write(first, how); err == nil && len(first) == 0 {
		err = s.sendData(st, nil, how)
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

// register makes a stream of this side's.
func (s *Session) register() (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.brokenBy(s.err)
	}
	if s.nextID >= math.MaxUint32-1 {
		return nil, errNumbers
	}
	st := newStream(s, s.nextID, true)
	s.nextID += 2
	s.streams[st.id] = st
	return st, nil
}

// Accept waits for a stream of the peer's.
func (s *Session) Accept() (*Stream, error) {
	for {
		s.mu.Lock()
		if len(s.accepted) > 0 {
			st := s.accepted[0]
			s.accepted = s.accepted[1:]
			if len(s.accepted) > 0 {
				wake(s.news) // the next one's
			}
			s.mu.Unlock()
			return st, nil
		}
		s.mu.Unlock()
		select {
		case <-s.news:
		case <-s.done:
			return nil, s.broken()
		}
	}
}

// Serve has f take the streams of the peer's from now on: those that wait for Accept at once, the
// others as they come, from the goroutine that reads the connection: f must not wait for anything.
func (s *Session) Serve(f func(*Stream)) {
	s.mu.Lock()
	waiting := s.accepted
	s.accepted, s.serve = nil, f
	s.mu.Unlock()
	for _, st := range waiting {
		f(st)
	}
}

// NumStreams returns the number of streams that are open in a direction at least.
func (s *Session) NumStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session has ended, nil while it lives.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and its streams at once, and waits until nothing of it runs: it is not for
// the functions that the session calls. The first reason counts; nil is one, too.
func (s *Session) Close(reason error) {
	s.fail(cmp.Or(reason, errClosed))
	s.running.Wait()
}

// fail is Close without waiting for what runs, which calls it, too.
func (s *Session) fail(reason error) { s.ending.Do(func() { s.end(reason) }) }

func (s *Session) end(reason error) {
	s.mu.Lock()
	s.err = reason
	streams := s.streams
	s.streams, s.accepted = nil, nil
	s.mu.Unlock()
	close(s.done)
	broken := s.brokenBy(reason)
	s.out.mu.Lock()
	s.out.over = broken
	if s.out.lazy != nil {
		s.out.lazy.Stop()
	}
	s.out.mu.Unlock()
	s.ping.stop()
	s.watch.stop()
	for _, st := range streams { // before the connection, whose goodbye may take seconds
		st.cut(broken)
	}
	_ = s.conn.Close()
}

// broken is what users of the session get to know of its end.
func (s *Session) broken() error { return s.brokenBy(s.Err()) }

// brokenBy hides what the reason wraps: a broken connection is no end of a stream, no time-out of a
// call, and not closed by the caller.
//
//nolint:errorlint // see above
func (s *Session) brokenBy(reason error) error { return fmt.Errorf("the connection broke: %v", reason) }

// forget lets go of a stream that has ended in both directions.
func (s *Session) forget(st *Stream) {
	s.mu.Lock()
	if s.streams[st.id] == st { // a peer may have taken the number again
		delete(s.streams, st.id)
		if !st.own {
			s.foreign--
		}
	}
	s.mu.Unlock()
	if st.own && st.unacknowledged.Swap(false) {
		<-s.opening
	}
}
