// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// clientTLS returns the client's completed TLS configuration.
func clientTLS(cfg ClientConfig) *tls.Config {
	t := cfg.TLS.Clone()
	if t == nil {
		t = &tls.Config{}
	}
	if t.ServerName == "" {
		t.ServerName = cfg.Address
		if host, _, err := net.SplitHostPort(cfg.Address); err == nil {
			t.ServerName = host
		}
	}
	if t.ClientSessionCache == nil {
		t.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
	t.NextProtos = []string{ALPN}
	t.MinVersion = tls.VersionTLS13
	t.DynamicRecordSizingDisabled = true
	return t
}

// webSocketTLS returns the TLS configuration of WebSockets, made of that of native connections. What
// ends the TLS on the way may not know TLS 1.3.
func webSocketTLS(native *tls.Config) *tls.Config {
	t := native.Clone()
	t.NextProtos, t.MinVersion = []string{"http/1.1"}, tls.VersionTLS12
	t.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	return t
}

// startSession dials the first connection of a session.
func (c *Client) startSession(ctx context.Context, hello Hello) (*Session, error) {
	l, welcome, err := c.dialFirst(ctx, hello)
	if err != nil {
		return nil, err
	}
	s := c.newSession(hello, *welcome, l.conn.RemoteAddr())
	if l.conn.ws != nil {
		s.carrier = Carrier{Name: CarrierWebSocket, Reason: c.carrier.webSocketReason()}
	}
	if _, err := c.serveLink(s, l, welcome); err != nil {
		return nil, err
	}
	return s, nil
}

// dialFirst opens the first connection of a session, natively or, where that is not possible, as a
// WebSocket.
func (c *Client) dialFirst(ctx context.Context, hello Hello) (*link, *Welcome, error) {
	if c.carrier.beginSession() != "" {
		return c.dial(ctx, c.cfg.Address, hello)
	}
	l, welcome, native := c.dial(ctx, c.cfg.Address, hello)
	reason := c.carrier.nativeBegan(native)
	if reason == "" || hasClientCertificate(c.tls) {
		return l, welcome, native
	}
	l, welcome, err := c.greet(ctx, c.cfg.Address, hello, true)
	switch {
	case err == nil:
		c.carrier.useWebSocket(reason)
		c.cfg.Logger.Info("the session is carried by WebSockets, which cost more", "reason", reason)
	case !errors.As(err, new(*Error)): // the server answers to WebSockets if it refuses
		err = fmt.Errorf("%w; and as a WebSocket: %w", native, err)
	}
	return l, welcome, err
}

// returnToNative moves a session from WebSockets to native connections as soon as one passes. A server
// that has too many clients cuts connections as a firewall does, but not for long: only time tells
// which of the two led to WebSockets, and until then the session is carried by these.
func (c *Client) returnToNative(ctx context.Context, s *Session) {
	for wait := nativeRetry; s.Carrier().Name == CarrierWebSocket; wait = min(2*wait, webSocketTime) {
		if !timer.Sleep(ctx, wait/2+rand.N(wait/2)) {
			return
		}
		l, welcome, err := c.greet(ctx, c.cfg.Address, c.joinHello(s), false)
		if err == nil {
			c.carrier.useNative()
			_, err = c.serveLink(s, l, welcome)
			wake(s.legs.connsChanged)
		}
		c.cfg.Logger.Debug("tried a native connection", "session", s.ID(), "error", err)
	}
	c.cfg.Logger.Info("the session is carried natively now", "session", s.ID())
}

// hasClientCertificate reports whether the client shows a certificate, which nothing that ends TLS
// on the way could pass on.
func hasClientCertificate(t *tls.Config) bool {
	return t.GetClientCertificate != nil || len(t.Certificates) > 0
}

// newSession returns a session without connections.
func (c *Client) newSession(hello Hello, welcome Welcome, remote net.Addr) *Session {
	s := newSession(c, hello, welcome, remote)
	s.SealedStreams = c.cfg.PairBudget.Streams(hello.Role)
	s.legs = &clientLegs{session: s, client: c, replicas: welcome.Replicas, draining: make(map[string]time.Time),
		fixed:        min(cmp.Or(welcome.Connections, c.cfg.Connections), maxConnections),
		connsChanged: make(chan struct{}, 1)}
	return s
}

// hello returns the first message of a session.
func (c *Client) hello() Hello {
	hello := c.cfg.Hello()
	hello.Features = []Feature{FeatureReplicas, FeatureReplicaAddresses, FeatureSpares}
	if c.learns() {
		hello.Features = append(hello.Features, FeatureAuthorities)
	}
	return hello
}

// serveLink serves a connection of s in the background. It reports whether it is the first one with
// its replica.
func (c *Client) serveLink(s *Session, l *link, welcome *Welcome) (isNewLeg bool, err error) {
	isNewLeg, retire, err := s.legs.addLink(l, welcome)
	if err != nil {
		l.close(err)
		return false, err
	}
	c.goroutines.Go(func() {
		_ = l.serve() // the session records the error
		l.handlers.Wait()
	})
	c.retire(retire)
	if s.legs.isReplicaDraining(l) {
		return false, &Error{Code: CodeDraining, Msg: "the replica is about to stop"}
	}
	return isNewLeg, nil
}

// dial opens one connection with the server at an address, over the carrier that was chosen.
func (c *Client) dial(ctx context.Context, address string, hello Hello) (*link, *Welcome, error) {
	return c.greet(ctx, address, hello, c.carrier.webSocketReason() != "")
}

// greet opens one connection with the server at an address: TCP, TLS, perhaps the WebSocket, hello
// and welcome, each within 10 s.
func (c *Client) greet(ctx context.Context, address string, hello Hello, asWebSocket bool) (*link, *Welcome, error) {
	open := c.dialNative
	if asWebSocket {
		open = c.dialWebSocket
	}
	conn, ws, err := open(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	l := newLink(ctx, newMuxConn(conn, ws), c.cfg.Logger, c.cfg.WindowBudget, true)
	timer := time.AfterFunc(controlTimeout, func() { l.close(fmt.Errorf("no welcome within %s", controlTimeout)) })
	defer timer.Stop()
	stop := context.AfterFunc(ctx, func() { l.close(context.Cause(ctx)) })
	defer stop()
	welcome, err := l.sendHello(ctx, hello)
	if err != nil {
		l.close(err)
		return nil, nil, asCut(ctx, fmt.Errorf("greeting %s: %w", address, err))
	}
	c.learn(welcome.Authorities)
	return l, welcome, nil
}

// dialNative opens a connection that carries the multiplexer itself.
func (c *Client) dialNative(ctx context.Context, address string) (*BatchConn, *webSocket, error) {
	conn, err := c.dialTLS(ctx, address, c.tls)
	if err != nil {
		return nil, nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != ALPN {
		_ = conn.Close()
		err = fmt.Errorf("%s does not speak the tunnel protocol: is it the address of a Fairlead server?", address)
		return nil, nil, &cutError{err: err, clear: true,
			reason: "TLS ends on the way, at something that does not know the protocol " + ALPN}
	}
	return Batch(conn), nil, nil
}

// dialWebSocket opens a WebSocket with the server at an address.
func (c *Client) dialWebSocket(ctx context.Context, address string) (*BatchConn, *webSocket, error) {
	conn, err := c.dialTLS(ctx, address, c.webSocketTLS)
	if err != nil {
		return nil, nil, err
	}
	batch := Batch(conn)
	ws, err := openWebSocket(ctx, batch, c.cfg.Address)
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("asking %s (what ends TLS on the way has to pass on upgrades of %s): %w", address,
			WebSocketPath, err)
	}
	return batch, ws, nil
}

func (c *Client) dialTLS(ctx context.Context, address string, config *tls.Config) (*tls.Conn, error) {
	dialing, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	raw, err := c.cfg.DialContext(dialing, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", address, err)
	}
	c.congestion.check(c.cfg.Logger, raw)
	negotiating, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	conn := tls.Client(TuneConn(raw), config)
	if err := conn.HandshakeContext(negotiating); err != nil {
		_ = raw.Close()
		err = asCut(ctx, fmt.Errorf("negotiating TLS with %s: %w", address, err))
		if cut := (*cutError)(nil); errors.As(err, &cut) && strings.Contains(err.Error(), "no application protocol") {
			cut.err = protocolError(address)
		}
		return nil, err
	}
	return conn, nil
}

// protocolError returns the error of a peer that refused the ALPN. Nothing vouches for that peer,
// which may be a captive portal, so the error ends no Client.
func protocolError(addr string) error {
	return fmt.Errorf("%s does not speak %s: either it is not a Fairlead server, or it and this program are too far "+
		"apart in version", addr, ALPN)
}

// sendHello sends the hello and waits for the welcome.
func (l *link) sendHello(ctx context.Context, hello Hello) (*Welcome, error) {
	if err := l.openControl(ctx, true); err != nil {
		return nil, l.endReason(err)
	}
	if err := l.ctrl.send(&message{Type: typeHello, Protocol: protocolVersion, Hello: &hello}); err != nil {
		return nil, err
	}
	for {
		b, err := l.ctrl.receive(messageLimit)
		if err != nil {
			return nil, l.endReason(err)
		}
		if isRequestLines(b) { // the session's other connections are up
			continue
		}
		m, err := parseMessage(b)
		switch {
		case err != nil:
			return nil, err
		case m.Type == typeError:
			return nil, m.Error
		case m.Type == typeWelcome:
			return m.Welcome, nil
		}
	}
}
