// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// countStreams serves streams and counts them.
func countStreams(n *atomic.Int32, serve func(context.Context, *tunnel.Stream)) func(context.Context, *tunnel.Stream) {
	return func(ctx context.Context, st *tunnel.Stream) {
		n.Add(1)
		serve(ctx, st)
	}
}

func refuseStream(_ context.Context, st *tunnel.Stream) { _ = st.Refuse(tunnel.RefusedUpstream) }

// neverAccept takes what comes and never answers.
func neverAccept(_ context.Context, st *tunnel.Stream) {
	_, _ = st.Next()
	_, _ = io.Copy(io.Discard, st)
}

// startMember joins the pool of the URL.
func startMember(r *servicetest.Server, url, name string, serve func(context.Context, *tunnel.Stream)) tunnel.Bound {
	r.T.Helper()
	b := tunnel.Bind{URL: url, Name: name, PoolingEnabled: true}
	if strings.HasPrefix(url, "http:") {
		b.UpstreamProtocol = "http1"
	}
	return servicetest.Receive(r.T, r.StartAgentWith(r.Authtoken, b, serve).Bound, "bind of "+name)
}

// openTimeoutFor is how long the edge waits for an agent: where one is silent so long that a slow
// machine is not taken for one.
func openTimeoutFor(kind string) time.Duration {
	if kind == "silent" {
		return 2 * time.Second
	}
	return 0
}

// sizes are fewer where each takes time.
func sizes(kind string, large int) []int {
	if kind == "silent" {
		return []int{40 << 10, large}
	}
	return []int{0, 1, 40 << 10, 64 << 10, large}
}

// answerDigest answers with the method, the number of bytes and their sum.
func answerDigest(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		return // the client is told nothing that looks like an answer
	}
	_, _ = fmt.Fprintf(w, "%s %d %x", r.Method, n, sum.Sum(nil))
}

func TestEdge_RetriesRefusedRequestWithBody(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(context.Context, *tunnel.Stream){"refused": refuseStream,
		"silent": neverAccept} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := servicetest.Start(t, func(o *service.Options) { o.AgentOpenTimeout = openTimeoutFor(name) })
			f := r.StartForwarder()
			up := httptest.NewServer(http.HandlerFunc(answerDigest))
			t.Cleanup(up.Close)
			var asked atomic.Int32
			bound := startMember(r, "http://hello.demo", "bad", countStreams(&asked, broken))
			startMember(r, "http://hello.demo", "good", servicetest.RelayTo(up.Listener.Addr().String()))
			tr := f.Transport(bound)
			ask := func(method string, body io.Reader, want string) {
				t.Helper()
				res := f.Do(tr, method, "http://hello.demo/", body, nil)
				if got := servicetest.ReadAll(t, res.Body); res.StatusCode != http.StatusOK || got != want {
					t.Errorf("%s: %d %q, want %q", method, res.StatusCode, got, want)
				}
				tr.CloseIdleConnections()
			}
			for i, size := range sizes(name, 300<<10) { // what is kept, and more
				body := bytes.Repeat([]byte{byte('a' + i)}, size)
				want := fmt.Sprintf("POST %d %x", size, sha256.Sum256(body))
				ask("POST", bytes.NewReader(body), want)
				ask("POST", struct{ io.Reader }{bytes.NewReader(body)}, want) // chunked
				ask("GET", nil, fmt.Sprintf("GET 0 %x", sha256.Sum256(nil)))
			}
			if asked.Load() == 0 {
				t.Error("the broken member was never asked")
			}
		})
	}
}

func TestEdge_RetriesBeforeBodyIsComplete(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		line, _ := bufio.NewReader(q.Body).ReadString('\n')
		_, _ = io.WriteString(w, line)
	}))
	t.Cleanup(up.Close)
	var asked atomic.Int32
	bound := startMember(r, "http://hello.demo", "bad", countStreams(&asked, refuseStream))
	startMember(r, "http://hello.demo", "good", servicetest.RelayTo(up.Listener.Addr().String()))
	for range 4 {
		st := f.Open(servicetest.OpenHeader(t, bound))
		// and no more
		_, _ = io.WriteString(st, "POST / HTTP/1.1\r\nHost: hello.demo\r\nContent-Length: 1000\r\n\r\nfirst\n")
		res, err := http.ReadResponse(bufio.NewReader(st), nil)
		must.Succeed(t, err)
		if got, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || got != "first\n" ||
			res.StatusCode != 200 {
			t.Errorf("answer %d %q %v", res.StatusCode, got, err)
		}
		_ = res.Body.Close()
		_ = st.Abort()
	}
	if asked.Load() == 0 {
		t.Error("the broken member was never asked")
	}
}

func TestEdge_RepeatsStartedRequestOnlyOnDemand(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	up := httptest.NewServer(http.HandlerFunc(answerDigest))
	t.Cleanup(up.Close)
	// with the request in hand
	crashes := servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = http.ReadRequest(bufio.NewReader(c)) })
	var bad, good atomic.Int32
	bound := startMember(r, "http://hello.demo", "bad", countStreams(&bad, servicetest.RelayTo(crashes)))
	startMember(r, "http://hello.demo", "good", countStreams(&good, servicetest.RelayTo(up.Listener.Addr().String())))
	ask := func(method string, body string) int {
		tr := f.Transport(bound)
		defer tr.CloseIdleConnections()
		res := f.Do(tr, method, "http://hello.demo/", strings.NewReader(body), nil)
		_ = servicetest.ReadAll(t, res.Body)
		return res.StatusCode
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		for range 3 {
			if got := ask(method, ""); got != 200 {
				t.Errorf("%s: %d", method, got)
			}
		}
	}
	if bad.Load() == 0 {
		t.Fatal("the member that crashes was never asked")
	}
	failed := 0
	for _, c := range []struct {
		method, body string
	}{{"POST", "x"}, {"DELETE", ""}, {"GET", "with a body"}, {"PUT", "y"}, {"POST", ""}, {"DELETE", ""}} {
		before := bad.Load() + good.Load()
		status := ask(c.method, c.body)
		if tried := bad.Load() + good.Load() - before; tried > 1 || status != 200 && status != 502 {
			t.Errorf("%s with %q: %d, tried %d times", c.method, c.body, status, tried)
		}
		if status == 502 {
			failed++
		}
	}
	if failed == 0 {
		t.Error("none of what may not be repeated met the member that crashes")
	}
}

func TestEdge_RetriesTCPWithFirstBytes(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(context.Context, *tunnel.Stream){"refused": refuseStream,
		"silent": neverAccept} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := servicetest.Start(t, func(o *service.Options) { o.AgentOpenTimeout = openTimeoutFor(name) })
			f := r.StartForwarder()
			var asked atomic.Int32
			bound := startMember(r, "tcp://db.demo:5432", "bad", countStreams(&asked, broken))
			startMember(r, "tcp://db.demo:5432", "good",
				servicetest.RelayTo(servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })))
			for _, size := range sizes(name, 3<<20) {
				for range 2 {
					sent, got := sha256.New(), sha256.New()
					st := f.Open(servicetest.OpenHeader(t, bound))
					go func() {
						_, _ = io.Copy(struct{ io.Writer }{st}, noise(int64(size), sent))
						_ = st.CloseWrite() // in the case of no bytes before an upstream has answered
					}()
					n, err := io.Copy(got, st)
					if err != nil || n != int64(size) || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
						t.Errorf("%d of %d bytes came back: %v", n, size, err)
					}
				}
			}
			if asked.Load() == 0 {
				t.Error("the broken member was never asked")
			}
		})
	}
}

func TestEdge_DoesNotRetryAcceptedTCP(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	var taken atomic.Int32
	breaks := func(_ context.Context, st *tunnel.Stream) {
		taken.Add(1)
		_ = st.Accept()
		_, _ = st.Next()
		_ = st.Abort()
	}
	bound := startMember(r, "tcp://db.demo:5432", "a", breaks)
	startMember(r, "tcp://db.demo:5432", "b", breaks)
	st := f.Open(servicetest.OpenHeader(t, bound))
	_, _ = io.WriteString(st, "x")
	if b, err := io.ReadAll(st); err == nil {
		t.Errorf("a clean end after %q", b)
	}
	if n := taken.Load(); n != 1 {
		t.Errorf("%d were asked", n)
	}
}

func TestEdge_ReportsReasonWhenWholePoolRefuses(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	bound := startMember(r, "http://hello.demo", "a", refuseStream)
	startMember(r, "http://hello.demo", "b", refuseStream)
	tcp := startMember(r, "tcp://db.demo:5432", "a", refuseStream)
	startMember(r, "tcp://db.demo:5432", "b", refuseStream)
	checkJSONPage(t, f.Do(f.Transport(bound), "POST", "http://hello.demo/", strings.NewReader("body"), nil), 502,
		account.CodeUpstreamUnreachable, "could not connect")
	if got := f.OpenRefused(servicetest.OpenHeader(t, tcp)); got != tunnel.RefusedUpstream {
		t.Errorf("refused with %v", got)
	}
}
