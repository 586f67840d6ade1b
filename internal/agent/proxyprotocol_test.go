// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/pires/go-proxyproto"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestServe_WritesPROXYHeader reads what the upstream gets with a parser of others. The upstream
// speaks first: the header does not wait for the client's bytes.
func TestServe_WritesPROXYHeader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ version, client, want string }{
		"version 1":         {"1", "10.0.0.5:4242", "PROXY 1 10.0.0.5:4242"},
		"version 2":         {"2", "10.0.0.5:4242", "PROXY 2 10.0.0.5:4242"},
		"IPv6, version 1":   {"1", "[fd00::5]:4242", "PROXY 1 [fd00::5]:4242"},
		"IPv6, version 2":   {"2", "[fd00::5]:4242", "PROXY 2 [fd00::5]:4242"},
		"mapped":            {"2", "[::ffff:10.0.0.5]:1", "PROXY 2 10.0.0.5:1"},
		"zone":              {"1", "[fe80::1%eth0]:1", "PROXY 1 [fe80::1]:1"},
		"unknown, 1":        {"1", "", "LOCAL 1 <nil>"},
		"unknown, 2":        {"2", "", "LOCAL 2 <nil>"},
		"without an IP":     {"2", "laptop:1", "LOCAL 2 <nil>"},
		"port of no client": {"1", "10.0.0.5:0", "PROXY 1 10.0.0.5:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := newService(t).start()
			run(t, svc, proxyUpstream(t), func(o *agent.Options) {
				asTCP(o)
				must.Succeed(t, o.Endpoints[0].Upstream.SetProxyProtocol(c.version))
			})
			h := header()
			h.ClientAddr = c.client
			st := open(t, receive(t, svc.bound, "bind"), h)
			defer func() { _ = st.Close() }()
			got := make([]byte, len(c.want))
			if _, err := io.ReadFull(st, got); err != nil || string(got) != c.want {
				t.Fatalf("the upstream read %q, %v; want %q", got, err, c.want)
			}
			if _, err := io.WriteString(st, "question"); err != nil {
				t.Fatal(err)
			}
			must.Succeed(t, st.CloseWrite())
			if rest, err := io.ReadAll(st); err != nil || string(rest) != "question" {
				t.Errorf("behind the header the upstream read %q, %v", rest, err)
			}
		})
	}
}

// TestServe_ClosesUpstreamThatTakesNoPROXYHeader: no connection is left when the header cannot be
// written.
func TestServe_ClosesUpstreamThatTakesNoPROXYHeader(t *testing.T) {
	t.Parallel()
	svc, closed := newService(t).start(), make(chan struct{})
	run(t, svc, "127.0.0.1:25", func(o *agent.Options) {
		asTCP(o)
		must.Succeed(t, o.Endpoints[0].Upstream.SetProxyProtocol("1"))
		o.Dial = func(context.Context, string, string) (net.Conn, error) { return &brokenConn{closed: closed}, nil }
	})
	wantRefused(t, receive(t, svc.bound, "bind"), header(), tunnel.RefusedUpstream)
	receive(t, closed, "close of the upstream's connection")
}

// brokenConn is a connection that takes no bytes.
type brokenConn struct {
	*net.TCPConn
	closed chan struct{}
}

func (*brokenConn) RemoteAddr() net.Addr      { return &net.TCPAddr{} }
func (*brokenConn) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (c *brokenConn) Close() error            { close(c.closed); return nil }

// proxyUpstream serves connections with a PROXY header, which it describes before it reads on, and
// then echoes.
func proxyUpstream(t *testing.T) string {
	t.Helper()
	ln := mustListen(t)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				c := proxyproto.NewConn(raw, proxyproto.WithPolicy(proxyproto.REQUIRE))
				defer func() { _ = c.Close() }()
				_, _ = io.WriteString(c, describeProxyHeader(c))
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return ln.Addr().String()
}

func describeProxyHeader(c *proxyproto.Conn) string {
	h := c.ProxyHeader()
	if h == nil {
		return "none"
	}
	command := map[bool]string{true: "LOCAL", false: "PROXY"}[h.Command.IsLocal()]
	return fmt.Sprintf("%s %d %v", command, h.Version, h.SourceAddr)
}
