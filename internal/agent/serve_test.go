// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// get sends one request over a new stream.
func get(t *testing.T, s *tunnel.Session, path string) (string, error) {
	t.Helper()
	st := open(t, s, header())
	defer func() { _ = st.Close() }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hello.demo"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
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

func TestARequestReachesTheUpstreamAsItWasSent(t *testing.T) {
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
	if online.Again || online.EndpointID != endpointID || online.SessionID != "ts-1" || online.URL != "http://hello.demo" || online.Upstream != upstream.URL || online.ServerVersion != "1.2.3" {
		t.Errorf("online: %+v", online)
	}
}

func TestTheBindSaysWhatTheFlagsSaid(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	hellos := make(chan tunnel.Hello, 1)
	svc.hello = func(h tunnel.Hello) error { hellos <- h; return nil }
	svc.start()
	run(t, svc, "8080", func(o *agent.Options) { o.Upstream.Protocol = agent.ProtocolHTTP2 })
	h := receive(t, hellos, "hello")
	if h.Role != tunnel.RoleAgent || h.Token != "flt_test" || h.InstanceID != "in-test" || h.OS != runtime.GOOS+"/"+runtime.GOARCH || h.ClientVersion == "" {
		t.Errorf("hello: %+v", h)
	}
	want := tunnel.Bind{URL: "http://hello.demo", Binding: "kubernetes", Name: "n", Description: "d", Metadata: "m",
		UpstreamURL: "http://localhost:8080", UpstreamProtocol: "http2"}
	if b := receive(t, svc.binds, "bind"); b != want {
		t.Errorf("bind: %+v", b)
	}
}

func TestRequestLinesReachTheScreen(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	r := run(t, svc, "8080", nil)
	s := receive(t, svc.bound, "bind")
	next[agent.Online](r)
	s.SendRequestLine(tunnel.RequestLine{EndpointID: endpointID, Method: "GET", Path: "/x", Status: 200, Duration: time.Millisecond})
	if got := next[agent.Request](r); got != (agent.Request{Method: "GET", Path: "/x", Status: 200, Duration: time.Millisecond}) {
		t.Errorf("got %+v", got)
	}
}

// tcpUpstream accepts one connection after the other and hands them to serve.
func tcpUpstream(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	o.Endpoint.URL = account.EndpointURL{Scheme: "tcp", Host: "hello.demo", Port: 80}
	o.Upstream.Scheme, o.Upstream.Protocol = "tcp", ""
}

func TestHalfCloseWorksInBothDirections(t *testing.T) {
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
		if err := errors.Join(err, st.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(st); err != nil || string(got) != want {
			t.Errorf("got %q, %v", got, err)
		}
		if c := next[agent.Connection](r); c.Ended || c.Pod != "demo/client" || c.Client != "10.0.0.5:4242" {
			t.Errorf("opened: %+v", c)
		}
		if c := next[agent.Connection](r); !c.Ended || c.In != 8 || c.Out != int64(len(want)) || c.Cause != "" {
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
		if err := errors.Join(err, st.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, rest, "rest"); got != "rest" {
			t.Errorf("the upstream read %q", got)
		}
	})
}

func TestAnAbortOfTheUpstreamIsNotAnEnd(t *testing.T) {
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

func TestOnlyTheBoundEndpointIsServed(t *testing.T) {
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

func TestAStreamThatOvertakesTheBindsAnswerIsServed(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
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

func TestAnUpstreamThatIsDownRefusesStreamsUntilItIsBack(t *testing.T) {
	t.Parallel()
	ln := mustListen(t)
	addr := ln.Addr().String()
	_ = ln.Close()
	svc := newService(t).start()
	r := run(t, svc, addr, nil)
	s := receive(t, svc.bound, "bind")
	if down := next[agent.UpstreamDown](r); down.Upstream != "http://"+addr || down.Cause != "connection refused" || !down.HTTP {
		t.Errorf("warning at start: %+v", down)
	}
	for range 3 {
		wantRefused(t, s, header(), tunnel.RefusedUpstream)
	}
	if again := remaining[agent.UpstreamDown](r); len(again) > 0 {
		t.Errorf("the same outage was reported again: %+v", again)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	back := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "back") }), ReadHeaderTimeout: patience}
	go func() { _ = back.Serve(ln) }()
	defer func() { _ = back.Close() }()
	if got, err := get(t, s, "/"); err != nil || got != "back" {
		t.Errorf("got %q, %v", got, err)
	}
	if up := next[agent.UpstreamUp](r); up.Upstream != "http://"+addr {
		t.Errorf("got %+v", up)
	}
}

func TestATCPUpstreamIsNeverTouchedWithoutACaller(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	dialled := make(chan string, 10)
	r := run(t, svc, "5432", func(o *agent.Options) {
		asTCP(o)
		o.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
			dialled <- addr
			return nil, errors.New("down")
		}
	})
	next[agent.Online](r)
	r.stop()
	if err := r.end(); err != nil || len(dialled) != 0 {
		t.Errorf("%v; dialled %d times", err, len(dialled))
	}
}

func TestTheDialDoesNotOutliveTheOpenersPatience(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	limits := make(chan time.Duration, 2)
	run(t, svc, "5432", func(o *agent.Options) {
		asTCP(o)
		o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			deadline, _ := ctx.Deadline()
			limits <- time.Until(deadline)
			return nil, context.DeadlineExceeded
		}
	})
	s := receive(t, svc.bound, "bind")
	h := header()
	wantRefused(t, s, h, tunnel.RefusedUpstream)
	if got := <-limits; got > 10*time.Second || got < 5*time.Second {
		t.Errorf("without a deadline the dial may take %v, want 10s", got)
	}
	h.Deadline = 5 * time.Second
	wantRefused(t, s, h, tunnel.RefusedUpstream)
	if got := <-limits; got >= 5*time.Second {
		t.Errorf("with a deadline of 5s the dial may take %v", got)
	}
}

func TestAThousandRefusedStreamsLeaveTheDescriptorCountFlat(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts descriptors in /proc")
	}
	ln := mustListen(t)
	addr := ln.Addr().String()
	_ = ln.Close()
	svc := newService(t).start()
	run(t, svc, addr, asTCP)
	s := receive(t, svc.bound, "bind")
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	wantRefused(t, s, header(), tunnel.RefusedUpstream)
	before := count()
	for range 1000 {
		wantRefused(t, s, header(), tunnel.RefusedUpstream)
	}
	if after := count(); after > before+5 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestHTTPSUpstreamsAreVerified(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	upstream.EnableHTTP2 = true
	upstream.Config.ErrorLog = log.New(io.Discard, "", 0)
	upstream.StartTLS()
	defer upstream.Close()
	plain := tls.NewListener(mustListen(t), &tls.Config{Certificates: upstream.TLS.Certificates}) // offers no ALPN
	go func() {
		for {
			c, err := plain.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	defer func() { _ = plain.Close() }()
	roots := x509.NewCertPool()
	roots.AddCert(upstream.Certificate())

	for name, c := range map[string]struct {
		target   string
		roots    *x509.CertPool
		protocol string
		preface  string // what the test sends
		want     string // what an answer holds; "" = refused
		cause    string
	}{
		"http1":             {upstream.URL, roots, agent.ProtocolHTTP1, "GET / HTTP/1.1\r\nHost: hello.demo\r\nConnection: close\r\n\r\n", "hello.demo", ""},
		"http2":             {upstream.URL, roots, agent.ProtocolHTTP2, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x04\x01", ""},
		"unknown authority": {upstream.URL, x509.NewCertPool(), agent.ProtocolHTTP1, "", "", "certificate"},
		"http2 not offered": {"https://" + plain.Addr().String(), roots, agent.ProtocolHTTP2, "", "", "does not speak HTTP/2"},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newService(t).start()
			r := run(t, svc, c.target, func(o *agent.Options) {
				o.Upstream.Protocol = c.protocol
				o.UpstreamTLS = &tls.Config{RootCAs: c.roots}
			})
			s := receive(t, svc.bound, "bind")
			if c.want == "" {
				wantRefused(t, s, header(), tunnel.RefusedUpstream)
				if down := next[agent.UpstreamDown](r); !strings.Contains(down.Cause, c.cause) {
					t.Errorf("got %+v", down)
				}
				return
			}
			st := open(t, s, header())
			defer func() { _ = st.Close() }()
			if _, err := io.WriteString(st, c.preface); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			buf := make([]byte, 4096)
			for !strings.Contains(got.String(), c.want) {
				n, err := st.Read(buf)
				got.Write(buf[:n])
				if err != nil {
					t.Fatalf("read %q, %v", got.String(), err)
				}
			}
		})
	}
}

func mustListen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}
