// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// respond answers every request on the stream with its path, as an edge with an agent would.
func respond(_ context.Context, st *tunnel.Stream) {
	defer st.Close()
	if st.Accept() != nil {
		return
	}
	r := bufio.NewReader(st)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = fmt.Fprintf(st, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.URL.Path), req.URL.Path)
	}
}

func get(t *testing.T, c net.Conn, path string, header ...string) (*http.Response, string) {
	t.Helper()
	lines := strings.Join(append([]string{"GET " + path + " HTTP/1.1", "Host: api.demo"}, header...), "\r\n")
	if _, err := io.WriteString(c, lines+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return response(t, c)
}

func response(t *testing.T, c net.Conn) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("reading response: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("reading body: %v", err)
	}
	return res, string(body)
}

func wantErrorPage(t *testing.T, c net.Conn, status int, code string) {
	t.Helper()
	res, body := get(t, c, "/")
	if res.StatusCode != status || !strings.Contains(body, code) || !res.Close {
		t.Errorf("got %s, close %v, %s; want %d and %s", res.Status, res.Close, body, status, code)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the page: %v, want EOF", err)
	}
}

// wantRefused checks that a connection to the port is reset, possibly before connect has returned.
func wantRefused(r *runningForwarder, port int) {
	r.t.Helper()
	c, err := net.DialTimeout("tcp", r.addr(port), testTimeout)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	wantReset(r.t, c)
}

func wantReset(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes, %v; want a reset", n, err)
	}
}

func TestRelay_HTTPNamesEndpoint(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := connected(t, e, shortTiming())
	c := r.dial(10080)
	for _, path := range []string{"/one", "/two"} {
		if res, body := get(t, c, path); res.StatusCode != 200 || body != path {
			t.Errorf("got %s %q", res.Status, body)
		}
	}
	h := wait.Receive(t, "a stream", e.streams)
	if h.EndpointID != "ep-http" || h.Host != "api.demo" || h.Port != 80 || h.ClientAddr != c.LocalAddr().String() ||
		h.Deadline <= 0 {
		t.Errorf("header %+v", h)
	}
	hello := wait.Receive(t, "a hello", e.hellos)
	if hello.Role != tunnel.RoleForwarder || hello.OperatorID != "ko-1" || hello.Token != "flt_first" ||
		hello.InstanceID != "pod-1" {
		t.Errorf("hello %+v", hello)
	}
	_ = c.Close()
	stats := r.metrics.statsOf("api.demo")
	wait.Until(t, "the connection's end", func() bool { return testutil.ToFloat64(stats.active) == 0 })
	if in, out := testutil.ToFloat64(stats.fromClient), testutil.ToFloat64(stats.toClient); in < 60 || out < 60 ||
		testutil.ToFloat64(stats.connections) != 1 {
		t.Errorf("counted %v bytes in, %v out, %v connections", in, out, testutil.ToFloat64(stats.connections))
	}
}

func TestRelay_OpensStreamBeforeClientSends(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) { // server speaks first, e.g. SMTP
		_ = st.Accept()
		_, _ = io.WriteString(st, "220 hello\r\n")
		_ = st.CloseWrite()
		_, _ = io.Copy(io.Discard, st)
		_ = st.Close()
	})
	c := connected(t, e, shortTiming()).dial(15432)
	if b, err := io.ReadAll(c); string(b) != "220 hello\r\n" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestRelay_HalfCloseKeepsReply(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) { // answers only after the client's last byte
		defer st.Close()
		_ = st.Accept()
		all, err := io.ReadAll(st)
		if err == nil {
			_, _ = st.Write(all)
			_ = st.CloseWrite()
		}
	})
	r := connected(t, e, shortTiming())
	for _, size := range []int{0, 1, 3000, forward.BufferSize, forward.BufferLimit - 1, forward.BufferLimit,
		forward.BufferLimit + 1, 1 << 20} {
		c := r.dial(15432)
		sent := make([]byte, size)
		_, _ = rand.Read(sent)
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes: got %d back, %v", size, len(got), err)
		}
	}
}

func TestRelay_ForwardsAborts(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		_ = st.Accept()
		b := make([]byte, 1)
		if _, err := io.ReadFull(st, b); err == nil && b[0] == 'a' { // the test wants the edge to abort
			_ = st.Abort()
			return
		}
		_, err := io.ReadAll(st)
		read <- err
		_ = st.Close()
	})
	r := connected(t, e, shortTiming())
	byEdge := r.dial(15432)
	_, _ = byEdge.Write([]byte("a"))
	wantReset(t, byEdge)

	byClient := r.dial(15432)
	_, _ = byClient.Write([]byte("c"))
	wait.Receive(t, "the first stream", e.streams)
	wait.Receive(t, "the second stream", e.streams)
	_ = byClient.SetLinger(0)
	_ = byClient.Close()
	if err := wait.Receive(t, "the edge's read to end", read); err == nil {
		t.Error("the edge saw a clean end of a connection that its client aborted")
	}
}

func TestOpenStream_WaitsForSession(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	timing := shortTiming()
	timing.SessionWait = testTimeout
	r := start(t, e, timing)
	unregistered := testObjects()
	unregistered.OperatorID = ""
	r.source.update(unregistered)
	c := r.dial(10080)
	if _, err := io.WriteString(c, "GET /held HTTP/1.1\r\nHost: api.demo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the connection to be accepted", func() bool {
		return testutil.ToFloat64(r.metrics.statsOf("api.demo").active) == 1
	})
	r.source.update(testObjects())
	if res, body := response(t, c); res.StatusCode != 200 || body != "/held" {
		t.Errorf("got %s %q", res.Status, body)
	}
}

func TestOpenStream_FailsWithoutSession(t *testing.T) {
	t.Parallel()
	timing := shortTiming()
	timing.SessionWait = 30 * time.Millisecond
	r := start(t, startEdge(t, respond), timing)
	unregistered := testObjects()
	unregistered.OperatorID = ""
	r.source.update(unregistered)
	wantErrorPage(t, r.dial(10080), 503, "ERR_FL_3004")
	wantRefused(r, 15432)
	silent := r.dial(10080)
	_ = silent.CloseWrite()
	if b, err := io.ReadAll(silent); len(b) != 0 || err != nil {
		t.Errorf("a client that asked nothing got %q, %v", b, err)
	}
}

func TestClassifyOpenError_Refusals(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := connected(t, e, shortTiming())
	for _, tt := range []struct {
		refuse tunnel.RefuseCode
		status int
		code   string
	}{
		{tunnel.RefusedOffline, 503, "ERR_FL_3001"},
		{tunnel.RefusedUpstream, 502, "ERR_FL_3002"},
		{tunnel.RefusedUnknownEndpoint, 404, "ERR_FL_3003"},
		{tunnel.RefusedMismatch, 404, "ERR_FL_3003"},
		{tunnel.RefusedForbidden, 403, "ERR_FL_1020"},
		{tunnel.RefusedInternal, 500, "ERR_FL_1099"},
	} {
		e.setHandle(refuseWith(tt.refuse))
		wantErrorPage(t, r.dial(10080), tt.status, tt.code)
		wantRefused(r, 15432)
	}
	if n := testutil.ToFloat64(r.metrics.errors.WithLabelValues("api.demo", "offline")); n != 1 {
		t.Errorf("counted %v offline, want 1", n)
	}
}

func TestRelay_RemovedEndpointIsOffline(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := connected(t, e, shortTiming())
	gone := testObjects()
	// its agent disconnected; removalDelay runs
	gone.BoundEndpoints[0].Spec.Endpoints, gone.BoundEndpoints[1].Spec.Endpoints = nil, nil
	r.source.update(gone)
	wantErrorPage(t, r.dial(10080), 503, "ERR_FL_3001")
	wantRefused(r, 15432)
	r.source.update(testObjects())
	if res, _ := get(t, r.dial(10080), "/back"); res.StatusCode != 200 {
		t.Errorf("after its return: %s", res.Status)
	}
}

// A client that sends all its input before it reads would lose the error response to a reset if its
// input were not read to the end.
func TestErrorResponse_SurvivesUnreadInput(t *testing.T) {
	t.Parallel()
	r := connected(t, startEdge(t, refuseWith(tunnel.RefusedOffline)), shortTiming())
	c := r.dial(10080)
	const size = 8 << 20
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: api.demo\r\nContent-Length: %d\r\n\r\n", size); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatalf("sending the body: %v", err)
	}
	if res, body := response(t, c); res.StatusCode != 503 || !strings.Contains(body, "ERR_FL_3001") {
		t.Errorf("got %s %s", res.Status, body)
	}
}

func TestOpenStream_EdgeTimeout(t *testing.T) {
	t.Parallel()
	timing := shortTiming()
	timing.OpenTimeout = 50 * time.Millisecond
	r := connected(t, startEdge(t, neverAnswer), timing)
	wantErrorPage(t, r.dial(10080), 503, "ERR_FL_3004")
	wantRefused(r, 15432)
}

// TestOpenStream_TimeoutIncludesSessionWait checks that the wait for a session and the wait for an
// answer share one limit.
func TestOpenStream_TimeoutIncludesSessionWait(t *testing.T) {
	t.Parallel()
	timing := shortTiming()
	if whole := timing.OpenTimeout + timing.HeadTimeout; timing.SessionWait >= timing.OpenTimeout ||
		whole > 5*time.Second {
		t.Errorf("a client may hold on to its head for %v and waits %v in all, promised 5s", timing.HeadTimeout, whole)
	}
	timing.SessionWait, timing.OpenTimeout = time.Hour, 50*time.Millisecond
	e := startEdge(t, refuseWith(tunnel.RefusedDraining))
	wantErrorPage(t, connected(t, e, timing).dial(10080), 503, "ERR_FL_3004")
}

func TestRelay_RetriesDrainingEdgeWithAllBytes(t *testing.T) {
	t.Parallel()
	const size = 20_000
	got := make(chan []byte, 1)
	var refusals atomic.Int32
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		if refusals.Add(1) <= 2 {
			_ = st.Refuse(tunnel.RefusedDraining)
			return
		}
		defer st.Close()
		_ = st.Accept()
		b, _ := io.ReadAll(st)
		got <- b
	})
	c := connected(t, e, shortTiming()).dial(15432)
	sent := make([]byte, size)
	_, _ = rand.Read(sent)
	_, _ = c.Write(sent)
	_ = c.CloseWrite()
	if b := wait.Receive(t, "the bytes", got); !bytes.Equal(b, sent) {
		t.Errorf("got %d bytes that differ from the %d sent", len(b), size)
	}
}

// A session that breaks before OPENED may have delivered the bytes: sending them again could repeat
// an action.
func TestRelay_DoesNotRetryBrokenSession(t *testing.T) {
	t.Parallel()
	var streams atomic.Int32
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		streams.Add(1)
		_, _ = io.ReadFull(st, make([]byte, 1))
		_ = st.Session().Close()
	})
	r := connected(t, e, shortTiming())
	wantErrorPage(t, r.dial(10080), 503, "ERR_FL_3004")
	if n := streams.Load(); n != 1 {
		t.Errorf("%d streams, want 1", n)
	}
}

func TestDescriptors_RefusedConnectsLeaveNone(t *testing.T) {
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		t.Skip("needs /proc/self/fd to count descriptors")
	}
	// Not parallel: the count is the process's.
	r := connected(t, startEdge(t, refuseWith(tunnel.RefusedOffline)), shortTiming())
	settled := func() int {
		wait.Until(t, "all connections to end", func() bool {
			return testutil.ToFloat64(r.metrics.statsOf("api.demo").active)+testutil.ToFloat64(
				r.metrics.statsOf("db.demo").active) == 0
		})
		open, _ := os.ReadDir("/proc/self/fd")
		return len(open)
	}
	before := settled()
	for range 500 {
		c := r.dial(10080)
		_, _ = get(t, c, "/")
		_ = c.Close()
		wantRefused(r, 15432)
	}
	if after := settled(); after > before+5 {
		t.Errorf("%d descriptors before, %d after 1,000 refused connections", before, after)
	}
}
