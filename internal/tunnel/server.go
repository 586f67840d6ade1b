// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Handler handles sessions. Its methods are called concurrently for different sessions.
type Handler interface {
	// Hello authenticates the first connection of a session within 10 s; an *Error refuses it with
	// that code and message, any other error with INTERNAL. The handler chooses the SessionID, the
	// Server the JoinSecret.
	Hello(ctx context.Context, h Hello, remote net.Addr) (Welcome, error)
	// Join authenticates a connection of a session that this server does not know, within 10 s: a
	// session of another replica. h has SessionID and JoinSecret, of newer clients also everything
	// else of a hello. The Welcome has the same SessionID; CodeUnknownSession refuses. It is called
	// for one connection of a session at a time, and not before Down of an earlier session with
	// this id has returned. Up follows, as after Hello; the session's Hello has the SessionID then.
	Join(ctx context.Context, h Hello, remote net.Addr) (Welcome, error)
	// Up is called once, before any Bind, Unbind, Renew or Stream of the session.
	Up(s *Session)
	// Bind and Unbind serve an agent's requests within 10 s, up to 64 at a time for each of its
	// connections. Errors as with Hello.
	Bind(ctx context.Context, s *Session, b Bind) (Bound, error)
	Unbind(ctx context.Context, s *Session, endpointID string) error
	// Renew authenticates a later token of a session, within 10 s, for this server's connections of
	// it. It returns when that token expires. Errors as with Hello: a refusal leaves the session as
	// it was, unless the handler ends it.
	Renew(ctx context.Context, s *Session, token string) (expiresAt time.Time, err error)
	// Stream serves a stream that a forwarder opened, in a goroutine of its own. It must call
	// Accept or Refuse; the stream is ended when it returns. ctx ends with the stream's connection.
	Stream(ctx context.Context, s *Session, st *Stream)
	// OnResponsiveness is called when what the session's Unresponsive returns may have changed. It
	// must not block.
	OnResponsiveness(s *Session)
	// OnRequestLine receives a request line that a client sent; agents and forwarders send none. It
	// must not block.
	OnRequestLine(s *Session, line RequestLine)
	// Down is called once for each Up, after the session's last connection ended and after its last
	// Bind, Unbind or Renew returned. Stream handlers may still be returning.
	Down(s *Session, err error)
}

// ServerConfig configures a Server. Handler is required.
type ServerConfig struct {
	Handler      Handler
	WindowBudget *WindowBudget // shared by all Clients and Servers of a process; default: NewWindowBudget(0)
	PairBudget   *PairBudget   // likewise; default: NewPairBudget()
	Logger       *slog.Logger  // default: none
	// MaxPending is how many connections may be between TLS and Welcome at a time; further ones are
	// closed at once. Default 1024. The listener limits them per address.
	MaxPending int
	// OnWelcome is called for each connection whose hello was accepted, so that the listener can
	// count the others. May be nil.
	OnWelcome func(*tls.Conn)
}

// Server accepts sessions. It is safe for concurrent use.
type Server struct {
	cfg        ServerConfig
	pending    chan struct{}
	congestion congestionWarning

	mu        sync.Mutex
	sessions  map[string]*serverSession
	settling  map[string]chan struct{}  // channels by session id, each closed when a Join or Down has returned
	replicas  int                       // number that SetReplicas was given; 0 = not called
	addresses map[Role][]ReplicaAddress // addresses of replicas that clients of a role are sent; not changed in place

	authorities authorities
	tickets     tickets
}

// serverSession is a session on the server's side.
type serverSession struct {
	*Session
	server *Server
	up     chan struct{} // up is closed when the Handler's Up has returned.
	down   chan struct{} // down is closed when the Handler's Down has returned.
	pairs  *pairPool

	announcing sync.Mutex       // announcing serializes messages about replicas and authorities.
	replicas   int              // number that the client was sent
	addresses  []ReplicaAddress // addresses that the client was sent
	welcomed   bool             // welcomed is set once the first connection's welcome was sent.

	toldAuthorities atomic.Uint64 // version of the authorities that the client was sent
}

// NewServer returns a Server.
func NewServer(cfg ServerConfig) *Server {
	if cfg.MaxPending <= 0 {
		cfg.MaxPending = 1024
	}
	if cfg.WindowBudget == nil {
		cfg.WindowBudget = NewWindowBudget(0)
	}
	cfg.PairBudget = cmp.Or(cfg.PairBudget, NewPairBudget())
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, pending: make(chan struct{}, cfg.MaxPending),
		sessions: make(map[string]*serverSession), settling: make(map[string]chan struct{})}
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
// handlers have returned; it closes c. When ctx ends, streams are aborted, and bytes that were
// already written get a second to arrive.
func (s *Server) ServeConn(ctx context.Context, c *tls.Conn) error {
	if st := c.ConnectionState(); st.NegotiatedProtocol != ALPN || st.Version < tls.VersionTLS13 {
		_ = c.Close()
		return fmt.Errorf("greeting %s: the connection speaks %q over %s, not %q over TLS 1.3", c.RemoteAddr(),
			st.NegotiatedProtocol, tls.VersionName(st.Version), ALPN)
	}
	return s.serveConn(ctx, c, nil)
}

// serveConn serves a connection whose frames the WebSocket carries, unless it is nil.
func (s *Server) serveConn(ctx context.Context, c *tls.Conn, ws *webSocket) error {
	l, err := s.welcomeConn(ctx, c, ws)
	if err != nil {
		_ = c.Close()
		return fmt.Errorf("greeting %s: %w", c.RemoteAddr(), err)
	}
	stop := context.AfterFunc(ctx, func() { l.closeGracefully(&message{Type: typeBye}, context.Cause(ctx)) })
	defer stop()
	err = l.serve()
	l.handlers.Wait()
	return err
}

// welcomeConn authenticates a connection, between TLS and Welcome.
func (s *Server) welcomeConn(ctx context.Context, c *tls.Conn, ws *webSocket) (*link, error) {
	select {
	case s.pending <- struct{}{}:
		defer func() { <-s.pending }()
	default:
		return nil, fmt.Errorf("%d connections are waiting for their welcome already", s.cfg.MaxPending)
	}
	l := newLink(ctx, newMuxConn(Batch(c), ws), s.cfg.Logger, s.cfg.WindowBudget, false)
	slow := time.AfterFunc(controlTimeout, func() { l.close(fmt.Errorf("no hello within %s", controlTimeout)) })
	defer slow.Stop()
	stop := context.AfterFunc(ctx, func() { l.close(context.Cause(ctx)) })
	defer stop()
	hello, err := l.awaitHello(ctx)
	if err == nil {
		if below, ok := c.NetConn().(*tunedConn); ok {
			s.congestion.check(s.cfg.Logger, below.Conn)
		}
		err = s.addToSession(ctx, l, hello)
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
		return nil, l.endReason(err)
	}
	b, err := l.ctrl.receive(helloLimit)
	if err != nil {
		return nil, l.endReason(err)
	}
	return parseHello(b)
}

// addToSession adds l to a session, new or old, and sends the welcome.
func (s *Server) addToSession(ctx context.Context, l *link, hello *Hello) error {
	var h *serverSession
	var secret string
	var err error
	if hello.SessionID != "" {
		h, err = s.joinSession(ctx, l, hello)
	} else {
		h, secret, err = s.startSession(ctx, l, hello)
	}
	if err != nil {
		return err
	}
	welcome := h.welcome
	welcome.JoinSecret, welcome.Features = secret, serverFeatures()
	l.conn.trusted.Store(true)
	l.acceptStreams() // the welcome allows the peer to open them
	if err := h.sendWelcome(l, &welcome); err != nil {
		l.close(err) // serve returns it and ends the session
	}
	return nil
}

// startSession authenticates a hello and starts its session.
func (s *Server) startSession(ctx context.Context, l *link, hello *Hello) (*serverSession, string, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	welcome, err := s.cfg.Handler.Hello(ctx, *hello, l.conn.RemoteAddr())
	if err != nil {
		return nil, "", err
	}
	secret := rand.Text() + rand.Text()
	h, err := s.addSession(l, *hello, welcome, secret)
	return h, secret, err
}

// addSession adds a session that the Handler has admitted, with its first connection.
func (s *Server) addSession(l *link, hello Hello, welcome Welcome, secret string) (*serverSession, error) {
	h := &serverSession{server: s, up: make(chan struct{}), down: make(chan struct{}),
		pairs: newPairPool(serverParked, s.cfg.PairBudget, welcome.AccountID)}
	h.Session = newSession(h, hello, welcome, l.conn.RemoteAddr())
	h.SealedStreams = s.cfg.PairBudget.Streams(hello.Role)
	if l.conn.ws != nil {
		h.carrier.Name = CarrierWebSocket
	}
	h.joinHash = sha256.Sum256([]byte(secret))
	s.mu.Lock()
	if _, taken := s.sessions[welcome.SessionID]; taken || welcome.SessionID == "" {
		s.mu.Unlock()
		return nil, fmt.Errorf("the handler gave session id %q, which is empty or taken", welcome.SessionID)
	}
	s.sessions[welcome.SessionID] = h
	err := h.addLink(l)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.cfg.Handler.Up(h.Session)
	close(h.up)
	return h, nil
}

// refuse answers a hello with an error that the peer may see, and ends the connection.
func (l *link) refuse(err error) {
	if l.ctrl == nil || l.ctx.Err() != nil {
		l.close(err)
		return
	}
	l.closeGracefully(&message{Type: typeError, Error: peerError(err)}, err)
}

// peerError returns the error that the peer gets, without the cause of an internal error.
func peerError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Msg: "the server has an internal error"}
}

// handleMessage begins to serve a request. While maxRequests are being served, it waits.
func (h *serverSession) handleMessage(l *link, m *message) error {
	switch m.Type {
	case typeBind, typeUnbind, typeRenew, typeTicket:
	default:
		return nil // a type of a later version
	}
	select {
	case l.requestSlots <- struct{}{}:
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
	l.requests.Go(func() {
		defer func() { <-l.requestSlots }()
		_ = l.send(h.answerRequest(l, m)) // it closes a connection that cannot take the answer
	})
	return nil
}

func (h *serverSession) answerRequest(l *link, m *message) *message {
	answer := &message{ID: m.ID}
	err := h.serveRequest(l, m, answer)
	if err == nil {
		return answer
	}
	refusal := peerError(err)
	if refusal.Code == CodeInternal { // the peer does not learn the cause
		h.server.cfg.Logger.Error("serving a request", "session", h.ID(), "type", m.Type, "error", err)
	}
	return &message{Type: typeError, ID: m.ID, Error: refusal}
}

func (h *serverSession) handleRequestLine(line RequestLine) {
	h.server.cfg.Handler.OnRequestLine(h.Session, line)
}

func (h *serverSession) serveRequest(l *link, m, answer *message) error {
	ctx, cancel := context.WithTimeout(l.ctx, controlTimeout)
	defer cancel()
	if m.Type == typeRenew {
		expires, err := h.server.cfg.Handler.Renew(ctx, h.Session, m.Renew.Token)
		answer.Type, answer.Renewed = typeRenewed, &renewed{ExpiresAt: expires}
		return err
	}
	if m.Type == typeTicket {
		issued, err := h.server.tickets.issue(h.pairs)
		answer.Type, answer.Ticketed = typeTicketed, issued
		return err
	}
	if h.Role() != RoleAgent {
		return &Error{Code: CodeForbidden, Msg: "only an agent binds endpoints"}
	}
	if m.Type == typeUnbind {
		answer.Type = typeUnbound
		return h.server.cfg.Handler.Unbind(ctx, h.Session, m.Unbind.EndpointID)
	}
	bound, err := h.server.cfg.Handler.Bind(ctx, h.Session, *m.Bind)
	answer.Type, answer.Bound = typeBound, &bound
	return err
}

func (h *serverSession) responsivenessChanged(s *Session) {
	h.server.cfg.Handler.OnResponsiveness(s)
}

// handleStream passes a forwarder's stream to the Handler.
func (h *serverSession) handleStream(ctx context.Context, st *Stream) {
	if h.Role() != RoleForwarder {
		_ = st.Refuse(RefusedForbidden)
		return
	}
	h.server.cfg.Handler.Stream(ctx, h.Session, st)
}

// sessionEnded removes the session.
func (h *serverSession) sessionEnded(s *Session, err error) {
	h.server.mu.Lock()
	h.pairs.close()
	delete(h.server.sessions, s.ID())
	h.server.settling[s.ID()] = h.down
	h.server.mu.Unlock()
	defer h.server.endSettling(s.ID(), h.down)
	h.server.cfg.Handler.Down(s, err)
}
