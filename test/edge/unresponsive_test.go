// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/frozen"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// frozenAgent is an agent that can be stopped as SIGSTOP stops it.
type frozenAgent struct {
	*servicetest.Agent
	frozen.Process
	boundTo tunnel.Bound
}

func startFrozenAgent(r *servicetest.Server, b tunnel.Bind, upstream string) *frozenAgent {
	r.T.Helper()
	a := &frozenAgent{}
	if b.UpstreamProtocol == "" && !strings.HasPrefix(b.URL, "tcp:") {
		b.UpstreamProtocol = "http1"
	}
	a.Agent = r.StartAgentWith(r.Authtoken, b, servicetest.RelayTo(upstream), func(c *tunnel.ClientConfig) {
		c.DialContext = a.Dial
	})
	a.boundTo = servicetest.Receive(r.T, a.Bound, "bind")
	r.T.Cleanup(a.Continue) // before the agent's end
	return a
}

// countAnswers makes n requests at a time and returns what they got, and how long the slowest took.
func countAnswers(f *servicetest.Forwarder, tr *http.Transport, n int) (map[string]int, time.Duration) {
	f.T.Helper()
	got, slowest := map[string]int{}, time.Duration(0)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			began := time.Now()
			body := "failed"
			req, err := http.NewRequestWithContext(servicetest.Context(f.T), http.MethodGet, "http://hello.demo/x", nil)
			if err != nil {
				f.T.Error(err)
				return
			}
			if res, err := tr.RoundTrip(req); err == nil {
				b, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				body, _, _ = strings.Cut(string(b), " ")
			}
			mu.Lock()
			defer mu.Unlock()
			got[body]++
			slowest = max(slowest, time.Since(began))
		})
	}
	all.Wait()
	return got, slowest
}

// maxDetection limits how long the edge takes to find an agent unresponsive: a second and a half,
// and what a busy machine adds. It waits far longer for the answer of an agent that responds.
const maxDetection = 4 * time.Second

// frozenFirst are ways to reach two upstreams: the first behind an agent that freezes, at up, and
// one that answers "other". Each returns the agent and the endpoint.
var frozenFirst = map[string]func(t *testing.T, r *servicetest.Server, up string) (*frozenAgent, tunnel.Bound){
	"failover": func(t *testing.T, r *servicetest.Server, up string) (*frozenAgent, tunnel.Bound) {
		a := r.Tenant()
		first := startFrozenAgent(r, tunnel.Bind{Labels: map[string]string{"app": "api"}}, up)
		other := a.Static(namedServer(t, "other").Listener.Addr().String())
		order := a.Failover(a.Group(map[string]string{"app": "api"}), other)
		return first, a.Cloud(account.BindingKubernetes, "http://hello.demo", "", order)
	},
	"group": func(t *testing.T, r *servicetest.Server, up string) (*frozenAgent, tunnel.Bound) {
		a := r.Tenant()
		first := startFrozenAgent(r, tunnel.Bind{Labels: map[string]string{"app": "api"}}, up)
		startLabelledAgent(r, "api", namedServer(t, "other").Listener.Addr().String())
		group := a.Group(map[string]string{"app": "api"})
		return first, a.Cloud(account.BindingKubernetes, "http://hello.demo", "", group)
	},
	"pool": func(t *testing.T, r *servicetest.Server, up string) (*frozenAgent, tunnel.Bound) {
		first := startFrozenAgent(r, tunnel.Bind{URL: "http://hello.demo", Name: "first", PoolingEnabled: true}, up)
		startMember(r, "http://hello.demo", "other",
			servicetest.RelayTo(namedServer(t, "other").Listener.Addr().String()))
		return first, first.boundTo
	},
	"pool of http2": func(t *testing.T, r *servicetest.Server, up string) (*frozenAgent, tunnel.Bound) {
		bind := tunnel.Bind{URL: "http://hello.demo", Name: "first", PoolingEnabled: true,
			UpstreamProtocol: "http2"}
		first := startFrozenAgent(r, bind, up)
		startMember(r, "http://hello.demo", "other",
			servicetest.RelayTo(namedServer(t, "other").Listener.Addr().String()))
		return first, first.boundTo
	},
}

// TestEdge_LeavesUnresponsiveAgent checks that requests over kept streams and new ones leave an
// agent that does not respond within about a second, that it gets none until it responds, and that
// it keeps its session and its endpoint.
func TestEdge_LeavesUnresponsiveAgent(t *testing.T) {
	t.Parallel()
	for name, start := range frozenFirst {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := servicetest.Start(t, servicetest.AllowLoopback)
			f := r.StartForwarder()
			first, b := start(t, r, unencryptedHTTP2(t, "first"))
			tr := f.Transport(b)
			servicetest.Eventually(t, "the first serves", func() bool {
				got, _ := countAnswers(f, tr, 8) // some streams are kept
				return got["first"] > 0
			})
			session := first.Session()
			first.Process.Stop()
			if got, slowest := countAnswers(f, tr, 20); got["other"] != 20 || slowest > maxDetection {
				t.Errorf("when the agent freezes: %v, the slowest after %v", got, slowest)
			}
			for range 5 {
				if got, slowest := countAnswers(f, tr, 10); got["other"] != 10 || slowest > 2*time.Second {
					t.Errorf("while it is frozen: %v, the slowest after %v", got, slowest)
				}
			}
			first.Continue()
			servicetest.Eventually(t, "the first serves again", func() bool {
				got, _ := countAnswers(f, tr, 8)
				return got["first"] > 0
			})
			if first.Session() != session || len(first.Bound) > 0 {
				t.Error("the agent that goes on lost its session")
			}
		})
	}
}

// unencryptedHTTP2 returns the address of an upstream that speaks HTTP/1 and HTTP/2 and answers
// with its name.
func unencryptedHTTP2(t *testing.T, name string) string {
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }
	s := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// TestEdge_TCPLeavesUnresponsiveAgent checks that a tcp connection that the agent has not accepted
// goes to the next one, and that open connections stay and go on when the agent does.
func TestEdge_TCPLeavesUnresponsiveAgent(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	upstream := servicetest.ServeTCP(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "f")
		_, _ = io.Copy(c, c)
	})
	first := startFrozenAgent(r, tunnel.Bind{URL: "tcp://db.demo:5432", Name: "f", PoolingEnabled: true}, upstream)
	opened, _ := openNamed(f, servicetest.OpenHeader(t, first.boundTo), 1)
	startTCPMember(r, r.Authtoken, "o")
	first.Process.Stop()
	began := time.Now()
	if got, _ := spreadStreams(f, 6, sameHeader(servicetest.OpenHeader(t, first.boundTo))); got["o"] != 6 ||
		time.Since(began) > maxDetection {
		t.Errorf("connections went to %v within %v", got, time.Since(began))
	}
	first.Continue()
	if !echoes(opened) {
		t.Error("an open connection has ended")
	}
}

// TestEdge_WaitsForTheOnlyAgent checks that requests wait for a moment where there is no other
// agent: those that may be sent twice are answered when the agent goes on, and so are those that
// may not.
func TestEdge_WaitsForTheOnlyAgent(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	only := startFrozenAgent(r, tunnel.Bind{URL: "http://hello.demo"}, namedServer(t, "only").Listener.Addr().String())
	tr := f.Transport(only.boundTo)
	if got, _ := countAnswers(f, tr, 4); got["only"] != 4 {
		t.Fatalf("%v", got)
	}
	only.Process.Stop()
	posted := make(chan string, 1)
	go func() {
		res := f.Do(tr, http.MethodPost, "http://hello.demo/x", strings.NewReader("body"), nil)
		posted <- servicetest.ReadAll(t, res.Body)
	}()
	noticed := make(chan struct{})
	go func() {
		defer close(noticed)
		servicetest.Eventually(t, "the agent is known to be unresponsive", func() bool {
			return strings.Contains(r.ScrapeMetrics(), `outcome="silent"`)
		})
		only.Continue()
	}()
	if got, slowest := countAnswers(f, tr, 10); got["only"] != 10 {
		t.Errorf("%v, the slowest after %v", got, slowest)
	}
	<-noticed
	if got := servicetest.Receive(t, posted, "answer to a POST"); got != "only hello.demo /x" {
		t.Errorf("POST: %q", got)
	}
}

// TestEdge_RemembersUnresponsiveAgent checks that a client of an agent that has not responded for a
// while gets the error page at once, and that one that has handed a POST to it waits 10 s at most.
func TestEdge_RemembersUnresponsiveAgent(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	arrived := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/x" { // it is never answered
			close(arrived)
			<-t.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "only")
	}))
	t.Cleanup(upstream.Close)
	only := startFrozenAgent(r, tunnel.Bind{URL: "http://hello.demo"}, upstream.Listener.Addr().String())
	tr := f.Transport(only.boundTo)
	res := f.Do(tr, http.MethodPost, "http://hello.demo/", strings.NewReader("body"), nil)
	if res.StatusCode != http.StatusOK || servicetest.ReadAll(t, res.Body) != "only" { // the stream is kept
		t.Fatalf("status %d", res.StatusCode)
	}
	posted := make(chan string, 1)
	var stopped atomic.Pointer[time.Time]
	go func() {
		res := f.Do(tr, http.MethodPost, "http://hello.demo/x", strings.NewReader("body"), nil)
		page := servicetest.ReadAll(t, res.Body)
		if at := stopped.Load(); at == nil || time.Since(*at) > 10*time.Second+maxDetection {
			t.Errorf("the POST waited from %v to %v", at, time.Now())
		}
		posted <- page
	}()
	servicetest.Receive(t, arrived, "the POST's arrival")
	now := time.Now()
	stopped.Store(&now)
	only.Process.Stop()
	ask := func() time.Duration {
		t.Helper()
		began := time.Now()
		res := f.Do(f.Transport(only.boundTo), http.MethodGet, "http://hello.demo/x", nil, nil)
		code := res.Header.Get(account.CodeHeader)
		if res.StatusCode != http.StatusGatewayTimeout || code != string(account.CodeAgentSilent) {
			t.Errorf("%d %s", res.StatusCode, code)
		}
		return time.Since(began)
	}
	if ask(); time.Since(now) < 2*time.Second {
		t.Errorf("an agent that has just become unresponsive was given up after %v", time.Since(now))
	}
	if d := ask(); d > 2*time.Second {
		t.Errorf("an agent that is known to be unresponsive was waited for, for %v", d)
	}
	if page := servicetest.Receive(t, posted, "answer to a POST"); !strings.Contains(page, "ERR_FL_3006") ||
		!strings.Contains(page, "may have been executed") {
		t.Errorf("POST: %q", page)
	}
}
