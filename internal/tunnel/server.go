// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Handler is what the service makes of sessions. Its methods are called concurrently for different
// sessions.
type Handler interface {
	// Hello authenticates the first connection of a session within 10 s; an *Error refuses it with
	// that code and message, any other error with INTERNAL. The handler makes the SessionID, the
	// Server the JoinSecret.
	Hello(ctx context.Context, h Hello, remote net.Addr) (Welcome, error)
	// Up is called once, before any Bind, Unbind or Stream of the session.
	Up(s *Session)
	// Bind and Unbind serve an agent's requests within 10 s, one at a time for each of its
	// connections. Errors as with Hello.
	Bind(ctx context.Context, s *Session, b Bind) (Bound, error)
	Unbind(ctx context.Context, s *Session, endpointID string) error
	// Stream serves a stream that a forwarder opened, in a goroutine of its own. It calls Accept or
	// Refuse, and the stream is ended when it returns. ctx ends with the stream's connection.
	Stream(ctx context.Context, s *Session, st *Stream)
	// Down is called once for each Up, after the session's last connection ended and after its last
	// Bind or Unbind returned. Stream handlers may still be about to return.
	Down(s *Session, err error)
}

// ServerConfig is what a Server needs. Handler is required.
type ServerConfig struct {
	Handler      Handler
	WindowBudget *WindowBudget // shared by all Clients and Servers of a process; default: NewWindowBudget(0)
	Logger       *slog.Logger  // default: none
	// OnResponsiveness is called when what the session's Unresponsive returns may have changed. It
	// does not block. May be nil.
	OnResponsiveness func(*Session)
	// MaxPending is the number of connections that may be between TLS and Welcome at a time; further
	// ones are closed at once. Default 1024. How many a single address may have is for the listener to
	// say.
	MaxPending int
	// OnWelcome is called for each connection whose hello was accepted, so that the listener can count
	// the others. May be nil.
	OnWelcome func(*tls.Conn)
}

// Server accepts sessions. It is safe for concurrent use.
type Server struct {
	cfg     ServerConfig
	pending chan struct{}
	note    congestionNote

	mu       sync.Mutex
	sessions map[string]*hosted
}

// hosted is a session on the server's side, with the hash of what a further connection has to
// present.
type hosted struct {
	*Session
	server   *Server
	joinHash [sha256.Size]byte
}

// NewServer makes a Server.
func NewServer(cfg ServerConfig) *Server {
	if cfg.MaxPending <= 0 {
		cfg.MaxPending = 1024
	}
	if cfg.WindowBudget == nil {
		cfg.WindowBudget = NewWindowBudget(0)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, pending: make(chan struct{}, cfg.MaxPending), sessions: make(map[string]*hosted)}
}

// Sessions returns the live sessions, in no order.
func (s *Server) Sessions() []*Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Session, 0, len(s.sessions))
	for _, h := range s.sessions {
		all = append(all, h.Session)
	}
	return all
}

// ServeConn serves one connection whose TLS handshake is done and whose ALPN is fairlead/1; the raw
// connection should come from TuneConn, and the TLS configuration, one for all connections, should
// have DynamicRecordSizingDisabled. It blocks until the connection has ended and its stream
// handlers have returned; it closes c. When ctx ends, streams are cut, and what was already written
// gets a second to arrive.
func (s *Server) ServeConn(ctx context.Context, c *tls.Conn) error {
	l, err := s.greet(ctx, c)
	if err != nil {
		_ = c.Close()
		return fmt.Errorf("greeting %s: %w", c.RemoteAddr(), err)
	}
	stop := context.AfterFunc(ctx, func() { l.farewell(&message{Type: typeBye}, context.Cause(ctx)) })
	defer stop()
	err = l.serve()
	l.handlers.Wait()
	return err
}

// greet takes a connection from TLS to Welcome.
func (s *Server) greet(ctx context.Context, c *tls.Conn) (*link, error) {
	select {
	case s.pending <- struct{}{}:
		defer func() { <-s.pending }()
	default:
		return nil, fmt.Errorf("%d connections are waiting for their welcome already", s.cfg.MaxPending)
	}
	if st := c.ConnectionState(); st.NegotiatedProtocol != ALPN || st.Version < tls.VersionTLS13 {
		return nil, fmt.Errorf("the connection speaks %q over %s, not %q over TLS 1.3", st.NegotiatedProtocol,
			tls.VersionName(st.Version), ALPN)
	}
	l := newLink(ctx, c, s.cfg.Logger, s.cfg.WindowBudget, false)
	slow := time.AfterFunc(controlTimeout, func() { l.close(fmt.Errorf("no hello within %s", controlTimeout)) })
	defer slow.Stop()
	stop := context.AfterFunc(ctx, func() { l.close(context.Cause(ctx)) })
	defer stop()
	hello, err := l.awaitHello(ctx)
	if err == nil {
		if below, ok := c.NetConn().(*tunedConn); ok {
			s.note.take(s.cfg.Logger, below.Conn)
		}
		err = s.admit(ctx, l, hello)
	}
	if err != nil {
		l.refuse(err)
		return nil, err
	}
	if s.cfg.OnWelcome != nil {
		s.cfg.OnWelcome(c)
	}
	return l, nil
}

func (l *link) awaitHello(ctx context.Context) (*Hello, error) {
	if err := l.openControl(ctx, false); err != nil {
		return nil, l.broken(err)
	}
	b, err := l.ctrl.receive(helloLimit)
	if err != nil {
		return nil, l.broken(err)
	}
	return parseHello(b)
}

// admit makes l a connection of a session, new or old, and says so.
func (s *Server) admit(ctx context.Context, l *link, hello *Hello) error {
	var h *hosted
	var err error
	welcome := Welcome{}
	if hello.SessionID != "" {
		if h, err = s.join(l, hello); err != nil {
			return err
		}
		welcome = h.welcome
	} else {
		if h, welcome.JoinSecret, err = s.begin(ctx, l, hello); err != nil {
			return err
		}
		secret := welcome.JoinSecret
		welcome = h.welcome
		welcome.JoinSecret = secret
		s.cfg.Handler.Up(h.Session)
	}
	welcome.Features = allFeatures()
	l.conn.trusted.Store(true)
	l.takeStreams() // the welcome allows them
	if err := l.ctrl.send(&message{Type: typeWelcome, Welcome: &welcome}); err != nil {
		l.close(err) // serve sees it, and the session with it
	}
	return nil
}

// join adds l to the session that the hello names.
func (s *Server) join(l *link, hello *Hello) (*hosted, error) {
	s.mu.Lock()
	h := s.sessions[hello.SessionID]
	s.mu.Unlock()
	hash := sha256.Sum256([]byte(hello.JoinSecret))
	if h == nil || subtle.ConstantTimeCompare(hash[:], h.joinHash[:]) != 1 {
		return nil, &Error{Code: CodeUnknownSession, Msg: "the session has ended: begin a new one"}
	}
	return h, h.add(l)
}

// begin authenticates a hello and starts its session.
func (s *Server) begin(ctx context.Context, l *link, hello *Hello) (*hosted, string, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	welcome, err := s.cfg.Handler.Hello(ctx, *hello, l.conn.RemoteAddr())
	if err != nil {
		return nil, "", err
	}
	h := &hosted{server: s}
	h.Session = newSession(h, false, *hello, welcome, l.conn.RemoteAddr())
	secret := rand.Text() + rand.Text()
	h.joinHash = sha256.Sum256([]byte(secret))
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.sessions[welcome.SessionID]; taken || welcome.SessionID == "" {
		return nil, "", fmt.Errorf("the handler gave session id %q, which is empty or taken", welcome.SessionID)
	}
	s.sessions[welcome.SessionID] = h
	return h, secret, h.add(l)
}

// refuse answers a hello with an error that the peer may see, and ends the connection.
func (l *link) refuse(err error) {
	if l.ctrl == nil || l.ctx.Err() != nil {
		l.close(err)
		return
	}
	l.farewell(&message{Type: typeError, Error: visible(err)}, err)
}

// visible is what the peer learns of an error.
func visible(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Msg: "the server has an internal error"}
}

// message serves an agent's requests.
func (h *hosted) message(l *link, m *message) error {
	if m.Type != typeBind && m.Type != typeUnbind {
		return nil // of a later version
	}
	answer := &message{ID: m.ID}
	if err := h.serveRequest(l, m, answer); err != nil {
		answer = &message{Type: typeError, ID: m.ID, Error: visible(err)}
		if answer.Error.Code == CodeInternal { // the peer does not learn the cause
			h.server.cfg.Logger.Error("serving a request", "session", h.ID(), "type", m.Type, "error", err)
		}
	}
	return l.send(answer)
}

// line is nothing that a client has to say.
func (h *hosted) line(RequestLine) {}

func (h *hosted) serveRequest(l *link, m, answer *message) error {
	if h.Role() != RoleAgent {
		return &Error{Code: CodeForbidden, Msg: "only an agent binds endpoints"}
	}
	ctx, cancel := context.WithTimeout(l.ctx, controlTimeout)
	defer cancel()
	if m.Type == typeUnbind {
		answer.Type = typeUnbound
		return h.server.cfg.Handler.Unbind(ctx, h.Session, m.Unbind.EndpointID)
	}
	bound, err := h.server.cfg.Handler.Bind(ctx, h.Session, *m.Bind)
	answer.Type, answer.Bound = typeBound, &bound
	return err
}

// stream hands over a forwarder's stream.
func (h *hosted) stream(ctx context.Context, st *Stream) {
	if h.Role() != RoleForwarder {
		_ = st.Refuse(RefusedForbidden)
		return
	}
	h.server.cfg.Handler.Stream(ctx, h.Session, st)
}

// ended takes the session off the list.
func (h *hosted) ended(s *Session, err error) {
	h.server.mu.Lock()
	delete(h.server.sessions, s.ID())
	h.server.mu.Unlock()
	h.server.cfg.Handler.Down(s, err)
}
