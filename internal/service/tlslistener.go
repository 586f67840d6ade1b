// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
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
// half of maxHandshakes, so that one client alone cannot keep the others out. Agents, operators and
// forwarders that are refused retry a moment later, with jitter.
const maxUnauthenticated = 256

// unauthenticatedLimiter limits how many connections without a credential each client has. It is
// safe for concurrent use.
type unauthenticatedLimiter struct {
	max    int
	counts *clientlimit.Conns
	log    *slog.Logger

	refused atomic.Int64 // connections

	mu      sync.Mutex
	clients map[net.Conn]netip.Prefix // networks of the counted connections
}

func newUnauthenticatedLimiter(max int, log *slog.Logger) *unauthenticatedLimiter {
	return &unauthenticatedLimiter{max: max, counts: clientlimit.NewConns(max), log: log,
		clients: make(map[net.Conn]netip.Prefix)}
}

// add counts a new connection and reports whether its client may have it. It logs a client's first
// refusal since the client had no connection.
func (u *unauthenticatedLimiter) add(c net.Conn) bool {
	remote, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // connections without an IP address are one client
	client := clientlimit.Key(remote.Addr())
	ok, firstRefusal := u.counts.Acquire(client)
	if !ok {
		u.refused.Add(1)
		if firstRefusal {
			u.log.Warn("connections are closed: the client has too many that have not shown a credential",
				"client", client, "limit", u.max)
		}
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.clients[c] = client
	return true
}

// remove ends the count of a connection that has shown a credential or has ended. A second call for
// the same connection does nothing.
func (u *unauthenticatedLimiter) remove(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if client, counted := u.clients[c]; counted {
		delete(u.clients, c)
		u.counts.Release(client)
	}
}
