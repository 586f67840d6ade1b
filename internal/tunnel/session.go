// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/sha256"
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

// sideHandler is the part of a session that differs between client and server.
type sideHandler interface {
	// handleMessage handles a control message that Session does not handle itself. An error ends
	// the connection.
	handleMessage(l *link, m *message) error
	// handleRequestLine handles a request line.
	handleRequestLine(l RequestLine)
	// handleStream serves a stream of the peer's whose header was read.
	handleStream(ctx context.Context, st *Stream)
	// responsivenessChanged is called when the result of Session.Unresponsive may have changed. It
	// does not block.
	responsivenessChanged(s *Session)
	// sessionEnded is called once, when the last connection has ended.
	sessionEnded(s *Session, err error)
}

// Session is a session with one peer over one or more connections. All methods are safe for
// concurrent use.
type Session struct {
	handler sideHandler
	client  bool    // this side is the client
	owner   *Client // on the client's side
	fixed   int     // on the client's side: number of connections; 0 = as the traffic asks
	hello   Hello
	welcome Welcome
	remote  net.Addr
	// on the server's side: SHA-256 of the secret that further connections must present
	joinHash [sha256.Size]byte

	streams atomic.Int64
	idle    chan struct{} // gets a token when the last stream ends
	// gets a token when the actual or desired number of connections changes
	connsChanged chan struct{}
	done         chan struct{}
	peerDraining chan struct{}

	mu             sync.Mutex // guards what follows
	links          []*link    // connections that take new streams
	retiring       []*link    // connections that take none any more
	liveLinks      int        // connections that have not ended, at least len(links)+len(retiring)
	desired        desiredConns
	draining       bool
	peerIsDraining bool // peerDraining is closed
	closing        bool // no new connection, no new stream
	finished       bool // the last connection is gone
	err            error
	pending        map[uint64]chan *message // answers that the client's requests wait for, by id
	requestID      uint64

	// On the client's side, with several servers (replicas).
	replicas         int                  // how many accept sessions; 0 = the server is alone
	peerDesired      desiredConns         // the wish of one of the servers, for itself
	drainingReplicas map[string]time.Time // those that are about to stop, and when
	onlyDraining     bool                 // no connection is with a replica that continues
	drainTimer       *time.Timer          // calls endLegSearch
	drainDeadline    time.Time            // the deadline of the client's own drain

	startLines sync.Once
	lines      chan RequestLine // lines that wait to be sent
}

func newSession(handler sideHandler, client bool, hello Hello, welcome Welcome, remote net.Addr) *Session {
	hello.Token, hello.JoinSecret = "", ""
	return &Session{
		handler: handler, client: client, hello: hello, welcome: welcome, remote: remote,
		idle: make(chan struct{}, 1), connsChanged: make(chan struct{}, 1),
		done: make(chan struct{}), peerDraining: make(chan struct{}),
		pending: make(map[uint64]chan *message),
		lines:   make(chan RequestLine, 256),
	}
}

// ID returns the session's id.
func (s *Session) ID() string { return s.welcome.SessionID }

// Role returns the client's role.
func (s *Session) Role() Role { return s.hello.Role }

// Hello returns the client's first message without its secrets. On the server's side it has a
// SessionID when the session began on another server.
func (s *Session) Hello() Hello { return s.hello }

// Welcome returns the server's answer; without the join secret on the server's side.
func (s *Session) Welcome() Welcome { return s.welcome }

// RemoteAddr returns the peer's address on the session's first connection.
func (s *Session) RemoteAddr() net.Addr { return s.remote }

// Streams returns the number of live data streams, of both sides.
func (s *Session) Streams() int { return int(s.streams.Load()) }

// Done is closed when the last connection has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// PeerDraining is closed when the peer has announced that it stops, on the client's side when all
// replicas with which the session has connections have, and no other was found in time. No stream
// can be opened towards it then.
func (s *Session) PeerDraining() <-chan struct{} { return s.peerDraining }

// Err returns why the session ended, or nil while it lives.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		return nil
	}
	return s.err
}

// Open opens a data stream, on a connection that carries no bulk if there is one, then on the one
// with the fewest queued bytes, then the fewest streams. The header is sent at once and no answer
// is awaited: bytes may follow. Errors: an *Error with CodeDraining after DRAIN (the peer's, or the
// server's own), ErrUnresponsive, or that the session ended. The caller must Close or Reset the
// stream.
func (s *Session) Open(ctx context.Context, h OpenHeader) (*Stream, error) {
	b, err := h.encode()
	if err != nil {
		return nil, err
	}
	for {
		l, err := s.pickLink()
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
		s.removeLinkFromChoice(l) // the connection has ended; try the next one
		go l.close(err)           // it may have to wait for a TLS close
	}
}

// Ping measures a round trip to the peer on the connection that requests use. It waits for at most
// 30 s.
func (s *Session) Ping() (time.Duration, error) {
	s.mu.Lock()
	if len(s.links) == 0 {
		defer s.mu.Unlock()
		return 0, s.endedError()
	}
	l, err := s.requestLinkLocked(nil)
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return l.mux.Ping()
}

// CanOpen reports whether Open would find a connection now. It is cheap and does not wait.
func (s *Session) CanOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openErrorLocked() == nil && slices.ContainsFunc(s.links, func(l *link) bool {
		return l.ctx.Err() == nil && l.mux.Err() == nil
	})
}

// openErrorLocked returns why no stream can be opened, or nil. mu must be held.
func (s *Session) openErrorLocked() error {
	switch {
	case s.closing:
		return s.endedError()
	case s.peerIsDraining, s.onlyDraining:
		return &Error{Code: CodeDraining, Msg: "the other side is about to stop"}
	case s.draining && !s.client:
		return &Error{Code: CodeDraining, Msg: "the server is about to stop"}
	case len(s.links) == 0:
		return s.endedError()
	}
	return nil
}

// pickLink chooses a connection for a new stream and counts the stream.
func (s *Session) pickLink() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = slices.DeleteFunc(s.links, func(l *link) bool { return l.mux.Err() != nil }) // removeLink does the rest
	if err := s.openErrorLocked(); err != nil {
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
	best.streamStarted()
	return best, nil
}

func (s *Session) endedError() error {
	if s.err == nil {
		return errors.New("the tunnel session has ended")
	}
	return fmt.Errorf("the tunnel session has ended: %w", s.err)
}

// Stop sends the peer the reason and ends the session: at once for new streams, for live ones as
// soon as the peer hangs up or a second has passed. It does not block.
func (s *Session) Stop(code Code, msg string) {
	reason := &Error{Code: code, Msg: msg}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	s.closing, s.err = true, reason
	for _, l := range slices.Concat(s.links, s.retiring) {
		go l.closeGracefully(&message{Type: typeStop, Error: reason}, reason)
	}
}

// Close ends the session and aborts its streams. What was written before arrives, including the
// ends of streams, if the peer takes it within a second, for which Close blocks at most. A second
// Close, and one after Stop, does not wait.
func (s *Session) Close() error {
	s.mu.Lock()
	again := s.closing
	s.closing = true
	if s.err == nil {
		s.err = net.ErrClosed
	}
	links := slices.Concat(s.links, s.retiring)
	s.mu.Unlock()
	if again {
		s.abort(net.ErrClosed)
		return nil
	}
	var leaving sync.WaitGroup
	for _, l := range links {
		leaving.Go(func() { l.closeGracefully(&message{Type: typeBye}, net.ErrClosed) })
	}
	leaving.Wait()
	return nil
}

// abort ends the session at once; the first reason counts.
func (s *Session) abort(reason error) {
	s.mu.Lock()
	s.closing = true
	if s.err == nil {
		s.err = reason
	}
	links := slices.Concat(s.links, s.retiring)
	s.mu.Unlock()
	for _, l := range links {
		l.close(reason)
	}
}

// addLink adds a connection to the session. It fails when the session is ending or has
// maxConnections.
func (s *Session) addLink(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLinkLocked(l)
}

func (s *Session) addLinkLocked(l *link) error {
	if s.closing || s.finished {
		return errUnknownSession()
	}
	limit := maxConnections
	if s.owner != nil && !slices.ContainsFunc(s.links, func(o *link) bool { return o.replicaID == l.replicaID }) {
		limit += s.owner.cfg.MaxLegs // a replica is found although there are that many with the others
	}
	if s.liveLinks >= limit {
		return &Error{Code: CodeLimit, Msg: fmt.Sprintf("a session has at most %d connections", maxConnections)}
	}
	l.session = s
	l.conn.session.Store(s)
	s.links = append(s.links, l)
	s.liveLinks++
	return nil
}

// removeLinkFromChoice removes l from the choice for new streams. removeLink does the rest when l
// has ended.
func (s *Session) removeLinkFromChoice(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = slices.DeleteFunc(s.links, func(o *link) bool { return o == l })
}

// removeLink removes a connection that has ended. The last one ends the session.
func (s *Session) removeLink(l *link, reason error) {
	s.mu.Lock()
	isIt := func(o *link) bool { return o == l }
	s.links, s.retiring = slices.DeleteFunc(s.links, isIt), slices.DeleteFunc(s.retiring, isIt)
	s.forgetReplicasLocked()
	s.updateReplicasLocked()
	s.settleDrainsLocked() // none is left to be retired
	s.signalConnsChanged()
	s.liveLinks--
	last := s.liveLinks == 0
	if last {
		s.closing, s.finished = true, true
		if s.err == nil {
			s.err = reason
		}
	}
	err := s.err
	s.mu.Unlock()
	s.legsChanged()
	if last {
		close(s.done)
		s.handler.sessionEnded(s, err)
	}
}

// acceptsStreams reports whether the session still accepts streams of the peer's.
func (s *Session) acceptsStreams() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closing
}
