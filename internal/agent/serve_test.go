// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// get sends one request over a new stream.
func get(t *testing.T, s *tunnel.Session, path string) (string, error) {
	t.Helper()
	st := open(t, s, header())
	defer func() { _ = st.Close() }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hello.demo"+path, nil)
	must.Succeed(t, err)
	req.Close = true
	if err := req.Write(st); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(st), req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func TestServe_ForwardsRequestUnchanged(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.URL)
	}))
	defer upstream.Close()
	svc := newService(t).start()
	r := run(t, svc, upstream.URL, nil)
	s := receive(t, svc.bound, "bind")
	if got, err := get(t, s, "/a?b=c"); err != nil || got != "GET hello.demo /a?b=c" {
		t.Errorf("got %q, %v", got, err)
	}
	online := next[agent.Online](r)
	if online.Reconnected || online.EndpointID != endpointID || online.SessionID != "ts-1" ||
		online.URL != "http://hello.demo" || online.Upstream != upstream.URL || online.ServerVersion != "1.2.3" {
		t.Errorf("online: %+v", online)
	}
}

func TestBind_SendsEveryOption(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	hellos := make(chan tunnel.Hello, 1)
	svc.hello = func(h tunnel.Hello) error { hellos <- h; return nil }
	svc.start()
	run(t, svc, "8080", func(o *agent.Options) { o.Endpoints[0].Upstream.Protocol = agent.ProtocolHTTP2 })
	h := receive(t, hellos, "hello")
	if h.Role != tunnel.RoleAgent || h.Token != "flt_test" || h.InstanceID != "in-test" || h.OS != runtime.GOOS+"/"+
		runtime.GOARCH || h.ClientVersion == "" {
		t.Errorf("hello: %+v", h)
	}
	want := tunnel.Bind{URL: "http://hello.demo", Binding: "kubernetes", Name: "n", Description: "d", Metadata: "m",
		UpstreamURL: "http://localhost:8080", UpstreamProtocol: "http2", PoolingEnabled: true}
	got := receive(t, svc.binds, "bind")
	if got.BindID == "" {
		t.Error("the bind has no BindID")
	}
	want.BindID = got.BindID
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bind: %s", diff)
	}
}

// hello is the usual endpoint, as events name it.
func hello(upstream string) agent.EndpointInfo {
	return agent.EndpointInfo{Key: "0", URL: "http://hello.demo", Name: "n", Upstream: upstream}
}

func TestRun_ObservesRequestLines(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	r := run(t, svc, "8080", nil)
	s := receive(t, svc.bound, "bind")
	next[agent.Online](r)
	s.SendRequestLine(tunnel.RequestLine{EndpointID: endpointID, Method: "GET", Path: "/x", Status: 200,
		Duration: time.Millisecond})
	if got := next[agent.Request](r); got != (agent.Request{EndpointInfo: hello("http://localhost:8080"), Method: "GET",
		Path: "/x", Status: 200, Duration: time.Millisecond}) {
		t.Errorf("got %+v", got)
	}
	refused := tunnel.RequestLine{EndpointID: endpointID, Path: "/", Status: 403, Code: tunnel.LineHostRefused}
	s.SendRequestLine(refused)
	if got := next[agent.HostRefused](r); got.EndpointInfo != hello("http://localhost:8080") {
		t.Errorf("got %+v", got)
	}
	s.SendRequestLine(refused)
	s.SendRequestLine(tunnel.RequestLine{EndpointID: endpointID, Path: "/last"})
	for last := false; !last; {
		switch e := receive(t, r.events, "event").(type) {
		case agent.HostRefused:
			t.Error("it was reported again")
		case agent.Request:
			last = e.Path == "/last"
		}
	}
}

// tcpUpstream accepts one connection after the other and hands them to serve.
func tcpUpstream(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serve(c.(*net.TCPConn))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

// asTCP makes the agent's endpoint tcp://hello.demo:80.
func asTCP(o *agent.Options) {
	o.Endpoints[0].URL = account.EndpointURL{Scheme: "tcp", Host: "hello.demo", Port: 80}
	o.Endpoints[0].Upstream.Scheme, o.Endpoints[0].Upstream.Protocol = "tcp", ""
}

func TestServe_HalfClosesBothWays(t *testing.T) {
	t.Parallel()
	const want = "everything you sent: question"
	t.Run("the caller ends first and still reads the answer", func(t *testing.T) {
		t.Parallel()
		svc := newService(t).start()
		r := run(t, svc, tcpUpstream(t, func(c *net.TCPConn) {
			all, _ := io.ReadAll(c)
			_, _ = c.Write([]byte("everything you sent: " + string(all)))
		}), asTCP)
		st := open(t, receive(t, svc.bound, "bind"), header())
		defer func() { _ = st.Close() }()
		_, err := st.Write([]byte("question"))
		must.Succeed(t, errors.Join(err, st.CloseWrite()))
		if got, err := io.ReadAll(st); err != nil || string(got) != want {
			t.Errorf("got %q, %v", got, err)
		}
		if c := next[agent.Connection](r); c.Ended || c.Pod != "demo/client" || c.Client != "10.0.0.5:4242" {
			t.Errorf("opened: %+v", c)
		}
		if c := next[agent.Connection](r); !c.Ended || c.BytesIn != 8 || c.BytesOut != int64(len(want)) ||
			c.Cause != "" {
			t.Errorf("closed: %+v", c)
		}
	})
	t.Run("the upstream ends first and still reads the rest", func(t *testing.T) {
		t.Parallel()
		svc := newService(t).start()
		rest := make(chan string, 1)
		run(t, svc, tcpUpstream(t, func(c *net.TCPConn) {
			_, _ = c.Write([]byte("bye"))
			_ = c.CloseWrite()
			all, _ := io.ReadAll(c)
			rest <- string(all)
		}), asTCP)
		st := open(t, receive(t, svc.bound, "bind"), header())
		defer func() { _ = st.Close() }()
		if got, err := io.ReadAll(st); err != nil || string(got) != "bye" {
			t.Errorf("got %q, %v", got, err)
		}
		_, err := st.Write([]byte("rest"))
		must.Succeed(t, errors.Join(err, st.CloseWrite()))
		if got := receive(t, rest, "rest"); got != "rest" {
			t.Errorf("the upstream read %q", got)
		}
	})
}

func TestServe_UpstreamAbortIsNotEOF(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	r := run(t, svc, tcpUpstream(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("half"))
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	}), asTCP)
	st := open(t, receive(t, svc.bound, "bind"), header())
	defer func() { _ = st.Close() }()
	if _, err := io.ReadFull(st, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(st); err == nil {
		t.Errorf("a reset read as a clean end after %q", got)
	}
	next[agent.Connection](r)
	if c := next[agent.Connection](r); !c.Ended || c.Cause == "" {
		t.Errorf("closed: %+v", c)
	}
}

func TestServe_RefusesUnboundEndpoints(t *testing.T) {
	t.Parallel()
	dialled := make(chan string, 10)
	svc := newService(t).start()
	run(t, svc, "8080", func(o *agent.Options) {
		asTCP(o) // no early look at the upstream
		o.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
			dialled <- addr
			return nil, errors.New("must not be dialled")
		}
	})
	s := receive(t, svc.bound, "bind")
	for name, c := range map[string]struct {
		change func(*tunnel.OpenHeader)
		want   tunnel.RefuseCode
	}{
		"other id":   {func(h *tunnel.OpenHeader) { h.EndpointID = "ep-other" }, tunnel.RefusedUnknownEndpoint},
		"other host": {func(h *tunnel.OpenHeader) { h.Host = "other.demo" }, tunnel.RefusedMismatch},
		"other port": {func(h *tunnel.OpenHeader) { h.Port = 81 }, tunnel.RefusedMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			h := header()
			c.change(&h)
			wantRefused(t, s, h, c.want)
		})
	}
	if len(dialled) != 0 {
		t.Error("the upstream was dialled for a foreign stream")
	}
}

func TestServe_StreamBeforeBindAnswer(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	defer upstream.Close()
	svc := newService(t)
	sent := make(chan *tunnel.Stream, 1)
	svc.bind = func(ctx context.Context, s *tunnel.Session, _ tunnel.Bind) (tunnel.Bound, error) {
		st, err := s.Open(ctx, header()) // before the agent knows the id
		if err == nil {
			_, err = io.WriteString(st, "GET / HTTP/1.0\r\n\r\n")
		}
		sent <- st
		return svc.grant(), err
	}
	svc.start()
	run(t, svc, upstream.URL, nil)
	st := receive(t, sent, "stream")
	defer func() { _ = st.Close() }()
	_ = st.SetDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(st); err != nil || !strings.HasSuffix(string(got), "hello") {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestServe_StreamBeforeChangedUpstreamIsBound holds that a stream of the edge's that arrives after
// the server has taken another upstream, and before its answer, goes to that upstream.
func TestServe_StreamBeforeChangedUpstreamIsBound(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	grant, arrived := b.svc.bind, make(chan *tunnel.Stream, 1)
	b.svc.bind = func(ctx context.Context, s *tunnel.Session, bind tunnel.Bind) (tunnel.Bound, error) {
		if bind.ResumeSecret != "" {
			st := open(t, s, headerFor("a"))
			_ = st.CloseWrite()
			arrived <- st
			for range 20 { // the agent gets the stream before the first
				if _, err := s.Ping(); err != nil {
					t.Error(err)
				}
			}
		}
		return grant(ctx, s, bind)
	}
	r, all := b.keeps(t, nil, "a")
	online(r, "a")
	all[0].Upstream = tcpEndpoint(t, "changed").Upstream
	r.agent.Set(all)
	st := receive(t, arrived, "stream")
	defer func() { _ = st.Close() }()
	if got, err := io.ReadAll(st); err != nil || string(got) != "changed" {
		t.Errorf("got %q, %v", got, err)
	}
}
