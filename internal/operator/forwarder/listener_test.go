// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
	"github.com/fairlead-dev/fairlead/test/support/pipelistener"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// pipeConn is an in-memory connection for synctest bubbles.
type pipeConn struct{ net.Conn }

func (pipeConn) CloseWrite() error   { return nil }
func (pipeConn) SetLinger(int) error { return nil }

func newTestListeners(
	listen func(context.Context, int) (net.Listener, error),
	serve func(forward.Connection, *portAssignment, *portStats),
) *listeners {
	return &listeners{
		listen: listen, relayConn: serve, stats: newMetrics(), log: slog.New(slog.DiscardHandler),
		timing:  defaultTiming(),
		changed: &broadcaster{}, byPort: map[int]*listener{},
	}
}

func TestListener_RetriesListenAndAccept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln, tries := pipelistener.New(), 0
		served := make(chan portAssignment, 1)
		set := newTestListeners(
			func(context.Context, int) (net.Listener, error) {
				if tries++; tries <= 3 {
					return nil, syscall.EADDRINUSE
				}
				return ln, nil
			},
			func(c forward.Connection, to *portAssignment, _ *portStats) { _ = c.Close(); served <- *to })
		want := portAssignment{account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}, "ep-1"}
		set.apply(map[int]portAssignment{15432: want})
		if st := set.status(); len(st) != 1 || st[0].Listening || st[0].Error == "" ||
			st[0].URL != "tcp://db.demo:5432" {
			t.Errorf("status while the port is taken: %+v", st)
		}
		begun := time.Now()
		for range 5 {
			ln.Fail(syscall.EMFILE) // taken once it listens
		}
		a, b := net.Pipe()
		defer b.Close()
		ln.Offer(pipeConn{a})
		if got := <-served; got != want {
			t.Errorf("served %+v", got)
		}
		if took := time.Since(begun); took < 500*time.Millisecond || took > 3*time.Second {
			t.Errorf("took %s: the pauses do not grow as they should", took)
		}
		if st := set.status(); !st[0].Listening || st[0].Error != "" {
			t.Errorf("status when it listens: %+v", st)
		}
		set.close()
		_ = set.wait(t.Context())
	})
}

func TestListener_CloseEndsRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newTestListeners(func(context.Context, int) (net.Listener, error) {
			return nil, syscall.EADDRINUSE
		}, nil)
		set.apply(map[int]portAssignment{15432: {account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432},
			"ep-1"}})
		set.close()
		_ = set.wait(t.Context()) // hangs, which synctest reports, if a retry goes on
		set.apply(map[int]portAssignment{15432: {account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432},
			"ep-1"}})
		if st := set.status(); len(st) != 0 {
			t.Errorf("listening again after close: %+v", st)
		}
	})
}

func TestListeners_KeepsListenerOfSameURL(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := connected(t, e, shortTiming())
	before, _ := r.ports.Load(10080)
	next := testObjects()
	next.BoundEndpoints[0].Spec.Endpoints[0].ID = "ep-next" // the agent came back from another machine
	r.source.update(next)
	if after, _ := r.ports.Load(10080); after != before {
		t.Fatal("the listener was replaced, and with it connections in its queue lost")
	}
	_, _ = get(t, r.dial(10080), "/")
	if h := wait.Receive(t, "a stream", e.streams); h.EndpointID != "ep-next" {
		t.Errorf("stream for %s, want ep-next", h.EndpointID)
	}
}

func TestListeners_ClosesListenerOfRemovedURL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var opened []*pipelistener.Listener
		set := newTestListeners(func(context.Context, int) (net.Listener, error) {
			opened = append(opened, pipelistener.New())
			return opened[len(opened)-1], nil
		}, nil)
		old := account.EndpointURL{Scheme: "http", Host: "old.demo", Port: 80}
		set.apply(map[int]portAssignment{10080: {old, "ep-1"}})
		for i, next := range []account.EndpointURL{{Scheme: "http", Host: "new.demo", Port: 80},
			{Scheme: "http", Host: "new.demo", Port: 81}, {Scheme: "tcp", Host: "new.demo", Port: 81}} {
			set.apply(map[int]portAssignment{10080: {next, "ep-1"}})
			if len(opened) != i+2 {
				t.Fatalf("%d listeners opened for owner %d", len(opened), i+2)
			}
			select {
			case <-opened[i].Closed(): // and with it what waited in its queue for the old owner
			default:
				t.Errorf("the listener of %v is still open for %v", set.byPort[10080].url, next)
			}
		}
		set.close()
		_ = set.wait(t.Context())
	})
}

func TestListeners_ReassignedPortReachesNewEndpointOnly(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := connected(t, e, shortTiming())
	// A fixed port: a new listener must get the old one's port. On an address of its own, no other
	// test can take it in between.
	const host = "127.0.9.1"
	probe, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	port := probe.Addr().(*net.TCPAddr).Port
	_ = probe.Close()
	r.listeners.listen = func(ctx context.Context, p int) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(p)))
	}
	who := func(name, id string) Objects {
		return Objects{OperatorID: "ko-1",
			BoundEndpoints: []*v1alpha1.BoundEndpoint{bep(name, "demo", "http", 80, int32(port), id)}}
	}
	for i := range 20 {
		name, id := "host"+strconv.Itoa(i), "ep-"+strconv.Itoa(i)
		r.source.update(who(name, id))
		c := dial(t, net.JoinHostPort(host, strconv.Itoa(port)))
		if res, _ := get(t, c, "/"); res.StatusCode != 200 {
			t.Fatalf("got %s", res.Status)
		}
		if h := wait.Receive(t, "a stream", e.streams); h.EndpointID != id || h.Host != name+".demo" {
			t.Errorf("a connection for %s went to %s of %s", name, h.EndpointID, h.Host)
		}
	}
	r.source.update(Objects{OperatorID: "ko-1"})
	if c, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
		_ = c.Close()
		t.Error("the forwarder still listens on a port without owner")
	}
}

// TestListener_ResetsConnectionAcceptedAfterClose checks that a connection that was accepted while
// its port was assigned anew is reset.
func TestListener_ResetsConnectionAcceptedAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln := pipelistener.New()
		set := newTestListeners(func(context.Context, int) (net.Listener, error) { return ln, nil },
			func(forward.Connection, *portAssignment, *portStats) { t.Error("served") })
		set.apply(map[int]portAssignment{15432: {account.EndpointURL{Scheme: "tcp", Host: "old.demo", Port: 5432},
			"ep-old"}})
		l := set.byPort[15432]
		a, b := net.Pipe()
		set.close()
		l.handle(pipeConn{a})
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the client reads %v, want an end", err)
		}
		_ = set.wait(t.Context())
	})
}

func TestListen_IPv4AndIPv6(t *testing.T) {
	t.Parallel()
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6 on loopback")
	}
	port := probe.Addr().(*net.TCPAddr).Port
	_ = probe.Close()
	e := startEdgeAt(t, "[::1]:0", respond)
	r := start(t, e, shortTiming())
	r.listeners.listen = ListenOptions{}.listen // the real one
	r.source.update(Objects{OperatorID: "ko-1",
		BoundEndpoints: []*v1alpha1.BoundEndpoint{bep("api", "demo", "http", 80, int32(port), "ep-1")}})
	for _, ip := range []string{"127.0.0.1", "::1"} {
		c := dial(t, net.JoinHostPort(ip, strconv.Itoa(port)))
		if res, body := get(t, c, "/"+ip); res.StatusCode != 200 || body != "/"+ip {
			t.Errorf("%s: %s %q", ip, res.Status, body)
		}
		if h := wait.Receive(t, "a stream", e.streams); h.ClientAddr != c.LocalAddr().String() {
			t.Errorf("client address %q, want %q", h.ClientAddr, c.LocalAddr())
		}
	}
}

func TestListeners_InvalidPortAffectsNoOther(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r := start(t, startEdge(t, respond), shortTiming())
	byHook := r.listeners.listen
	r.listeners.listen = func(ctx context.Context, port int) (net.Listener, error) {
		if port == 10666 {
			return new(net.ListenConfig).Listen(ctx, "tcp", taken.Addr().String())
		}
		return byHook(ctx, port)
	}
	o := testObjects()
	o.BoundEndpoints = append(o.BoundEndpoints, bep("odd", "demo", "http", 80, 10666, "ep-odd"))
	r.source.update(o)
	if res, _ := get(t, r.dial(10080), "/"); res.StatusCode != 200 {
		t.Errorf("got %s", res.Status)
	}
	for _, st := range r.status().Listeners {
		if st.Listening == (st.Port == 10666) {
			t.Errorf("status %+v", st)
		}
	}
}

func TestListeners_ConnectionsOutliveListener(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		defer st.Close()
		_ = st.Accept()
		_, _ = io.Copy(st, st)
		_ = st.CloseWrite()
	})
	r := connected(t, e, shortTiming())
	c := r.dial(15432)
	echo := func(s string) {
		t.Helper()
		b := make([]byte, len(s))
		_, _ = io.WriteString(c, s)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != s {
			t.Errorf("echo of %q: %q, %v", s, b, err)
		}
	}
	echo("before")
	r.source.update(Objects{OperatorID: "ko-1"})
	echo("after")
}

func TestListen_HostIsTheOnlyAddress(t *testing.T) {
	t.Parallel()
	ln, err := ListenOptions{Host: "127.0.0.1"}.listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if ip := ln.Addr().(*net.TCPAddr).IP; ip.String() != "127.0.0.1" {
		t.Errorf("it listens at %s", ip)
	}
}
