// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const handshakeTimeout = 10 * time.Second

// tlsListener accepts connections, does their TLS handshake and tells them apart by ALPN. Those that
// begin with a ticket have no TLS.
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
		d.conns.Go(func() { d.serveConn(ctx, c) })
	}
}

// serveConn does the TLS handshake and passes the connection on by its ALPN protocol. The receiver
// removes it from the unauthenticatedLimiter once it has shown a credential.
func (d *tlsListener) serveConn(ctx context.Context, c *tls.Conn) {
	shaking, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if d.tunnels.PresentsTicket(shaking, c.NetConn()) {
		d.serveTicket(ctx, c)
		return
	}
	err := c.HandshakeContext(shaking)
	cancel()
	d.unauthenticated.handshakeEnded(c)
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

// serveTicket passes a connection on that carries no TLS itself, but a sealed stream.
func (d *tlsListener) serveTicket(ctx context.Context, c *tls.Conn) {
	d.unauthenticated.spoke(c.NetConn())
	err := d.tunnels.ServeTicket(ctx, c.NetConn())
	d.unauthenticated.handshakeEnded(c)
	d.unauthenticated.remove(c)
	if err != nil {
		d.log.Debug("connection without a ticket closed", "remote", c.RemoteAddr(), "err", err)
	}
}
