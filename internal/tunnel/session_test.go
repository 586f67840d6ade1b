// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
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

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// awaitConnections waits until each of the sessions has n connections.
func awaitConnections(t *testing.T, n int, sessions ...*Session) {
	t.Helper()
	for _, s := range sessions {
		wait.Until(t, fmt.Sprintf("%d connections", n), func() bool { return openLinks(s) == n })
	}
}

// openLinks returns the number of connections that take new streams.
func openLinks(s *Session) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links.active)
}

func TestSession_HelloAndWelcome(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, transport string) {
		h := newTestServer(t, transport, newHandler())
		hello := Hello{Role: RoleForwarder, Token: "flt_secret", ClientVersion: "v1", OS: "linux", InstanceID: "i",
			OperatorID: "op_1", Metadata: "m"}
		s := h.startClient(ClientConfig{Hello: func() Hello { return hello }}).awaitSession(t)
		far := wait.Receive(t, "the session", h.handler.ups)
		if got := h.handler.tokens(); len(got) != 1 || got[0] != "flt_secret" {
			t.Errorf("the handler saw tokens %q", got)
		}
		want := hello
		want.Token, want.Features = "", []Feature{FeatureReplicas, FeatureReplicaAddresses, FeatureSpares}
		if d := cmp.Diff(want, far.Hello()); d != "" {
			t.Error(d)
		}
		if s.ID() != "ts_1" || far.ID() != "ts_1" || s.Welcome().AccountID != "acc_1" || far.Role() != RoleForwarder ||
			s.Role() != RoleForwarder {
			t.Error("the two sides do not agree on the session")
		}
		if s.Welcome().JoinSecret == "" || far.Welcome().JoinSecret != "" {
			t.Error("the client must have the join secret, the server only its hash")
		}
		if far.RemoteAddr() == nil || s.RemoteAddr() == nil || far.Err() != nil || len(h.server.Sessions()) != 1 {
			t.Error("the session does not know its peer, or is not listed")
		}
	})
}

func TestSession_StreamsUseBothConnections(t *testing.T) {
	t.Parallel()
	handler := newHandler()
	hold := make(chan struct{})
	handler.stream = func(_ context.Context, _ *Session, st *Stream) {
		_ = st.Accept()
		<-hold
	}
	h := newTestServer(t, overTCP, handler)
	s := h.startClient(ClientConfig{}).awaitSession(t)
	awaitConnections(t, 2, s)
	s.mu.Lock()
	both := slices.Clone(s.links.active)
	s.mu.Unlock()
	links := map[*link]int{}
	for range 10 {
		wait.Until(t, "connections with nothing to send", func() bool {
			return both[0].mux.Queued()+both[1].mux.Queued() == 0
		})
		links[open(t, s).link]++
	}
	close(hold)
	if len(links) != 2 {
		t.Errorf("streams per connection: %v", links)
	}
}

func TestSession_ServerSetsNumberOfConnections(t *testing.T) {
	t.Parallel()
	handler := newHandler()
	handler.hello = func(context.Context, Hello) (Welcome, error) { return Welcome{Connections: 5}, nil }
	awaitConnections(t, 5, newTestServer(t, overPipe, handler).startClient(ClientConfig{}).awaitSession(t))
}

func TestSession_OutlivesAConnection(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, transport string) {
		h := newTestServer(t, transport, newHandler())
		r := h.startClient(ClientConfig{})
		s := r.awaitSession(t)
		far := wait.Receive(t, "the session", h.handler.ups)
		awaitConnections(t, 2, s, far)
		h.closeConns(0)
		wait.Until(t, "a connection dialled again", func() bool { return h.acceptedConns() == 3 })
		awaitConnections(t, 2, s, far)
		if h.server.Sessions()[0] != far || r.Session() != s {
			t.Error("the session was replaced")
		}
		st := open(t, s)
		_ = st.CloseWrite()
		if _, err := io.ReadAll(st); err != nil {
			t.Error(err)
		}
		if n := len(h.handler.tokens()); n != 1 {
			t.Errorf("%d hellos were authenticated", n)
		}
	})
}

func TestSession_EndsOnceWithLastConnection(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, transport string) {
		h := newTestServer(t, transport, newHandler())
		var gone atomic.Bool // no connection joins the session between the ends of its two
		r := h.startClient(ClientConfig{DialContext: func(ctx context.Context, network, at string) (net.Conn, error) {
			if gone.Load() {
				return nil, errors.New("the host is gone")
			}
			return h.dial(ctx, network, at)
		}})
		s := r.awaitSession(t)
		far := wait.Receive(t, "the session", h.handler.ups)
		awaitConnections(t, 2, s, far)
		st := open(t, s)
		if err := st.WaitOpened(timeoutContext(t)); err != nil {
			t.Fatal(err)
		}
		gone.Store(true)
		h.closeConns(0, 1)
		if err := wait.Receive(t, "Down", h.handler.downs); err == nil {
			t.Error("Down has no reason")
		}
		wait.Receive(t, "the end", far.Done())
		wait.Receive(t, "the end", s.Done())
		if far.Err() == nil || s.Err() == nil {
			t.Error("the sessions ended without a reason")
		}
		if _, err := st.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a stream of a lost connection read %v", err)
		}
		if _, err := s.Open(t.Context(), fullHeader()); err == nil {
			t.Error("opened a stream in a session that has ended")
		}
		if err := wait.Receive(t, "OnDown", r.downs); err == nil {
			t.Error("OnDown has no reason")
		}
		gone.Store(false)
		again := wait.Receive(t, "a new session", h.handler.ups)
		if again.ID() == far.ID() {
			t.Error("the new session has the old id")
		}
		if n := len(h.handler.downs); n != 0 {
			t.Errorf("Down was called %d times more", n)
		}
	})
}

func TestServer_CallsHandlerInOrder(t *testing.T) {
	t.Parallel()
	handler := newHandler()
	binding, release := make(chan struct{}), make(chan struct{})
	var bound atomic.Bool
	begun := sync.OnceFunc(func() { close(binding) }) // the client repeats a bind over its other connection
	handler.bind = func(ctx context.Context, _ *Session, _ Bind) (Bound, error) {
		begun()
		<-ctx.Done() // the connection is lost
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Error("a handler does not learn that its connection is lost")
		}
		select {
		case <-release:
		case <-t.Context().Done():
		}
		bound.Store(true)
		return Bound{}, nil
	}
	h := newTestServer(t, overTCP, handler)
	var dials atomic.Int32
	s := h.startClient(ClientConfig{Hello: agentHello,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) > 2 { // else a third connection may join before the second is lost
				return nil, errors.New("no third connection")
			}
			return h.dial(ctx, network, address)
		}}).awaitSession(t)
	far := wait.Receive(t, "Up before Bind", handler.ups)
	awaitConnections(t, 2, s, far)
	go func() { _, _ = s.Bind(context.Background(), Bind{URL: "http://a.b"}) }()
	wait.Receive(t, "Bind", binding)
	h.closeConns(0, 1)
	wait.Receive(t, "the client's end", s.Done())
	wait.Until(t, "no connection to open streams on", func() bool {
		_, err := far.Open(t.Context(), fullHeader())
		return err != nil && openLinks(far) == 0
	})
	select {
	case <-handler.downs:
		t.Fatal("Down came while a Bind was running")
	default:
	}
	close(release)
	wait.Receive(t, "Down", handler.downs)
	if !bound.Load() {
		t.Fatal("Down came before Bind had returned")
	}
}

func TestSession_BindAndUnbind(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, transport string) {
		handler := newHandler()
		secret := errors.New("the database's password is 1234")
		taken := Error{Code: CodeURLTaken, Msg: "ts_9 holds it", Detail: "ERR_FL_1060",
			Errors: []FieldError{{Field: "url", Value: "http://a.b", Rule: "is taken"},
				{Field: "traffic_policy", Rule: "x", Line: 3, Column: 5}}}
		handler.bind = func(_ context.Context, s *Session, b Bind) (Bound, error) {
			switch b.Name {
			case "taken":
				return Bound{}, fmt.Errorf("wrapped: %w", &taken)
			case "broken":
				return Bound{}, secret
			}
			return Bound{EndpointID: "ep_1", URL: b.URL, ResumeSecret: s.ID()}, nil
		}
		h := newTestServer(t, transport, handler)
		s := h.startClient(ClientConfig{Hello: agentHello}).awaitSession(t)
		got, err := s.Bind(t.Context(), Bind{URL: "http://a.b", Metadata: strings.Repeat("m", 20_000)})
		if d := cmp.Diff(Bound{EndpointID: "ep_1", URL: "http://a.b", ResumeSecret: s.ID()}, got); err != nil ||
			d != "" {
			t.Errorf("%v %s", err, d)
		}
		var e *Error
		_, err = s.Bind(t.Context(), Bind{URL: "http://a.b", Name: "taken"})
		if !errors.As(err, &e) || cmp.Diff(taken, *e) != "" {
			t.Errorf("bind of a taken URL: %v", err)
		}
		_, err = s.Bind(t.Context(), Bind{URL: "http://a.b", Name: "broken"})
		if !errors.As(err, &e) || e.Code != CodeInternal || strings.Contains(err.Error(), "1234") {
			t.Errorf("bind with a broken store: %v", err)
		}
		_, err = s.Bind(t.Context(), Bind{URL: "http://a.b", Metadata: strings.Repeat("m", 600_000)})
		if !errors.As(err, &e) || e.Code != CodeInvalid {
			t.Errorf("bind with too much metadata: %v", err)
		}
		if err := s.Unbind(t.Context(), "ep_1"); err != nil {
			t.Errorf("the session did not survive the refusals: %v", err)
		}
		if d := cmp.Diff([]string{"ep_1"}, handler.unbound); d != "" {
			t.Error(d)
		}
	})
}

func TestServer_RefusesRequestsOfOtherRole(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overPipe, newHandler())
	forwarder := h.startClient(ClientConfig{}).awaitSession(t)
	fromServer := wait.Receive(t, "the forwarder", h.handler.ups)
	agent := h.startClient(ClientConfig{Hello: agentHello}).awaitSession(t)
	var e *Error
	if _, err := forwarder.Bind(t.Context(), Bind{URL: "http://a.b"}); !errors.As(err, &e) || e.Code != CodeForbidden {
		t.Errorf("a forwarder bound an endpoint: %v", err)
	}
	var refused *RefusedError
	if err := open(t, agent).WaitOpened(timeoutContext(t)); !errors.As(err, &refused) ||
		refused.Code != RefusedForbidden {
		t.Errorf("an agent's stream: %v", err)
	}
	if err := open(t, fromServer).WaitOpened(timeoutContext(t)); !errors.As(err, &refused) ||
		refused.Code != RefusedUnknownEndpoint {
		t.Errorf("a stream to a forwarder: %v", err)
	}
}

func TestRequestLines(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	lines := make(chan RequestLine, 1)
	blocked := make(chan struct{})
	r := h.startClient(ClientConfig{Hello: agentHello, OnRequestLine: func(l RequestLine) {
		select {
		case lines <- l:
		default:
		}
		<-blocked
	}})
	r.awaitSession(t)
	far := wait.Receive(t, "the session", h.handler.ups)
	want := RequestLine{EndpointID: "ep_1", Method: "GET", Path: "/", Status: 200, Duration: time.Millisecond,
		At: time.Unix(1, 0).UTC()}
	far.SendRequestLine(want)
	if d := cmp.Diff(want, wait.Receive(t, "the line", lines)); d != "" {
		t.Error(d)
	}
	long := RequestLine{Path: strings.Repeat("x", 100_000)}
	for range 2000 { // a screen that hangs: lines are dropped, nothing blocks
		far.SendRequestLine(long)
	}
	close(blocked)
	if _, err := r.Session().Bind(t.Context(), Bind{URL: "http://a.b"}); err != nil {
		t.Errorf("the session did not survive the lines: %v", err)
	}
}
