// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// keeps starts an agent whose endpoints may change, with tcp endpoints of these names.
func (b *board) keeps(t *testing.T, change func(*agent.Options), names ...string) (*running, []agent.Endpoint) {
	t.Helper()
	var endpoints []agent.Endpoint
	for _, name := range names {
		endpoints = append(endpoints, tcpEndpoint(t, name))
	}
	b.svc.mayUnbind = true
	b.svc.start()
	return run(t, b.svc, "8080", func(o *agent.Options) {
		o.Endpoints, o.KeepRunning, o.RebindDelay = endpoints, true, 5*time.Millisecond
		if change != nil {
			change(o)
		}
	}), endpoints
}

// online waits for the event of the endpoint.
func online(r *running, key string) agent.Online {
	r.t.Helper()
	for {
		if e := next[agent.Online](r); e.Key == key {
			return e
		}
	}
}

func TestSet_BindsAndUnbindsOnSameSession(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	r, all := b.keeps(t, nil, "a", "b")
	s := receive(t, b.svc.bound, "bind")
	for range all {
		receive(t, b.svc.binds, "bind")
		next[agent.Online](r)
	}
	changed := all[0]
	changed.Metadata = "changed"
	changed.Owner = &tunnel.Owner{Kind: "AgentEndpoint", Namespace: "demo", Name: "a", UID: "1"}
	r.agent.Set([]agent.Endpoint{changed, tcpEndpoint(t, "c")})
	for range 2 {
		switch bind := receive(t, b.svc.binds, "bind"); {
		case bind.URL == "tcp://c.demo:1" && bind.ResumeSecret == "":
		case bind.URL == "tcp://a.demo:1" && bind.ResumeSecret == "a.demo of ts-1" && bind.Metadata == "changed" &&
			*bind.Owner == *changed.Owner:
		default:
			t.Errorf("%+v", bind)
		}
	}
	if id := receive(t, b.svc.unbinds, "unbind"); id != "ep-b.demo" {
		t.Errorf("unbound %s", id)
	}
	for _, name := range []string{"a", "c"} {
		if got := upstreamOf(t, s, headerFor(name)); got != name {
			t.Errorf("%s got %q", name, got)
		}
	}
	if e := online(r, "c"); e.SessionID != "ts-1" || e.Reconnected {
		t.Errorf("%+v", e)
	}
	r.agent.Set([]agent.Endpoint{changed, tcpEndpoint(t, "c")}) // its upstream has another port
	if bind := receive(t, b.svc.binds, "bind"); bind.URL != "tcp://c.demo:1" || bind.ResumeSecret == "" {
		t.Errorf("%+v", bind)
	}
	r.agent.Set([]agent.Endpoint{changed})
	if id := receive(t, b.svc.unbinds, "unbind"); id != "ep-c.demo" || len(b.svc.binds) > 0 {
		t.Errorf("unbound %s, %d binds of what has not changed", id, len(b.svc.binds))
	}
}

func TestSet_RemovedEndpointServesOpenStreams(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"until they end": patience, "at most for DrainTimeout": 50 *
		time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBoard(t)
			release := make(chan struct{})
			upstream := tcpUpstream(t, func(c *net.TCPConn) {
				_, _ = io.WriteString(c, "first ")
				<-release
				_, _ = io.WriteString(c, "last")
			})
			to, err := agent.ParseUpstream("tcp", upstream)
			must.Succeed(t, err)
			r, _ := b.keeps(t, func(o *agent.Options) {
				o.DrainTimeout = timeout
				o.Endpoints[0].Upstream = to
			}, "a")
			s := receive(t, b.svc.bound, "bind")
			st := open(t, s, headerFor("a"))
			defer func() { _ = st.Close() }()
			if _, err := io.ReadFull(st, make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			r.agent.Set(nil)
			receive(t, b.svc.unbinds, "unbind")
			if e := next[agent.Removed](r); e.Key != "a" || !e.Unbound {
				t.Errorf("%+v", e)
			}
			if timeout == patience {
				close(release)
			}
			_ = st.CloseWrite()
			got, err := io.ReadAll(st)
			if timeout == patience && (err != nil || string(got) != "last") {
				t.Errorf("got %q, %v", got, err)
			}
			if timeout != patience {
				var reset *tunnel.ResetError
				if !errors.As(err, &reset) {
					t.Errorf("the connection ended after %q with %v, want an abort", got, err)
				}
				close(release)
				wantRefused(t, s, headerFor("a"), tunnel.RefusedUnknownEndpoint)
			}
		})
	}
}

// TestSet_LateStreamsOfRemovedEndpoint holds that a stream is served which was opened before the
// server unbound its endpoint, and arrives after the answer.
func TestSet_LateStreamsOfRemovedEndpoint(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	r, _ := b.keeps(t, nil, "a")
	s := receive(t, b.svc.bound, "bind")
	next[agent.Online](r)
	r.agent.Set(nil)
	next[agent.Removed](r)
	if got := upstreamOf(t, s, headerFor("a")); got != "a" {
		t.Errorf("got %q", got)
	}
}

func TestSet_RefusedChangeLeavesEndpointAsItWas(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	r, all := b.keeps(t, nil, "a")
	s := receive(t, b.svc.bound, "bind")
	next[agent.Online](r)
	b.refuse("a.demo", tunnel.CodeInvalid)
	changed := tcpEndpoint(t, "other")
	changed.Key, changed.URL, changed.TrafficPolicy = all[0].Key, all[0].URL, "on_http_request: []"
	r.agent.Set([]agent.Endpoint{changed})
	if e := next[agent.BindRefused](r); e.Key != "a" || e.Code != tunnel.CodeInvalid || !e.StillBound {
		t.Errorf("%+v", e)
	}
	if got := upstreamOf(t, s, headerFor("a")); got != "a" {
		t.Errorf("got %q", got)
	}
	b.refuse("a.demo", "")
	next[agent.Online](r)
	if got := upstreamOf(t, s, headerFor("a")); got != "other" {
		t.Errorf("got %q", got)
	}
}

// TestSet_NewDialWithoutBind holds that what the server does not know of an endpoint changes
// without a bind.
func TestSet_NewDialWithoutBind(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	r, all := b.keeps(t, nil, "a")
	s := receive(t, b.svc.bound, "bind")
	receive(t, b.svc.binds, "bind")
	next[agent.Online](r)
	other := tcpEndpoint(t, "other")
	all[0].Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != all[0].Upstream.Address() {
			t.Errorf("dialled %s", address)
		}
		return new(net.Dialer).DialContext(ctx, network, other.Upstream.Address())
	}
	r.agent.Set(all)
	if got := upstreamOf(t, s, headerFor("a")); got != "other" || len(b.svc.binds) > 0 {
		t.Errorf("got %q, %d binds", got, len(b.svc.binds))
	}
}

func TestSet_EndpointComesBackWhileUnbound(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	release := make(chan struct{})
	b.svc.unbind = func() { <-release }
	r, all := b.keeps(t, nil, "a")
	s := receive(t, b.svc.bound, "bind")
	receive(t, b.svc.binds, "bind")
	next[agent.Online](r)
	r.agent.Set(nil)
	receive(t, b.svc.unbinds, "unbind")
	r.agent.Set(all)
	close(release)
	if bind := receive(t, b.svc.binds, "bind"); bind.ResumeSecret != "" {
		t.Errorf("resumes what was deleted: %+v", bind)
	}
	next[agent.Online](r)
	if got := upstreamOf(t, s, headerFor("a")); got != "a" || len(remaining[agent.Removed](r)) > 0 {
		t.Errorf("got %q", got)
	}
}

func TestSet_WhileDisconnected(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	var down atomic.Bool
	r, all := b.keeps(t, func(o *agent.Options) {
		o.DialServer = func(ctx context.Context, network, address string) (net.Conn, error) {
			if down.Load() {
				return nil, errors.New("down")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}, "a", "b")
	for range all {
		receive(t, b.svc.bound, "bind")
		receive(t, b.svc.binds, "bind")
		next[agent.Online](r)
	}
	down.Store(true)
	b.svc.cut()
	for !strings.Contains(next[agent.Retrying](r).Cause, "down") {
		continue
	}
	r.agent.Set(append(all[:1], tcpEndpoint(t, "c")))
	if e := next[agent.Removed](r); e.Key != "b" || e.Unbound {
		t.Errorf("%+v", e)
	}
	down.Store(false)
	secrets := map[string]string{}
	for range 2 {
		bind := receive(t, b.svc.binds, "bind")
		secrets[bind.URL] = bind.ResumeSecret
	}
	if len(secrets) != 2 || secrets["tcp://a.demo:1"] != "a.demo of ts-1" || secrets["tcp://c.demo:1"] != "" {
		t.Errorf("binds with %v", secrets)
	}
}

// TestSet_DuringShutdownBindsNothing changes the endpoints while the last bind of the agent is not
// answered, and while it unbinds.
func TestSet_DuringShutdownBindsNothing(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	binding, unbinding, grant := make(chan struct{}), make(chan struct{}), b.svc.bind
	b.svc.bind = func(ctx context.Context, s *tunnel.Session, bind tunnel.Bind) (tunnel.Bound, error) {
		<-binding
		return grant(ctx, s, bind)
	}
	b.svc.unbind = func() { <-unbinding }
	r, all := b.keeps(t, func(o *agent.Options) { o.UnbindTimeout = patience }, "a")
	receive(t, b.svc.binds, "bind")
	r.stop()
	r.agent.WaitForShutdown()
	changed := all[0]
	changed.Metadata = "changed"
	r.agent.Set([]agent.Endpoint{changed, tcpEndpoint(t, "b")})
	close(binding)
	if id := receive(t, b.svc.unbinds, "unbind"); id != "ep-a.demo" {
		t.Errorf("unbound %s", id)
	}
	r.agent.Set(append(all, tcpEndpoint(t, "c")))
	close(unbinding)
	if err := r.end(); err != nil || len(b.svc.binds) > 0 {
		t.Errorf("%v, %d binds", err, len(b.svc.binds))
	}
	r.agent.Set(nil)
}

func TestLeaveBound_DrainsAndUnbindsNothing(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	release := make(chan struct{})
	to, err := agent.ParseUpstream("tcp", tcpUpstream(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "first ")
		<-release
		_, _ = io.WriteString(c, "last")
	}))
	must.Succeed(t, err)
	r, _ := b.keeps(t, func(o *agent.Options) {
		o.DrainTimeout, o.LeaveBound = patience, func() bool { return true }
		o.Endpoints[0].Upstream = to
	}, "a")
	s := receive(t, b.svc.bound, "bind")
	st := open(t, s, headerFor("a"))
	defer func() { _ = st.Close() }()
	if _, err := io.ReadFull(st, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	r.stop()
	receive(t, s.PeerDraining(), "drain")
	next[agent.Stopping](r)
	close(release)
	_ = st.CloseWrite()
	if got, err := io.ReadAll(st); err != nil || string(got) != "last" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := r.end(); err != nil || len(b.svc.unbinds) > 0 {
		t.Errorf("%v, %d unbinds", err, len(b.svc.unbinds))
	}
	if e := next[agent.Stopped](r); !e.ServerTold {
		t.Errorf("%+v", e)
	}
}

func TestEndpointDial_IsNotProbed(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	dialled := make(chan string, 10)
	r := run(t, svc, "8080", func(o *agent.Options) {
		o.Endpoints[0].Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			dialled <- address
			return nil, errors.New("no ready endpoint")
		}
	})
	s := receive(t, svc.bound, "bind")
	next[agent.Online](r)
	wantRefused(t, s, header(), tunnel.RefusedUpstream)
	if down := next[agent.UpstreamDown](r); down.Cause != "no ready endpoint" || len(dialled) != 1 {
		t.Errorf("%+v, dialled %d times", down, len(dialled))
	}
	r.stop()
	if err := r.end(); err != nil {
		t.Error(err)
	}
}
