// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/frozen"
)

// TestClient_ReconnectsWhenNetworkChanges: connections that a change of the network killed without
// an error are replaced within seconds, not after the keepalive's thirty; those that answer stay.
func TestClient_ReconnectsWhenNetworkChanges(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string]bool{"the old network is gone": true, "a second network": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestServer(t, overTCP, newHandler())
			var old frozen.Process // the old way to the server
			var moved atomic.Bool
			looks := make(chan struct{}, 100)
			c := h.newClient(ClientConfig{Hello: agentHello, Connections: 1,
				DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := h.dial(ctx, network, addr)
					if err != nil || moved.Load() {
						return conn, err
					}
					return relayed(t, &old, conn), nil
				}})
			c.path.sourceOf = func(string) netip.Addr {
				if moved.Load() {
					looks <- struct{}{}
					return netip.MustParseAddr("198.51.100.7")
				}
				return netip.MustParseAddr("127.0.0.1")
			}
			c.start(t).awaitSession(t)
			first := <-h.handler.ups
			t.Cleanup(old.Continue)
			if dead {
				old.Stop()
			}
			moved.Store(true)
			if !dead {
				for range 3 {
					<-looks
				}
				if first.Err() != nil || len(h.handler.ups) > 0 {
					t.Errorf("a connection that answers was closed: %v", first.Err())
				}
				return
			}
			began := time.Now()
			<-h.handler.ups
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("a new session after %v", took)
			}
		})
	}
}

// relayed returns a connection that process joins with the server's, so that it goes silent with
// the process.
func relayed(t *testing.T, process *frozen.Process, server net.Conn) net.Conn {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	join := func(to, from net.Conn) {
		_, _ = io.Copy(process.Conn(to), from)
		_ = to.Close()
	}
	go join(far, server)
	go join(server, far)
	return near
}

func TestPathWatch_NoticesSleepAndMoves(t *testing.T) {
	t.Parallel()
	home, office := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	var source netip.Addr
	p := &pathWatch{sourceOf: func(string) netip.Addr { return source }}
	now := time.Now()
	p.follow(net.TCPAddrFromAddrPort(netip.AddrPortFrom(home, 5)),
		&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443})
	for i, step := range []struct {
		source netip.Addr
		pause  time.Duration
		want   bool
	}{
		{home, time.Second, false}, {office, time.Second, true},
		{netip.Addr{}, time.Second, false}, {netip.Addr{}, time.Minute, false}, {office, time.Second, true},
		{office, time.Minute, true}, {office, time.Second, false},
	} {
		source = step.source
		now = now.Add(step.pause)
		if got := p.changed(now); got != step.want {
			t.Errorf("step %d: changed: %v, want %v", i, got, step.want)
		}
	}
}

func TestSourceAddress_OfLoopback(t *testing.T) {
	t.Parallel()
	if got := sourceAddress("127.0.0.1:9"); got != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("got %v", got)
	}
}
