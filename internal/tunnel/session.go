// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxConnections bounds the connections of a session.
const maxConnections = 16

// side is what differs between the two ends of a session.
type side interface {
	// message takes a control message that Session does not handle itself. An error ends the
	// connection.
	message(l *link, m *message) error
	// line takes a request line.
	line(l RequestLine)
	// stream serves a stream of the peer's, with its header read.
	stream(ctx context.Context, st *Stream)
	// responsiveness is called when what Session.Unresponsive returns may have changed. It does not
	// block.
	responsiveness(s *Session)
	// ended is called once, when the last connection is gone.
	ended(s *Session, err error)
}

// Session is one peer over one or more connections. All methods are safe for concurrent use.
type Session struct {
	side    side
	client  bool // this side dials
	hello   Hello
	welcome Welcome
	remote  net.Addr

	streams atomic.Int64
	idle    chan struct{} // gets a token when the last stream ends
	// gets a token when the number of connections, or of those that the traffic asks for, changes
	look         chan struct{}
	done         chan struct{}
	peerDraining chan struct{}

	mu        sync.Mutex // guards what follows
	links     []*link    // that take new streams
	leaving   []*link    // that take none any more: they are being given up
	live      int        // connections that have not ended, at least len(links)+len(leaving)
	wish      wish
	draining  bool
	peerSaid  bool // peerDraining is closed
	closing   bool // no new connection, no new stream
	finished  bool // the last connection is gone
	err       error
	pending   map[uint64]chan *message // the client's requests, by id
	requestID uint64

	startLines sync.Once
	lines      chan RequestLine // that wait to be sent
}

func newSession(side side, client bool, hello Hello, welcome Welcome, remote net.Addr) *Session {
	hello.Token, hello.JoinSecret = "", ""
	return &Session{
		side: side, client: client, hello: hello, welcome: welcome, remote: remote,
		idle: make(chan struct{}, 1), look: make(chan struct{}, 1),
		done: make(chan struct{}), peerDraining: make(chan struct{}),
		pending: make(map[uint64]chan *message),
		lines:   make(chan RequestLine, 256),
	}
}

// ID returns the session's id.
func (s *Session) ID() string { return s.welcome.SessionID }

// Role returns what the dialling side is.
func (s *Session) Role() Role { return s.hello.Role }

// Hello returns the client's first message without its secrets.
func (s *Session) Hello() Hello { return s.hello }

// Welcome returns the server's answer; without the join secret on the server's side.
func (s *Session) Welcome() Welcome { return s.welcome }

// RemoteAddr returns the peer's address on the session's first connection.
func (s *Session) RemoteAddr() net.Addr { return s.remote }

// Streams returns the number of live data streams, of both sides.
func (s *Session) Streams() int { return int(s.streams.Load()) }

// Done is closed when the last connection has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// PeerDraining is closed when the peer said that it stops. Nothing new can be opened towards it
// then.
func (s *Session) PeerDraining() <-chan struct{} { return s.peerDraining }

// Err returns why the session ended, nil while it lives.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		return nil
	}
	return s.err
}

// Open opens a data stream on a connection that is not busy with bulk, then on that with the least
// to send, then the fewest streams. The header goes out at once and nothing is awaited: bytes may
// follow. Errors: an *Error with CodeDraining after DRAIN (the peer's, or the server's own),
// ErrUnresponsive, or that the session ended.
// The caller must Close or Reset the stream.
func (s *Session) Open(ctx context.Context, h OpenHeader) (*Stream, error) {
	b, err := h.encode()
	if err != nil {
		return nil, err
	}
	for {
		l, err := s.pick()
		if err != nil {
			return nil, err
		}
		st, err := l.open(ctx, h, b)
		if err == nil {
			return st, nil
		}
		if ctx.Err() != nil || l.ctx.Err() == nil && l.mux.Err() == nil {
			return nil, err
		}
		s.forget(l)     // the connection is gone, the next one may live
		go l.close(err) // it may have to wait for a farewell that nobody takes
	}
}

// Ping measures how long the way to the peer and back takes, on the connection that requests use.
// It waits for at most 30 s.
func (s *Session) Ping() (time.Duration, error) {
	s.mu.Lock()
	if len(s.links) == 0 {
		defer s.mu.Unlock()
		return 0, s.endedError()
	}
	l := s.links[0]
	s.mu.Unlock()
	return l.mux.Ping()
}

// CanOpen says whether Open would find a connection at this moment. It costs next to nothing and
// does not wait.
func (s *Session) CanOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closedFor() == nil && slices.ContainsFunc(s.links, func(l *link) bool {
		return l.ctx.Err() == nil && l.mux.Err() == nil
	})
}

// closedFor says why no stream can be opened. The caller holds mu.
func (s *Session) closedFor() error {
	switch {
	case s.closing || len(s.links) == 0:
		return s.endedError()
	case s.peerSaid:
		return &Error{Code: CodeDraining, Msg: "the other side is about to stop"}
	case s.draining && !s.client:
		return &Error{Code: CodeDraining, Msg: "the server is about to stop"}
	}
	return nil
}

// pick chooses a connection for a new stream and counts the stream in.
func (s *Session) pick() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = slices.DeleteFunc(s.links, func(l *link) bool { return l.mux.Err() != nil }) // remove does the rest
	if err := s.closedFor(); err != nil {
		return nil, err
	}
	now := time.Now()
	best := s.links[0]
	least := best.load(now)
	for _, l := range s.links[1:] {
		if carries := l.load(now); carries.less(least) {
			best, least = l, carries
		}
	}
	best.streamBegan()
	return best, nil
}

func (s *Session) endedError() error {
	if s.err == nil {
		return errors.New("the tunnel session has ended")
	}
	return fmt.Errorf("the tunnel session has ended: %w", s.err)
}

// Stop tells the peer why and ends the session: at once for new streams, for live ones as soon as
// the peer hangs up or a second has passed. It does not block.
func (s *Session) Stop(code Code, msg string) {
	reason := &Error{Code: code, Msg: msg}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	s.closing, s.err = true, reason
	for _, l := range slices.Concat(s.links, s.leaving) {
		go l.farewell(&message{Type: typeStop, Error: reason}, reason)
	}
}

// Close ends the session and aborts its streams. What was written before arrives, the ends of
// streams included, if the peer takes it within a second; Close blocks for so long at most. A
// second Close, and one after Stop, does not wait.
func (s *Session) Close() error {
	s.mu.Lock()
	again := s.closing
	s.closing = true
	if s.err == nil {
		s.err = net.ErrClosed
	}
	links := slices.Concat(s.links, s.leaving)
	s.mu.Unlock()
	if again {
		s.shut(net.ErrClosed)
		return nil
	}
	var leaving sync.WaitGroup
	for _, l := range links {
		leaving.Go(func() { l.farewell(&message{Type: typeBye}, net.ErrClosed) })
	}
	leaving.Wait()
	return nil
}

// shut ends the session at once; the first reason counts.
func (s *Session) shut(reason error) {
	s.mu.Lock()
	s.closing = true
	if s.err == nil {
		s.err = reason
	}
	links := slices.Concat(s.links, s.leaving)
	s.mu.Unlock()
	for _, l := range links {
		l.close(reason)
	}
}

// add makes l a connection of the session. It fails when the session is ending or has enough of
// them.
func (s *Session) add(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.finished {
		return &Error{Code: CodeUnknownSession, Msg: "the session has ended: begin a new one"}
	}
	if s.live >= maxConnections {
		return &Error{Code: CodeLimit, Msg: fmt.Sprintf("a session has at most %d connections", maxConnections)}
	}
	l.session = s
	l.conn.session.Store(s)
	s.links = append(s.links, l)
	s.live++
	return nil
}

// forget takes l out of the choice for new streams. remove does the rest when l has ended.
func (s *Session) forget(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = slices.DeleteFunc(s.links, func(o *link) bool { return o == l })
}

// remove lets go of a connection that has ended. The last one ends the session.
func (s *Session) remove(l *link, reason error) {
	s.mu.Lock()
	isIt := func(o *link) bool { return o == l }
	s.links, s.leaving = slices.DeleteFunc(s.links, isIt), slices.DeleteFunc(s.leaving, isIt)
	s.nudge()
	s.live--
	last := s.live == 0
	if last {
		s.closing, s.finished = true, true
		if s.err == nil {
			s.err = reason
		}
	}
	err := s.err
	s.mu.Unlock()
	if last {
		close(s.done)
		s.side.ended(s, err)
	}
}

// connections returns how many connections take new streams, and how many there should be.
func (s *Session) connections(fixed int, now time.Time) (n, want int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case fixed > 0:
		want = fixed
	case slices.Contains(s.welcome.Features, FeatureConnections):
		want = max(defaultConnections, s.wish.now(now))
	default: // the server could not give up a connection again
		want = defaultConnections
	}
	return len(s.links), want
}

// admits says whether the session still takes streams of the peer's.
func (s *Session) admits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closing
}
