// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/acme"
)

// maxHandshakes bounds concurrent TLS handshakes: they are expensive, and any client can start one.
const maxHandshakes = 512

// accept accepts connections until the listener is closed.
func (s *Server) accept(ctx context.Context, l net.Listener, secure bool) {
	var pause time.Duration
	for {
		raw, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, for instance: it passes
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Error("accepting a public connection", "err", err, "retry_in", pause)
			timer.Sleep(ctx, pause)
			continue
		}
		pause = 0
		c := &conn{Conn: raw, peer: addrOf(raw.RemoteAddr()), limiter: s.conns}
		c.client, c.trusted = c.peer, containsAddr(s.opt.TrustedProxies, c.peer.Addr())
		if !s.conns.add(c) {
			_ = raw.Close()
			continue
		}
		s.tasks.Go(func() { s.setUp(ctx, c, secure) })
	}
}

// setUp does what comes before the first request and passes the connection to the HTTP server.
func (s *Server) setUp(ctx context.Context, c *conn, secure bool) {
	ready, err := s.prepare(ctx, c, secure)
	if err != nil {
		s.log.Debug("a public connection ended before its first request", "peer", c.peer, "err", err)
		_ = c.Close()
		return
	}
	if !s.queue.Put(ready) {
		_ = ready.Close()
	}
}

// prepare reads the PROXY header, admits the client and does the TLS handshake.
func (s *Server) prepare(ctx context.Context, c *conn, secure bool) (net.Conn, error) {
	if s.opt.ProxyProtocol && c.trusted {
		if err := c.readProxyHeader(s.opt.headerTimeout); err != nil {
			return nil, err
		}
	}
	if !s.conns.addForClient(c) {
		return nil, errors.New("the client has too many connections")
	}
	if !secure {
		return s.framed(c, framing.HTTP1), nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.headerTimeout)
	defer cancel()
	select {
	case s.handshakes <- struct{}{}:
	case <-ctx.Done():
		s.conns.countFailedHandshake()
		return nil, errors.New("too many handshakes are under way")
	}
	defer func() { <-s.handshakes }()
	tlsConn := tls.Server(c, s.tls)
	if err := tlsConn.HandshakeContext(ctx); err != nil {
		s.conns.countFailedHandshake()
		return nil, fmt.Errorf("the TLS handshake: %w", err)
	}
	state := tlsConn.ConnectionState()
	c.tls = &state
	if state.NegotiatedProtocol == acme.Protocol {
		return nil, errors.New("the handshake was a challenge of the ACME directory")
	}
	if state.NegotiatedProtocol == "h2" {
		return s.framed(tlsConn, framing.HTTP2), nil
	}
	return s.framed(tlsConn, framing.HTTP1), nil
}

// framed makes the HTTP server read only what every program reads alike.
func (s *Server) framed(c net.Conn, p framing.Protocol) *framing.Conn {
	return framing.New(c, framing.Options{Protocol: p, StartTimeout: s.opt.headerTimeout,
		HeadTimeout: s.opt.headerTimeout, Linger: true})
}

// conn is a client's connection below TLS.
type conn struct {
	net.Conn
	peer    netip.AddrPort       // the other end: the client, or a proxy
	client  netip.AddrPort       // the client, from the connection or its PROXY header
	trusted bool                 // trusted reports that peer is a trusted proxy.
	tls     *tls.ConnectionState // nil without TLS

	upstreams edge.PrivateUpstreams

	closeOnce sync.Once
	limiter   *connLimiter // limiter counts the connection.
}

// Close closes the connection and stops counting it.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closeOnce.Do(func() { c.limiter.remove(c) })
	c.upstreams.Close()
	return err
}

// CloseWrite ends the sending side.
func (c *conn) CloseWrite() error {
	if tcp := c.tcp(); tcp != nil {
		return tcp.CloseWrite()
	}
	return nil
}

// Abort resets the connection. It closes the TCP connection and not the TLS above it, whose close
// would wait for a client that does not read.
func (c *conn) Abort() {
	if tcp := c.tcp(); tcp != nil {
		_ = tcp.SetLinger(0) // what is queued is dropped
	}
	_ = c.Close()
}

// tcp returns the TCP connection, nil where there is none.
func (c *conn) tcp() *net.TCPConn {
	below := c.Conn
	if pc, ok := below.(*proxyproto.Conn); ok {
		below = pc.Raw()
	}
	tcp, _ := below.(*net.TCPConn)
	return tcp
}

// readProxyHeader reads the client's address from the PROXY header of a trusted proxy, which must
// send one.
func (c *conn) readProxyHeader(timeout time.Duration) error {
	pc := proxyproto.NewConn(c.Conn, proxyproto.WithPolicy(proxyproto.REQUIRE),
		proxyproto.SetReadHeaderTimeout(timeout))
	h := pc.ProxyHeader()
	if h == nil {
		return errors.New("the proxy sent no header of the PROXY protocol")
	}
	c.Conn = pc
	if h.Command.IsLocal() { // the proxy itself: a health check
		return nil
	}
	source, ok := h.SourceAddr.(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("the proxy names a client that is not of TCP: %v", h.SourceAddr)
	}
	c.client = addrOf(source)
	return nil
}

// addrOf returns the address as an AddrPort, IPv4 unmapped and without a zone; the zero AddrPort
// when it has none.
func addrOf(a net.Addr) netip.AddrPort {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

type connKey struct{}

// withConn stores a connection in the context of its requests.
func withConn(ctx context.Context, c net.Conn) context.Context {
	framed, ok := c.(*framing.Conn)
	if !ok {
		return ctx
	}
	below := framed.Conn
	if secure, ok := below.(*tls.Conn); ok {
		below = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, below)
}
