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
	legs    *clientLegs // legs is nil on the server's side.
	hello   Hello
	welcome Welcome
	remote  net.Addr
	// joinHash is set on the server's side: SHA-256 of the secret that further connections present.
	joinHash [sha256.Size]byte

	// SealedStreams counts the sealed streams of all sessions of the role that share the PairBudget.
	SealedStreams *SealedStreams

	streams atomic.Int64
	idle    chan struct{} // idle gets a token when the last stream ends.

	done         chan struct{}
	peerDraining chan struct{}

	mu             sync.Mutex // guards what follows
	links          linkSet
	carrier        Carrier
	requests       requests
	desired        desiredConns
	draining       bool
	drainDeadline  time.Time // drainDeadline is that of this side's drain.
	peerIsDraining bool      // peerIsDraining is set when peerDraining is closed.
	closing        bool      // closing excludes new connections and streams.
	finished       bool      // finished is set when the last connection has ended.
	err            error

	startLines sync.Once
	lines      chan RequestLine // lines that wait to be sent
}

func newSession(handler sideHandler, hello Hello, welcome Welcome, remote net.Addr) *Session {
	hello.Token, hello.JoinSecret = "", ""
	s := &Session{
		handler: handler, hello: hello, welcome: welcome, remote: remote, carrier: Carrier{Name: ALPN},
		idle: make(chan struct{}, 1), done: make(chan struct{}), peerDraining: make(chan struct{}),
		lines: make(chan RequestLine, 256),
	}
	s.requests = requests{session: s, pending: make(map[uint64]chan *message)}
	return s
}

// ID returns the session's id.
func (s *Session) ID() string { return s.welcome.SessionID }

// Role returns the client's role.
func (s *Session) Role() Role { return s.hello.Role }

// Carrier returns what carries the session's connections, on the server's side its first one.
func (s *Session) Carrier() Carrier {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.carrier
}

// Hello returns the client's first message without its secrets. On the server's side it has a
// SessionID when the session began on another server.
func (s *Session) Hello() Hello { return s.hello }

// Welcome returns the server's answer; without the join secret on the server's side.
func (s *Session) Welcome() Welcome { return s.welcome }

// JoinHash returns, on the server's side, the SHA-256 of the secret that further connections of the
// session present.
func (s *Session) JoinHash() []byte { return slices.Clone(s.joinHash[:]) }

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

// ErrUnresponsive means that the peer sends nothing, not even the answer to a ping: its process is
// stopped, its machine asleep or its network cut. Its session continues and may recover.
var ErrUnresponsive = errors.New("the peer does not respond")

// Unresponsive reports whether the peer, or each of its replicas, answers on none of the session's
// connections, and since when. It is detected within 1.5 s while a stream is being opened, or one
// waits for which OnUnresponsive was called.
func (s *Session) Unresponsive() (since time.Time, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links.active {
		at, is := l.mux.Unresponsive()
		if !is {
			return time.Time{}, false
		}
		if at.After(since) {
			since = at
		}
	}
	return since, len(s.links.active) > 0
}

// Open opens a data stream, on a connection that carries no bulk if there is one, then on the one
// with the fewest queued bytes, then the fewest streams. The header is sent at once and no answer
// is awaited: bytes may follow. Errors: an *Error with CodeDraining after DRAIN (the peer's, or the
// server's own), ErrUnresponsive, or that the session ended. The caller must Close or Reset the
// stream.
func (s *Session) Open(ctx context.Context, h OpenHeader) (*Stream, error) {
	h.PairID = 0
	b, err := h.encode()
	if err != nil {
		return nil, err
	}
	for {
		l, err := s.pickLink()
		if err != nil {
			return nil, err
		}
		open := l.open
		if h.Sealed {
			open = l.openSealed
		}
		st, err := open(ctx, h, b)
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
	if len(s.links.active) == 0 {
		defer s.mu.Unlock()
		return 0, s.endedError()
	}
	l, err := s.links.forRequest(nil)
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
	return s.openErrorLocked() == nil && slices.ContainsFunc(s.links.active, func(l *link) bool {
		return l.ctx.Err() == nil && l.mux.Err() == nil
	})
}

// openErrorLocked returns why no stream can be opened, or nil. mu must be held.
func (s *Session) openErrorLocked() error {
	switch {
	case s.closing:
		return s.endedError()
	case s.peerIsDraining, s.legs != nil && s.legs.onlyDraining:
		return &Error{Code: CodeDraining, Msg: "the other side is about to stop"}
	case s.draining && s.legs == nil:
		return &Error{Code: CodeDraining, Msg: "the server is about to stop"}
	case len(s.links.active) == 0:
		return s.endedError()
	}
	return nil
}

// pickLink chooses a connection for a new stream and counts the stream.
func (s *Session) pickLink() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links.drop(func(l *link) bool { return l.mux.Err() != nil }) // removeLink does the rest
	if err := s.openErrorLocked(); err != nil {
		return nil, err
	}
	l := s.links.leastLoaded(time.Now())
	l.streamStarted()
	return l, nil
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
	links, again := s.startClosing(reason)
	if again {
		return
	}
	for _, l := range links {
		go l.closeGracefully(&message{Type: typeStop, Error: reason}, reason)
	}
}

// Close ends the session and aborts its streams. What was written before arrives, including the
// ends of streams, if the peer takes it within a second, for which Close blocks at most. A second
// Close, and one after Stop, does not wait.
func (s *Session) Close() error {
	links, again := s.startClosing(net.ErrClosed)
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

// startClosing ends the session for new streams and connections; the first reason counts. It
// returns the connections, and whether it was called before.
func (s *Session) startClosing(reason error) (links []*link, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again, s.closing = s.closing, true
	if s.err == nil {
		s.err = reason
	}
	return s.links.all(), again
}

// closeWhenIdle closes the session when its live streams have ended.
func (s *Session) closeWhenIdle() {
	for s.Streams() > 0 {
		select {
		case <-s.idle:
		case <-s.done:
			return
		}
	}
	_ = s.Close()
}

// abort ends the session at once; the first reason counts.
func (s *Session) abort(reason error) {
	links, _ := s.startClosing(reason)
	for _, l := range links {
		l.close(reason)
	}
}

// addLinkLocked adds a connection to the session. It fails when the session is ending or has limit
// connections. mu must be held.
func (s *Session) addLinkLocked(l *link, limit int) error {
	if s.closing || s.finished {
		return errUnknownSession()
	}
	if s.links.live >= limit {
		return &Error{Code: CodeLimit, Msg: fmt.Sprintf("a session has at most %d connections", maxConnections)}
	}
	if s.peerIsDraining {
		l.setDraining()
	}
	l.session = s
	l.conn.session.Store(s)
	s.links.active = append(s.links.active, l)
	s.links.live++
	return nil
}

// removeLinkFromChoice removes l from the choice for new streams. removeLink does the rest when l
// has ended.
func (s *Session) removeLinkFromChoice(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links.drop(func(o *link) bool { return o == l })
}

// removeLink removes a connection that has ended. The last one ends the session.
func (s *Session) removeLink(l *link, reason error) {
	s.mu.Lock()
	last := s.links.remove(l)
	if s.legs != nil {
		s.legs.linkRemovedLocked()
		s.legs.endParkingLocked(l)
	}
	if last {
		s.closing, s.finished = true, true
		if s.err == nil {
			s.err = reason
		}
	}
	err := s.err
	s.mu.Unlock()
	if s.legs != nil {
		s.legs.notify()
	}
	if last {
		close(s.done)
		s.handler.sessionEnded(s, err)
	}
}

// setPeerDrainingLocked records that no stream can be opened towards the peer any more. mu must be
// held.
func (s *Session) setPeerDrainingLocked() {
	if !s.peerIsDraining {
		s.peerIsDraining = true
		close(s.peerDraining)
	}
}

// acceptsStreams reports whether the session still accepts streams of the peer's.
func (s *Session) acceptsStreams() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closing
}
