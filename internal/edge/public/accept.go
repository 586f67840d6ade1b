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

	"github.com/fairlead-dev/fairlead/internal/edge/framing"
)

// maxHandshakes bounds the TLS handshakes at a time: they are what costs most, and anybody can ask
// for one.
const maxHandshakes = 512

// accept takes connections until the listener is closed.
func (e *Server) accept(ctx context.Context, l net.Listener, secure bool) {
	var pause time.Duration
	for {
		raw, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, for instance: it passes
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			e.log.Error("accepting a public connection", "err", err, "retry_in", pause)
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		pause = 0
		c := &conn{Conn: raw, peer: addrOf(raw.RemoteAddr())}
		c.client, c.trusted = c.peer, contains(e.opt.TrustedProxies, c.peer.Addr())
		if !e.conns.add(c) {
			_ = raw.Close()
			continue
		}
		e.tasks.Go(func() { e.admit(ctx, c, secure) })
	}
}

// admit does what comes before the first request and hands the connection to the HTTP server.
func (e *Server) admit(ctx context.Context, c *conn, secure bool) {
	ready, err := e.prepare(ctx, c, secure)
	if err != nil {
		e.log.Debug("a public connection ended before its first request", "peer", c.peer, "err", err)
		_ = c.Close()
		return
	}
	e.queue.give(ready)
}

func (e *Server) prepare(ctx context.Context, c *conn, secure bool) (net.Conn, error) {
	if e.opt.ProxyProtocol && c.trusted {
		if err := c.readProxyHeader(e.opt.headerTimeout); err != nil {
			return nil, err
		}
	}
	if !e.conns.addForClient(c) {
		return nil, errors.New("the client has too many connections")
	}
	if !secure {
		return e.framed(c, framing.HTTP1), nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.opt.headerTimeout)
	defer cancel()
	select {
	case e.shakes <- struct{}{}:
	case <-ctx.Done():
		e.conns.countFailedHandshake()
		return nil, errors.New("too many handshakes are under way")
	}
	defer func() { <-e.shakes }()
	shaken := tls.Server(c, e.tls)
	if err := shaken.HandshakeContext(ctx); err != nil {
		e.conns.countFailedHandshake()
		return nil, fmt.Errorf("the TLS handshake: %w", err)
	}
	state := shaken.ConnectionState()
	c.tls = &state
	if state.NegotiatedProtocol == "h2" {
		return e.framed(shaken, framing.HTTP2), nil
	}
	return e.framed(shaken, framing.HTTP1), nil
}

// framed lets the HTTP server read only what every program reads alike.
func (e *Server) framed(c net.Conn, p framing.Protocol) *framing.Conn {
	return framing.New(c, framing.Options{Protocol: p, StartTimeout: e.opt.headerTimeout, HeadTimeout: e.opt.headerTimeout,
		Linger: true})
}

// conn is a client's connection before TLS.
type conn struct {
	net.Conn
	peer    netip.AddrPort       // who connected: the client, or a proxy
	client  netip.AddrPort       // who the client is, as far as connections say
	trusted bool                 // peer is a trusted proxy
	tls     *tls.ConnectionState // nil without TLS

	left sync.Once
	gone func() // ends its counting; set by the connLimiter
}

// Close closes the connection and stops counting it.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.left.Do(c.gone)
	return err
}

// CloseWrite ends the sending side.
func (c *conn) CloseWrite() error {
	if tcp := c.tcp(); tcp != nil {
		return tcp.CloseWrite()
	}
	return nil
}

// sever resets the connection. It is this one that is closed and not the TLS above it, whose
// goodbye would wait for a client that does not read.
func (c *conn) sever() {
	if tcp := c.tcp(); tcp != nil {
		_ = tcp.SetLinger(0) // what is queued is dropped
	}
	_ = c.Close()
}

// tcp is the connection itself; nil where it is of another kind.
func (c *conn) tcp() *net.TCPConn {
	below := c.Conn
	if pc, ok := below.(*proxyproto.Conn); ok {
		below = pc.Raw()
	}
	tcp, _ := below.(*net.TCPConn)
	return tcp
}

// readProxyHeader reads what a trusted proxy says of the client. It must say something.
func (c *conn) readProxyHeader(timeout time.Duration) error {
	pc := proxyproto.NewConn(c.Conn, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(timeout))
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

// addrOf reads an address of TCP; IPv4 in its own form, without a zone.
func addrOf(a net.Addr) netip.AddrPort {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

type connKey struct{}

// withConn makes a request's connection known to its handler.
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

// queue is the listener of the HTTP server.
type queue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), closed: make(chan struct{})} }

// give hands a connection over, or closes it.
func (q *queue) give(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		_ = c.Close()
	}
}

// Accept returns the next connection; net.ErrClosed after Close.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr names the listener.
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }
