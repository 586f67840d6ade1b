// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestHealthListener_HasNoMetrics(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t, func(o *service.Options) { o.HealthAddr = "127.0.0.1:0" })
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 404} {
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(
			httptest.NewRequestWithContext(servicetest.Context(t), "GET",
				"http://"+r.Addrs.Health.String()+path, nil))
		must.Succeed(t, err)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}

func TestStop_DrainsRequests(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "OPTIONS" {
			return
		}
		close(began)
		<-release
		_, _ = io.WriteString(w, "answered")
	})
	idle := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
	_, _ = io.WriteString(idle, "OPTIONS * HTTP/1.1\r\nHost: hello.demo\r\n\r\n")
	in := bufio.NewReader(idle)
	if res, err := http.ReadResponse(in, nil); err != nil || res.Close || servicetest.ReadAll(t, res.Body) != "" {
		t.Fatalf("an ordinary answer: %v %v", res, err)
	}
	answers := make(chan *http.Response, 1)
	go func() { answers <- p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil) }()
	servicetest.Receive(t, began, "request")
	s, err := p.Forwarder.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	p.Stop()
	servicetest.Receive(t, s.PeerDraining(), "drain message")

	if status, body := p.GetHealth("/readyz"); status != 503 || !strings.Contains(body, "stopping") {
		t.Errorf("readyz while draining: %d %q", status, body)
	}
	if status, _ := p.GetHealth("/healthz"); status != 200 {
		t.Errorf("healthz while draining: %d", status)
	}
	var page struct {
		ErrorCode account.Code `json:"error_code"`
	}
	if status := p.CallAPI("POST", "/kubernetes_operators", map[string]any{}, &page); status != 503 ||
		page.ErrorCode != account.CodeUnavailable {
		t.Errorf("a write while draining: %d %s", status, page.ErrorCode)
	}
	if status := p.CallAPI("GET", "/endpoints", nil, nil); status != 200 {
		t.Errorf("a read while draining: %d", status)
	}
	if status := p.CallAPI("DELETE", "/app/users/au-none", nil, nil); status != 404 {
		t.Errorf("a revocation while draining: %d", status)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("an idle connection ended with %q and %v, want a clean end", rest, err)
	}
	close(release)
	res := servicetest.Receive(t, answers, "answer")
	if body := servicetest.ReadAll(t, res.Body); res.StatusCode != 200 || body != "answered" || !res.Close {
		t.Errorf("the answer under way: %d %q, Connection: close %v", res.StatusCode, body, res.Close)
	}
	if err := servicetest.Receive(t, p.Finished, "end of the service"); err != nil {
		t.Error(err)
	}
}

func TestStop_CutsAfterDrainTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drainTimeout time.Duration
		cut          func(*servicetest.Path)
	}{
		"at the time-out": {100 * time.Millisecond, func(p *servicetest.Path) { p.Stop() }},
		"at ForceStop":    {time.Hour, func(p *servicetest.Path) { p.Stop(); close(p.ForceStop) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := servicetest.Start(t, func(o *service.Options) { o.DrainTimeout = c.drainTimeout })
			p := servicetest.NewTCPPathTo(t, r, servicetest.ServeTCP(t, servicetest.Echo))
			st := p.Forwarder.OpenEcho(p.Bound)
			c.cut(p)
			checkAborted(t, st)
			if err := servicetest.Receive(t, p.Finished, "end of the service"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRestart_KeepsSecretsAuthorityAndEndpointIDs(t *testing.T) {
	t.Parallel()
	first := servicetest.Start(t)
	a := first.StartAgent(tunnel.Bind{URL: "http://hello.demo"}, closedport.Reserve(t))
	before := servicetest.Receive(t, a.Bound, "bind")
	a.Stop()
	must.Succeed(t, first.StopAndWait())
	second := servicetest.Start(t, func(o *service.Options) { o.DataDir = first.Options.DataDir })
	if second.Addrs.CAFingerprint != first.Addrs.CAFingerprint {
		t.Error("the authority changed")
	}
	b := servicetest.Receive(t, second.StartAgent(tunnel.Bind{URL: "http://hello.demo"}, closedport.Reserve(t)).Bound,
		"bind")
	if b.EndpointID != before.EndpointID {
		t.Errorf("the endpoint is %s, was %s", b.EndpointID, before.EndpointID)
	}
	if status := second.CallAPI("GET", "/endpoints", nil, nil); status != 200 {
		t.Errorf("the old API key: status %d", status)
	}
}

func TestRestart_ConnectionsWaitForAgent(t *testing.T) {
	t.Parallel()
	first := servicetest.Start(t)
	upstream := servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "x") })
	a := first.StartAgent(tunnel.Bind{URL: "tcp://db.demo:1"}, upstream)
	bound := servicetest.Receive(t, a.Bound, "bind")
	must.Succeed(t, first.StopAndWait())
	a.Stop()
	second := servicetest.Start(t, func(o *service.Options) { o.DataDir = first.Options.DataDir })
	st := second.StartForwarder().Open(servicetest.OpenHeader(t, bound))
	servicetest.Eventually(t, "the stream is counted", func() bool {
		const line = `fairlead_server_opens_total{hop="forwarder",outcome="accepted"} 1`
		return strings.Contains(second.ScrapeMetrics(), line)
	})
	again := second.StartAgent(tunnel.Bind{URL: "tcp://db.demo:1", ResumeSecret: bound.ResumeSecret}, upstream)
	servicetest.Receive(t, again.Bound, "bind")
	if _, err := io.ReadFull(st, make([]byte, 1)); err != nil {
		t.Errorf("the connection opened before the agent returned got %v", err)
	}
}

func TestLog_HasNoSecrets(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	header := http.Header{"Authorization": {"Bearer request-secret"}, "Cookie": {"c=request-secret"}}
	p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/?token=request-secret", nil, header)
	wrong := account.NewSecret(account.AuthtokenPrefix)
	_, _, ended := p.RunTunnelClient(tunnel.ClientConfig{Hello: func() tunnel.Hello {
		return tunnel.Hello{Role: tunnel.RoleAgent, Token: wrong}
	}})
	wantCode(t, "wrong token", servicetest.Receive(t, ended, "refusal"), tunnel.CodeBadToken)
	second := openSession(p.Server, p.Authtoken)
	_, err := second.Bind(servicetest.Context(t),
		tunnel.Bind{URL: p.Bound.URL, ResumeSecret: p.Bound.ResumeSecret + "x"})
	wantCode(t, "wrong resume secret", err, tunnel.CodeURLTaken)
	p.Agent.Stop()
	p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/?token=request-secret", nil, header)
	metrics := p.ScrapeMetrics()
	key := p.APIKey
	p.APIKey = "flk_wrong-api-key"
	p.CallAPI("GET", "/endpoints", nil, nil)
	must.Succeed(t, p.StopAndWait())
	secrets := map[string]string{
		"API key": key, "authtoken": p.Authtoken, "resume secret": p.Bound.ResumeSecret, "wrong authtoken": wrong,
		"request's secret": "request-secret",
		"wrong API key":    "wrong-api-key",
	}
	for name, secret := range secrets {
		if secret == "" {
			t.Fatalf("the test has no %s", name)
		}
		if strings.Contains(p.Log.String(), secret) {
			t.Errorf("the log holds the %s", name)
		}
		if strings.Contains(metrics, secret) {
			t.Errorf("the metrics hold the %s", name)
		}
	}
	if !strings.Contains(p.Log.String(), p.Bound.EndpointID) {
		t.Error("the log was not collected")
	}
	if strings.Contains(metrics, "hello.demo") {
		t.Error("metrics name a host")
	}
}

func TestMetrics_CountRequestsAndSessions(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	_ = servicetest.ReadAll(t, p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil).Body)
	servicetest.Receive(t, p.Agent.Lines, "request line") // the request is over for the service, too
	metrics := p.ScrapeMetrics()
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
	r := servicetest.Start(t)
	tr := r.NewAPITransport()
	get := func(query string) *http.Response {
		res, err := tr.RoundTrip(r.NewAPIRequest("GET", "/endpoints"+query, nil))
		must.Succeed(t, err)
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	var list struct {
		ResourceVersion string `json:"resource_version"`
	}
	must.Succeed(t, json.NewDecoder(get("").Body).Decode(&list))
	watch := get("?watch=true&resource_version=" + list.ResourceVersion)
	if watch.StatusCode != 200 || watch.ProtoMajor != 2 {
		t.Fatalf("watch: status %d over %s", watch.StatusCode, watch.Proto)
	}
	r.Stop()
	if _, err := io.ReadAll(watch.Body); err != nil {
		t.Errorf("the watch ended with %v", err)
	}
	if err := servicetest.Receive(t, r.Finished, "end of the service"); err != nil {
		t.Error(err)
	}
}
