// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/testenv/closedport"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// getHealth asks the health listener.
func (r *testServer) getHealth(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(testContext(r.t), "GET", "http://"+r.addrs.Metrics.String()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode, readAll(r.t, res.Body)
}

func (r *testServer) scrapeMetrics() string {
	_, body := r.getHealth("/metrics")
	return body
}

func TestHealthListener_HasNoMetrics(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(o *Options) { o.HealthAddr = "127.0.0.1:0" })
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 404} {
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(httptest.NewRequestWithContext(testContext(t), "GET",
			"http://"+r.addrs.Health.String()+path, nil))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}

// stopAndWait asks the service to stop and waits for the end.
func (r *testServer) stopAndWait() error {
	r.stop()
	return receive(r.t, r.finished, "end of the service")
}

func TestStop_DrainsRequests(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	p := newEdgePath(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "OPTIONS" {
			return
		}
		close(began)
		<-release
		_, _ = io.WriteString(w, "answered")
	})
	idle := p.forwarder.open(openHeader(t, p.bound))
	_, _ = io.WriteString(idle, "OPTIONS * HTTP/1.1\r\nHost: hello.demo\r\n\r\n")
	in := bufio.NewReader(idle)
	if res, err := http.ReadResponse(in, nil); err != nil || res.Close || readAll(t, res.Body) != "" {
		t.Fatalf("an ordinary answer: %v %v", res, err)
	}
	answers := make(chan *http.Response, 1)
	go func() { answers <- p.forwarder.do(p.tr, "GET", "http://hello.demo/", nil, nil) }()
	receive(t, began, "request")
	s, err := p.forwarder.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	p.stop()
	receive(t, s.PeerDraining(), "drain message")

	if status, body := p.getHealth("/readyz"); status != 503 || !strings.Contains(body, "stopping") {
		t.Errorf("readyz while draining: %d %q", status, body)
	}
	if status, _ := p.getHealth("/healthz"); status != 200 {
		t.Errorf("healthz while draining: %d", status)
	}
	var page struct {
		ErrorCode account.Code `json:"error_code"`
	}
	if status := p.callAPI("POST", "/kubernetes_operators", map[string]any{}, &page); status != 503 ||
		page.ErrorCode != account.CodeUnavailable {
		t.Errorf("a write while draining: %d %s", status, page.ErrorCode)
	}
	if status := p.callAPI("GET", "/endpoints", nil, nil); status != 200 {
		t.Errorf("a read while draining: %d", status)
	}
	if status := p.callAPI("DELETE", "/app/users/au-none", nil, nil); status != 404 {
		t.Errorf("a revocation while draining: %d", status)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("an idle connection ended with %q and %v, want a clean end", rest, err)
	}
	close(release)
	res := receive(t, answers, "answer")
	if body := readAll(t, res.Body); res.StatusCode != 200 || body != "answered" || !res.Close {
		t.Errorf("the answer under way: %d %q, Connection: close %v", res.StatusCode, body, res.Close)
	}
	if err := receive(t, p.finished, "end of the service"); err != nil {
		t.Error(err)
	}
}

func TestStop_CutsAfterDrainTimeout(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(p *edgePath){
		"at the time-out": func(p *edgePath) { p.stop() },
		"in a hurry":      func(p *edgePath) { p.stop(); close(p.forceStop) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 100 * time.Millisecond
			if name == "in a hurry" {
				timeout = time.Hour
			}
			r := startServer(t, func(o *Options) { o.DrainTimeout = timeout })
			p := edgePathTo(t, r, serveTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }), func(b *tunnel.Bind) {
				b.URL, b.UpstreamURL, b.UpstreamProtocol = "tcp://db.demo:1", "", ""
			})
			st := p.forwarder.open(openHeader(t, p.bound))
			_, _ = io.WriteString(st, "x")
			if _, err := io.ReadFull(st, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			cut(p)
			if _, err := st.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the stream ended with %v, want an abort", err)
			}
			if err := receive(t, p.finished, "end of the service"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRestart_KeepsSecretsAuthorityAndEndpointIDs(t *testing.T) {
	t.Parallel()
	first := startServer(t)
	a := first.startAgent(tunnel.Bind{URL: "http://hello.demo"}, closedport.Reserve(t))
	before := receive(t, a.bound, "bind")
	a.stop()
	if err := first.stopAndWait(); err != nil {
		t.Fatal(err)
	}
	second := startServer(t, func(o *Options) { o.DataDir = first.opt.DataDir })
	if second.addrs.CAFingerprint != first.addrs.CAFingerprint {
		t.Error("the authority changed")
	}
	b := receive(t, second.startAgent(tunnel.Bind{URL: "http://hello.demo"}, closedport.Reserve(t)).bound, "bind")
	if b.EndpointID != before.EndpointID {
		t.Errorf("the endpoint is %s, was %s", b.EndpointID, before.EndpointID)
	}
	if status := second.callAPI("GET", "/endpoints", nil, nil); status != 200 {
		t.Errorf("the old API key: status %d", status)
	}
}

func TestRestart_ConnectionsWaitForAgent(t *testing.T) {
	t.Parallel()
	first := startServer(t)
	upstream := serveTCP(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "x") })
	a := first.startAgent(tunnel.Bind{URL: "tcp://db.demo:1"}, upstream)
	bound := receive(t, a.bound, "bind")
	if err := first.stopAndWait(); err != nil {
		t.Fatal(err)
	}
	a.stop()
	second := startServer(t, func(o *Options) { o.DataDir = first.opt.DataDir })
	st := second.startForwarder().open(openHeader(t, bound))
	deadline := time.Now().Add(patience)
	for !strings.Contains(second.scrapeMetrics(), `fairlead_server_opens_total{hop="forwarder",outcome="accepted"} 1`) {
		if time.Now().After(deadline) {
			t.Fatal("the stream did not arrive")
		}
	}
	receive(t, second.startAgent(tunnel.Bind{URL: "tcp://db.demo:1", ResumeSecret: bound.ResumeSecret}, upstream).bound,
		"bind")
	if _, err := io.ReadFull(st, make([]byte, 1)); err != nil {
		t.Errorf("the connection that came before the agent got %v", err)
	}
}

func TestLog_HasNoSecrets(t *testing.T) {
	t.Parallel()
	p := newEdgePath(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	header := http.Header{"Authorization": {"Bearer request-secret"}, "Cookie": {"c=request-secret"}}
	p.forwarder.do(p.tr, "GET", "http://hello.demo/?token=request-secret", nil, header)
	wrong := account.NewSecret(account.AuthtokenPrefix)
	_, _, ended := p.runTunnelClient(tunnel.ClientConfig{Hello: func() tunnel.Hello {
		return tunnel.Hello{Role: tunnel.RoleAgent, Token: wrong}
	}})
	wantCode(t, "wrong token", receive(t, ended, "refusal"), tunnel.CodeBadToken)
	second := p.openSession(p.authtoken)
	_, err := second.Bind(testContext(t), tunnel.Bind{URL: p.bound.URL, ResumeSecret: p.bound.ResumeSecret + "x"})
	wantCode(t, "wrong resume secret", err, tunnel.CodeURLTaken)
	p.agent.stop()
	p.forwarder.do(p.tr, "GET", "http://hello.demo/?token=request-secret", nil, header)
	metrics := p.scrapeMetrics()
	key := p.apiKey
	p.apiKey = "flk_wrong-key-of-somebody"
	p.callAPI("GET", "/endpoints", nil, nil)
	if err := p.stopAndWait(); err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{
		"API key": key, "authtoken": p.authtoken, "resume secret": p.bound.ResumeSecret, "wrong authtoken": wrong,
		"request's secret": "request-secret",
		"wrong API key":    "wrong-key-of-somebody",
	}
	for name, secret := range secrets {
		if secret == "" {
			t.Fatalf("the test has no %s", name)
		}
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log holds the %s", name)
		}
		if strings.Contains(metrics, secret) {
			t.Errorf("the metrics hold the %s", name)
		}
	}
	if !strings.Contains(p.log.String(), p.bound.EndpointID) {
		t.Error("the log was not collected")
	}
	if strings.Contains(metrics, "hello.demo") {
		t.Error("metrics name a host")
	}
}

func TestMetrics_CountRequestsAndSessions(t *testing.T) {
	t.Parallel()
	p := newEdgePath(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	_ = readAll(t, p.forwarder.do(p.tr, "GET", "http://hello.demo/", nil, nil).Body)
	receive(t, p.agent.lines, "request line") // the request is over for the service, too
	metrics := p.scrapeMetrics()
	for _, line := range []string{
		`fairlead_server_requests_total{code="418"} 1`, `fairlead_server_sessions{role="agent"} 1`,
		`fairlead_server_sessions{role="forwarder"} 1`,
		"fairlead_server_endpoints 1", `fairlead_server_opens_total{hop="forwarder",outcome="accepted"} 1`,
		`fairlead_server_opens_total{hop="agent",outcome="opened"} 1`,
		`fairlead_server_hellos_total{outcome="accepted",role="agent"} 1`,
		"fairlead_server_request_duration_seconds_count 1", `fairlead_server_bytes_total{direction="to_agent"}`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
}

func TestStop_EndsWatchesCleanly(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	tlsConfig, err := trust.Options{CASHA256: r.addrs.CAFingerprint}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	get := func(query string) *http.Response {
		req, err := http.NewRequestWithContext(testContext(t), "GET", "https://"+r.addrs.Service.String()+"/endpoints"+query,
			nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.apiKey)
		req.Header.Set("Service-Version", "2")
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	var list struct {
		ResourceVersion string `json:"resource_version"`
	}
	if err := json.NewDecoder(get("").Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	watch := get("?watch=true&resource_version=" + list.ResourceVersion)
	if watch.StatusCode != 200 || watch.ProtoMajor != 2 {
		t.Fatalf("watch: status %d over %s", watch.StatusCode, watch.Proto)
	}
	r.stop()
	if _, err := io.ReadAll(watch.Body); err != nil {
		t.Errorf("the watch ended with %v", err)
	}
	if err := receive(t, r.finished, "end of the service"); err != nil {
		t.Error(err)
	}
}
