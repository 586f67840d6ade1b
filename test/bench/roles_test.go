// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// The chains that are compared.
const (
	ours    = "fairlead"
	rawTLS  = "tls"   // one TLS connection per connection and hop, tuned alike
	plain   = "plain" // no encryption: the kernel splices
	haproxy = "haproxy"

	webSockets = "websockets" // ours, carried by WebSockets

	sealedInPairs = "sealed"                    // ours, with sealed endpoints
	sealedInMux   = "sealed-in-the-multiplexer" // the same without pairs
	unprivileged  = "sealed-unprivileged"       // the same with pairs, as an ordinary user
)

// kinds are the chains that consist of our programs.
var kinds = map[string]installation{ours: {}, webSockets: {WebSocket: true}, sealedInPairs: {Sealed: true},
	sealedInMux: {Sealed: true, WithoutPairs: true}, unprivileged: {Sealed: true}}

// role is a process of a chain. It returns what its parent must know, its address first.
type role func(ctx context.Context, k keyring, next string) (string, error)

// findRole returns the role with a name, or nil.
func findRole(name string) role {
	chain, part, _ := strings.Cut(name, " ")
	if _, ok := kinds[chain]; ok {
		return map[string]role{"edge": runServer, "agent": runAgent, "forwarder": runForwarder}[part]
	}
	return others[name]
}

// others are the roles that are not of our programs.
var others = map[string]role{
	rawTLS + " agent": func(_ context.Context, k keyring, next string) (string, error) {
		return relayRole(func() (relay.HalfCloser, error) { return dialTCP(next) }, acceptTLS(k))
	},
	rawTLS + " edge": func(_ context.Context, k keyring, next string) (string, error) {
		return relayRole(func() (relay.HalfCloser, error) { return dialTLS(k, next) }, acceptTLS(k))
	},
	rawTLS + " forwarder": func(_ context.Context, k keyring, next string) (string, error) {
		return relayRole(func() (relay.HalfCloser, error) { return dialTLS(k, next) }, acceptTCP)
	},
	"wan client":         runWANClient,
	"wan upstream":       runWANUpstream,
	plain + " agent":     spliceRole,
	plain + " edge":      spliceRole,
	plain + " forwarder": spliceRole,
}

// spliceRole copies between TCP connections in the kernel.
func spliceRole(_ context.Context, _ keyring, next string) (string, error) {
	return listen(func(near *net.TCPConn) {
		defer func() { _ = near.Close() }()
		c, err := dialTCP(next)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		far := c.(*net.TCPConn)
		var back sync.WaitGroup
		back.Go(func() {
			_, _ = io.Copy(near, far)
			_ = near.CloseWrite()
		})
		_, _ = io.Copy(far, near)
		_ = far.CloseWrite()
		back.Wait()
	})
}

// relayRole joins every connection it accepts with one that it dials.
func relayRole(
	dial func() (relay.HalfCloser, error), accept func(*net.TCPConn) (relay.HalfCloser, error),
) (string, error) {
	return listen(func(c *net.TCPConn) {
		near, err := accept(c)
		if err != nil {
			_ = c.Close()
			return
		}
		far, err := dial()
		if err != nil {
			_ = near.Close()
			return
		}
		_, _ = relay.Join(context.Background(), near, far, relay.Options{})
	})
}

func listen(serve func(*net.TCPConn)) (string, error) { return listenAt("127.0.0.1:0", serve) }

func listenAt(addr string, serve func(*net.TCPConn)) (string, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.TCPConn))
		}
	}()
	return ln.Addr().String(), nil
}

func dialTCP(addr string) (relay.HalfCloser, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func dialTLS(k keyring, addr string) (relay.HalfCloser, error) {
	raw, err := dialTCP(addr)
	if err != nil {
		return nil, err
	}
	c := tls.Client(tunnel.TuneConn(raw), k.client)
	if err := c.HandshakeContext(context.Background()); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return tunnel.Batch(c), nil
}

func acceptTCP(c *net.TCPConn) (relay.HalfCloser, error) { return c, nil }

func acceptTLS(k keyring) func(*net.TCPConn) (relay.HalfCloser, error) {
	return func(raw *net.TCPConn) (relay.HalfCloser, error) {
		c := tls.Server(tunnel.TuneConn(raw), k.server)
		if err := c.HandshakeContext(context.Background()); err != nil {
			return nil, err
		}
		return tunnel.Batch(c), nil
	}
}
