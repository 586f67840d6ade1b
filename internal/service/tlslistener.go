// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
	"github.com/fairlead-dev/fairlead/internal/service/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	handshakeTimeout = 10 * time.Second
	maxHandshakes    = 512 // at a time; further connections wait in the kernel's queue
)

// tlsListener accepts connections, does their TLS handshake and tells them apart by ALPN.
type tlsListener struct {
	listener        net.Listener
	tls             *tls.Config
	tunnels         *tunnel.Server
	http            *framing.Listener // queue of the HTTP server's connections
	unauthenticated *unauthenticatedLimiter
	log             *slog.Logger
	conns           sync.WaitGroup // handshakes and tunnel connections
}

// serverTLS is the one TLS configuration, so that session tickets hold for every connection.
func serverTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		NextProtos:                  []string{tunnel.ALPN, "h2", "http/1.1"},
		GetCertificate:              certificate,
		DynamicRecordSizingDisabled: true, // the tunnel writes records in groups of its own
	}
}

// acceptConns accepts until the listener is closed. ctx ends handshakes and tunnel connections.
func (d *tlsListener) acceptConns(ctx context.Context) {
	slots := make(chan struct{}, maxHandshakes)
	var pause time.Duration
	for {
		raw, err := d.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, for instance: it passes
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			d.log.Error("accepting a connection", "err", err, "retry_in", pause)
			if !timer.Sleep(ctx, pause) {
				return
			}
			continue
		}
		pause = 0
		c := tls.Server(tunnel.TuneConn(raw), d.tls)
		if !d.unauthenticated.add(c) {
			_ = raw.Close()
			continue
		}
		slots <- struct{}{}
		d.conns.Go(func() { d.serveConn(ctx, c, func() { <-slots }) })
	}
}

// serveConn does the TLS handshake, calls done, and passes the connection on by its ALPN protocol.
// The receiver removes it from the unauthenticatedLimiter once it has shown a credential.
func (d *tlsListener) serveConn(ctx context.Context, c *tls.Conn, done func()) {
	shaking, cancel := context.WithTimeout(ctx, handshakeTimeout)
	err := c.HandshakeContext(shaking)
	cancel()
	done()
	if err != nil {
		d.log.Debug("handshake not completed", "remote", c.RemoteAddr(), "err", err)
		_ = c.NetConn().Close()
		d.unauthenticated.remove(c)
		return
	}
	if c.ConnectionState().NegotiatedProtocol != tunnel.ALPN {
		if !d.http.Put(c) {
			_ = c.Close()
			d.unauthenticated.remove(c)
		}
		return
	}
	defer d.unauthenticated.remove(c)
	if err := d.tunnels.ServeConn(ctx, c); err != nil {
		d.log.Debug("tunnel connection ended", "remote", c.RemoteAddr(), "err", err)
	}
}

// maxUnauthenticated is how many connections a client may have that have not shown a credential:
// half of maxHandshakes, so that one client alone cannot keep the others out. Many agents and
// forwarders may be one client, behind a NAT: those that are refused retry a moment later, with
// jitter, and the oldest connection makes room for a new one, of those that have sent nothing if it
// is silentAge old, else of those with a TLS handshake if it is shakingAge old.
const (
	maxUnauthenticated = 256
	silentAge          = 500 * time.Millisecond
	shakingAge         = 2 * time.Second
)

// unauthenticatedLimiter limits how many connections without a credential each client has. It is
// safe for concurrent use.
type unauthenticatedLimiter struct {
	max int
	log *slog.Logger

	refused atomic.Int64 // connections that were refused or dropped

	mu      sync.Mutex
	clients map[netip.Prefix]*unauthenticatedClient // clients with counted connections
	conns   map[net.Conn]*list.Element              // elements of the counted connections, by what is below TLS
}

// unauthenticatedClient is a client with connections that have not shown a credential.
type unauthenticatedClient struct {
	key     netip.Prefix
	silent  list.List // silent has unauthenticatedConns that have sent nothing, the oldest first.
	shaking list.List // shaking has those that have sent a ClientHello.
	logged  bool      // logged is set once a connection was refused or dropped.
}

type unauthenticatedConn struct {
	net.Conn
	client *unauthenticatedClient
	in     *list.List // in is the client's list that has it.
	since  time.Time
}

// replaceable returns the connection that makes room for a new one, or nil.
func (c *unauthenticatedClient) replaceable() net.Conn {
	if conn, since := oldest(&c.silent); conn != nil && time.Since(since) >= silentAge {
		return conn
	}
	if conn, since := oldest(&c.shaking); conn != nil && time.Since(since) >= shakingAge {
		return conn
	}
	return nil
}

func oldest(in *list.List) (conn net.Conn, since time.Time) {
	if e := in.Front(); e != nil {
		first := e.Value.(unauthenticatedConn)
		return first.Conn, first.since
	}
	return nil, time.Time{}
}

func newUnauthenticatedLimiter(max int, log *slog.Logger) *unauthenticatedLimiter {
	return &unauthenticatedLimiter{max: max, log: log, clients: make(map[netip.Prefix]*unauthenticatedClient),
		conns: make(map[net.Conn]*list.Element)}
}

// add counts a new connection and reports whether its client may have it. For a client that has as
// many as it may, add drops one that is replaceable, if there is one.
func (u *unauthenticatedLimiter) add(c net.Conn) bool {
	c = belowTLS(c)
	remote, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // connections without an IP address are one client
	key := clientlimit.Key(remote.Addr())
	u.mu.Lock()
	defer u.mu.Unlock()
	client := u.clients[key]
	if client == nil {
		client = &unauthenticatedClient{key: key}
		u.clients[key] = client
	}
	if client.silent.Len()+client.shaking.Len() >= u.max {
		u.refused.Add(1)
		if !client.logged {
			client.logged = true
			u.log.Warn("connections are closed: the client has too many that have not shown a credential",
				"client", key, "limit", u.max)
		}
		old := client.replaceable()
		if old == nil {
			return false
		}
		u.removeLocked(old)
		u.clients[key] = client // it was removed with its last connection
		_ = old.Close()         // without TLS's alert, for which it would wait
	}
	u.conns[c] = client.silent.PushBack(unauthenticatedConn{c, client, &client.silent, time.Now()})
	return true
}

// spoke records that a connection has sent a ClientHello.
func (u *unauthenticatedLimiter) spoke(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.conns[c]
	if e == nil {
		return
	}
	if conn := e.Value.(unauthenticatedConn); conn.in == &conn.client.silent {
		conn.in.Remove(e)
		conn.in = &conn.client.shaking
		u.conns[c] = conn.in.PushBack(conn)
	}
}

func belowTLS(c net.Conn) net.Conn {
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c
}

// remove ends the count of a connection that has shown a credential or has ended. A second call for
// the same connection does nothing.
func (u *unauthenticatedLimiter) remove(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removeLocked(belowTLS(c))
}

func (u *unauthenticatedLimiter) removeLocked(c net.Conn) {
	e := u.conns[c]
	if e == nil {
		return
	}
	delete(u.conns, c)
	conn := e.Value.(unauthenticatedConn)
	conn.in.Remove(e)
	if client := conn.client; client.silent.Len()+client.shaking.Len() == 0 {
		delete(u.clients, client.key)
	}
}
