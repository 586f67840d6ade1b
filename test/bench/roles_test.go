// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/relay"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// The chains that are compared.
const (
	viaTunnel = "tunnel"
	viaTLS    = "tls"   // one TLS connection per connection and hop, tuned alike
	viaTCP    = "plain" // no encryption
)

// roles are the parts of the chains. Each listens and returns its address; those of the tunnel's agent are for nobody.
var roles = map[string]func(k keyring, next string) (string, error){
	viaTunnel + " edge":      tunnelEdge,
	viaTunnel + " agent":     tunnelAgent,
	viaTunnel + " forwarder": tunnelForwarder,
	viaTLS + " agent": func(k keyring, next string) (string, error) {
		return relayRole(func() (relay.HalfCloser, error) { return dialTCP(next) }, acceptTLS(k))
	},
	viaTLS + " edge": func(k keyring, next string) (string, error) {
		return relayRole(func() (relay.HalfCloser, error) { return dialTLS(k, next) }, acceptTLS(k))
	},
	viaTLS + " forwarder": func(k keyring, next string) (string, error) {
		return relayRole(func() (relay.HalfCloser, error) { return dialTLS(k, next) }, acceptTCP)
	},
	viaTCP + " agent":     plainRole,
	viaTCP + " edge":      plainRole,
	viaTCP + " forwarder": plainRole,
}

func plainRole(_ keyring, next string) (string, error) {
	return relayRole(func() (relay.HalfCloser, error) { return dialTCP(next) }, acceptTCP)
}

// relayRole joins every connection it accepts with one that it dials.
func relayRole(dial func() (relay.HalfCloser, error), accept func(*net.TCPConn) (relay.HalfCloser, error)) (string, error) {
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

func listen(serve func(*net.TCPConn)) (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
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

// edge joins a forwarder's streams with streams to the agent.
type edge struct {
	agent    atomic.Pointer[tunnel.Session]
	sessions atomic.Int32
}

func tunnelEdge(k keyring, _ string) (string, error) {
	server := tunnel.NewServer(tunnel.ServerConfig{Handler: &edge{}})
	cfg := k.server.Clone()
	cfg.NextProtos = []string{tunnel.ALPN}
	return listen(func(raw *net.TCPConn) {
		c := tls.Server(tunnel.TuneConn(raw), cfg)
		if err := c.HandshakeContext(context.Background()); err == nil {
			_ = server.ServeConn(context.Background(), c)
		}
	})
}

func (e *edge) Hello(context.Context, tunnel.Hello, net.Addr) (tunnel.Welcome, error) {
	return tunnel.Welcome{SessionID: fmt.Sprint(e.sessions.Add(1))}, nil
}

func (e *edge) Up(s *tunnel.Session) {
	if s.Role() == tunnel.RoleAgent {
		e.agent.Store(s)
	}
}

func (e *edge) Bind(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
	return tunnel.Bound{}, nil
}
func (e *edge) Unbind(context.Context, *tunnel.Session, string) error { return nil }
func (e *edge) Down(*tunnel.Session, error)                           {}

func (e *edge) Stream(ctx context.Context, _ *tunnel.Session, st *tunnel.Stream) {
	far, err := e.agent.Load().Open(ctx, st.Header())
	if err != nil {
		_ = st.Refuse(tunnel.RefusedOffline)
		return
	}
	defer func() { _ = far.Close() }()
	if err := far.WaitOpened(ctx); err != nil {
		_ = st.Refuse(tunnel.RefusedUpstream)
		return
	}
	if st.Accept() == nil {
		_, _ = relay.Join(ctx, st, far, relay.Options{})
	}
}

func tunnelAgent(k keyring, next string) (string, error) {
	edgeAddr, upstream := splitNext(next)
	return "none", runClient(k, edgeAddr, tunnel.RoleAgent, func(ctx context.Context, _ *tunnel.Session, st *tunnel.Stream) {
		c, err := dialTCP(upstream)
		if err != nil {
			_ = st.Refuse(tunnel.RefusedUpstream)
			return
		}
		if st.Accept() == nil {
			_, _ = relay.Join(ctx, st, c, relay.Options{})
		}
	}, nil)
}

func tunnelForwarder(k keyring, next string) (string, error) {
	var client *tunnel.Client
	if err := runClient(k, next, tunnel.RoleForwarder, nil, &client); err != nil {
		return "", err
	}
	header := tunnel.OpenHeader{EndpointID: "ep_bench", Host: "db.bench", Port: 5432, ClientAddr: "127.0.0.1:1",
		Pod: &tunnel.PodIdentity{Namespace: "bench", Name: "client", ServiceAccount: "default"}}
	return listen(func(c *net.TCPConn) {
		st, err := client.Session().Open(context.Background(), header)
		if err != nil {
			_ = c.Close()
			return
		}
		_, _ = relay.Join(context.Background(), c, st, relay.Options{})
	})
}

// runClient starts a client and waits until its session is up.
func runClient(k keyring, addr string, role tunnel.Role, onStream func(context.Context, *tunnel.Session, *tunnel.Stream), out **tunnel.Client) error {
	client := tunnel.NewClient(tunnel.ClientConfig{Address: addr, TLS: k.client, OnStream: onStream,
		Hello: func() tunnel.Hello { return tunnel.Hello{Role: role} }})
	if out != nil {
		*out = client
	}
	go func() { _ = client.Run(context.Background()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := client.Wait(ctx)
	return err
}
