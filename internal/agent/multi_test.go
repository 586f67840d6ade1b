// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// board answers binds by URL or labels: with the id "ep-<host>", unless the host is refused.
type board struct {
	svc *service

	mu      sync.Mutex
	refused map[string]tunnel.Code
}

func newBoard(t *testing.T) *board {
	b := &board{svc: newService(t), refused: map[string]tunnel.Code{}}
	b.svc.bind = func(_ context.Context, s *tunnel.Session, bind tunnel.Bind) (tunnel.Bound, error) {
		name := "label"
		if bind.URL != "" {
			u, err := account.ParseEndpointURL(bind.URL)
			if err != nil {
				return tunnel.Bound{}, err
			}
			name = u.Host
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if code := b.refused[name]; code != "" {
			return tunnel.Bound{}, &tunnel.Error{Code: code, Msg: name + " is refused"}
		}
		return tunnel.Bound{EndpointID: "ep-" + name, URL: bind.URL, ResumeSecret: name + " of " + s.ID()}, nil
	}
	return b
}

func (b *board) refuse(host string, code tunnel.Code) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[host] = code
}

// tcpEndpoint serves tcp://<name>.demo:1 by an upstream that sends its name.
func tcpEndpoint(t *testing.T, name string) agent.Endpoint {
	to, err := agent.ParseUpstream("tcp", tcpUpstream(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, name) }))
	must.Succeed(t, err)
	return agent.Endpoint{Key: name, URL: account.EndpointURL{Scheme: "tcp", Host: name + ".demo", Port: 1},
		Binding: "kubernetes", Upstream: to}
}

func several(t *testing.T, names ...string) func(*agent.Options) {
	return func(o *agent.Options) {
		o.Endpoints, o.RebindDelay = nil, 5*time.Millisecond
		for _, name := range names {
			o.Endpoints = append(o.Endpoints, tcpEndpoint(t, name))
		}
	}
}

// upstreamOf returns what the upstream answers on a stream with header h: its name, or the error.
func upstreamOf(t *testing.T, s *tunnel.Session, h tunnel.OpenHeader) string {
	t.Helper()
	st := open(t, s, h)
	defer func() { _ = st.Close() }()
	_ = st.CloseWrite()
	got, err := io.ReadAll(st)
	if err != nil {
		return err.Error()
	}
	return string(got)
}

func headerFor(name string) tunnel.OpenHeader {
	return tunnel.OpenHeader{EndpointID: "ep-" + name + ".demo", Host: name + ".demo", Port: 1}
}

func TestBind_SeveralEndpointsShareSession(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.svc.start()
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} // more than are asked for at a time
	r := run(t, b.svc, "8080", several(t, names...))
	var s *tunnel.Session
	for range names {
		s = receive(t, b.svc.bound, "bind")
		if e := next[agent.Online](r); e.SessionID != "ts-1" || e.Reconnected || e.EndpointID != "ep-"+e.Key+".demo" ||
			e.URL != "tcp://"+e.Key+".demo:1" || e.AssignedURL != e.URL {
			t.Errorf("%+v", e)
		}
	}
	for _, name := range names {
		if got := upstreamOf(t, s, headerFor(name)); got != name {
			t.Errorf("%s got %q", name, got)
		}
	}
	wantRefused(t, s, tunnel.OpenHeader{EndpointID: "ep-a.demo", Host: "b.demo", Port: 1}, tunnel.RefusedMismatch)
	wantRefused(t, s, headerFor("z"), tunnel.RefusedUnknownEndpoint)

	b.svc.cut()
	var secrets []string
	for range names {
		receive(t, b.svc.binds, "first bind")
	}
	for range names {
		secrets = append(secrets, receive(t, b.svc.binds, "second bind").ResumeSecret)
		next[agent.Online](r)
	}
	slices.Sort(secrets)
	for i, name := range names {
		if want := name + ".demo of ts-1"; secrets[i] != want {
			t.Errorf("secret %q, want %q", secrets[i], want)
		}
	}
	r.stop()
	var gone []string
	for range names {
		gone = append(gone, receive(t, b.svc.unbinds, "goodbye"))
	}
	slices.Sort(gone)
	if gone[0] != "ep-a.demo" || gone[11] != "ep-l.demo" {
		t.Errorf("goodbye to %v", gone)
	}
	if e := next[agent.Stopped](r); !e.ServerTold {
		t.Errorf("%+v", e)
	}
}

func TestBind_RefusedEndpointLeavesOthers(t *testing.T) {
	t.Parallel()
	for _, code := range []tunnel.Code{tunnel.CodeURLTaken, tunnel.CodeInvalid, tunnel.CodeForbidden, tunnel.CodeLimit,
		tunnel.CodeInternal} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			b := newBoard(t)
			b.refuse("b.demo", code)
			b.svc.start()
			r := run(t, b.svc, "8080", several(t, "a", "b"))
			s := receive(t, b.svc.bound, "bind")
			if e := next[agent.BindRefused](r); e.Key != "b" || e.URL != "tcp://b.demo:1" ||
				e.Cause != "b.demo is refused" {
				t.Errorf("%+v", e)
			}
			for range 4 { // it is tried again
				receive(t, b.svc.binds, "bind")
			}
			if got := upstreamOf(t, s, headerFor("a")); got != "a" {
				t.Errorf("a got %q", got)
			}
			b.refuse("b.demo", "")
			if again := receive(t, b.svc.bound, "bind of b"); again != s {
				t.Error("it took another session")
			}
			for { // a's may come first
				e, ok := (<-r.events).(agent.Online)
				if ok && e.Key == "b" {
					break
				}
			}
			if refused := remaining[agent.BindRefused](r); len(refused) > 0 {
				t.Errorf("the same cause was reported again: %+v", refused)
			}
			if got := upstreamOf(t, s, headerFor("b")); got != "b" {
				t.Errorf("b got %q", got)
			}
		})
	}
}

func TestBind_AllRefusedReturnsFirstFailure(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.refuse("a.demo", tunnel.CodeURLTaken)
	b.refuse("b.demo", tunnel.CodeForbidden)
	b.svc.start()
	r := run(t, b.svc, "8080", several(t, "a", "b"))
	wantFailure(t, r.end(), agent.ReasonURLTaken, "a.demo is refused")
	if refused := remaining[agent.BindRefused](r); len(refused) != 2 {
		t.Errorf("not every refusal was reported: %+v", refused)
	}
}

// TestBind_RetriesTemporaryRefusal: a temporary refusal does not end the agent.
func TestBind_RetriesTemporaryRefusal(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.refuse("a.demo", tunnel.CodeURLTaken)
	b.refuse("b.demo", tunnel.CodeRateLimited)
	b.svc.start()
	r := run(t, b.svc, "8080", several(t, "a", "b"))
	for range 6 {
		receive(t, b.svc.binds, "bind")
	}
	b.refuse("b.demo", "")
	for {
		e := <-r.events
		if refused, ok := e.(agent.BindRefused); ok && refused.Key == "b" {
			t.Errorf("reported though it is temporary: %+v", refused)
		}
		if online, ok := e.(agent.Online); ok {
			if online.Key != "b" {
				t.Errorf("%+v", online)
			}
			break
		}
	}
}

// TestBind_RevokedRuleLeavesOthers: the service ends a session when the rules of its authtoken no
// longer admit one of its endpoints; the agent binds the others again.
func TestBind_RevokedRuleLeavesOthers(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.svc.start()
	r := run(t, b.svc, "8080", several(t, "a", "b"))
	s := receive(t, b.svc.bound, "bind")
	receive(t, b.svc.bound, "bind")
	next[agent.Online](r)
	next[agent.Online](r)
	b.refuse("b.demo", tunnel.CodeForbidden)
	s.Stop(tunnel.CodeForbidden, "no rule for b")
	s = receive(t, b.svc.bound, "bind of a on a new session")
	if e := next[agent.BindRefused](r); e.Key != "b" {
		t.Errorf("%+v", e)
	}
	if got := upstreamOf(t, s, headerFor("a")); got != "a" {
		t.Errorf("a got %q", got)
	}
	b.refuse("a.demo", tunnel.CodeForbidden)
	s.Stop(tunnel.CodeForbidden, "no rule for a")
	wantFailure(t, r.end(), agent.ReasonCredentials, "the authtoken may not serve tcp://a.demo:1")
}

func TestServe_LabelledTunnelOfAnyEndpoint(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.svc.start()
	var dials atomic.Int64
	r := run(t, b.svc, "8080", func(o *agent.Options) {
		e := tcpEndpoint(t, "group")
		o.Endpoints = []agent.Endpoint{{Labels: map[string]string{"site": "a", "app": "api"}, Metadata: "m",
			Upstream: e.Upstream}}
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	s := receive(t, b.svc.bound, "bind")
	want := tunnel.Bind{Labels: map[string]string{"site": "a", "app": "api"}, Metadata: "m"}
	got := receive(t, b.svc.binds, "bind")
	want.UpstreamURL, want.BindID = got.UpstreamURL, got.BindID
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if e := next[agent.Online](r); e.URL != "" || e.Labels != "app=api site=a" || e.EndpointID != "ep-label" {
		t.Errorf("%+v", e)
	}
	for i, h := range []tunnel.OpenHeader{{EndpointID: "ep-label"},
		{EndpointID: "ep-label", Host: "any.demo", Port: 7, Scheme: "http"}} {
		if got := upstreamOf(t, s, h); got != "group" {
			t.Errorf("got %q", got)
		}
		if c := next[agent.Connection](r); c.HTTP != (i == 1) || c.Labels == "" || c.Ended {
			t.Errorf("%+v", c)
		}
		next[agent.Connection](r)
	}
	wantRefused(t, s, header(), tunnel.RefusedUnknownEndpoint)
	if n := dials.Load(); n != 2 {
		t.Errorf("the upstream was dialled %d times, want once for each of 2 callers", n)
	}
	b.svc.cut()
	if again := receive(t, b.svc.binds, "second bind"); again.ResumeSecret != "label of ts-1" {
		t.Errorf("the second bind presents %q", again.ResumeSecret)
	}
}

func TestRun_MeasuresLatency(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	r := run(t, svc, "8080", func(o *agent.Options) { o.PingInterval = time.Millisecond })
	for range 3 {
		if e := next[agent.Latency](r); e.RoundTrip <= 0 || e.Carrier.Name != tunnel.ALPN {
			t.Errorf("%+v", e)
		}
	}
	r.stop()
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestParseUpstream_OfTunnels(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"8080": "tcp://localhost:8080 http1", "db:5432": "tcp://db:5432 http1", "tcp://db:1": "tcp://db:1 http1",
		"http://x": "http://x:80 http1", "https://x": "https://x:443 http1",
	} {
		u, err := agent.ParseUpstream("", raw)
		if got := fmt.Sprint(u, " ", u.Protocol); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", raw, got, err, want)
		}
	}
	if _, err := agent.ParseUpstream("", "ftp://x:1"); err == nil ||
		!strings.Contains(err.Error(), "http, https or tcp") {
		t.Errorf("error %v", err)
	}
}
