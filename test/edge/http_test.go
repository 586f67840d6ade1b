// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/fairlead-dev/fairlead/test/support/framingtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestEdge_ForwardsRequestAndAnswer(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r
		w.Header().Set("X-Upstream", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s %s", r.RequestURI, body)
	})
	res := p.Forwarder.Do(p.Transport, "POST", "http://hello.demo/a%2Fb//c?x=1;y=%zz&token=secret",
		strings.NewReader("body"),
		nil)
	if body := servicetest.ReadAll(t, res.Body); res.StatusCode != http.StatusTeapot ||
		body != "/a%2Fb//c?x=1;y=%zz&token=secret body" ||
		res.Header.Get("X-Upstream") != "yes" {
		t.Errorf("answer %d %q %v", res.StatusCode, body, res.Header)
	}
	r := servicetest.Receive(t, got, "request")
	if r.Host != "hello.demo" || r.Header.Get("X-Forwarded-For") != "10.1.2.3" ||
		r.Header.Get("X-Forwarded-Host") != "hello.demo" ||
		r.Header.Get("X-Forwarded-Proto") != "http" {
		t.Errorf("the upstream saw host %q and %v", r.Host, r.Header)
	}
	line := servicetest.Receive(t, p.Agent.Lines, "request line")
	if line.Method != "POST" || line.Path != "/a%2Fb//c" || line.Status != http.StatusTeapot ||
		line.EndpointID != p.Bound.EndpointID || line.Duration <= 0 || line.At.IsZero() {
		t.Errorf("request line %+v; the query must not be in it", line)
	}
}

func TestEdge_HostHeaderModes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mode, want string }{
		{"", "hello.demo"}, {"passthrough", "hello.demo"}, {"rewrite", "UPSTREAM"},
		{"shop.example.com:8080", "shop.example.com:8080"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			var upstream string
			p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Host)
			}, func(b *tunnel.Bind) {
				b.HostMode = c.mode
				upstream = strings.TrimPrefix(b.UpstreamURL, "http://")
			})
			want := strings.Replace(c.want, "UPSTREAM", upstream, 1)
			if got := servicetest.ReadAll(t,
				p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil).Body); got != want {
				t.Errorf("the upstream saw host %q, want %q", got, want)
			}
		})
	}
}

func TestEdge_RemovesForwardingHeaders(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	p := servicetest.NewPath(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, http.Header{
		"X-Forwarded-For": {"6.6.6.6"}, "X_forwarded_for": {"6.6.6.6"}, "X-Forwarded-Proto": {"https"},
		"X-Forwarded-Host": {"evil"}, "X-Forwarded-Port": {"1"},
		"Forwarded": {"for=6.6.6.6"}, "X-Real-Ip": {"6.6.6.6"}, "X-Kept": {"yes"},
	})
	h := servicetest.Receive(t, got, "request")
	for name, values := range h {
		if strings.Contains(strings.Join(values, ","), "6.6.6.6") || strings.Contains(strings.Join(values, ","),
			"evil") {
			t.Errorf("%s: %v came through", name, values)
		}
	}
	if h.Get("X-Forwarded-For") != "10.1.2.3" || h.Get("X-Forwarded-Proto") != "http" || h.Get("X-Kept") != "yes" ||
		h["X-Forwarded-Port"] != nil {
		t.Errorf("headers %v", h)
	}
}

func TestEdge_StreamHeaderChoosesEndpoint(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello "+r.Host+r.RequestURI)
	})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "other")
	}))
	t.Cleanup(other.Close)
	b := p.Server.StartAgent(tunnel.Bind{URL: "http://other.demo"}, other.Listener.Addr().String())
	servicetest.Receive(t, b.Bound, "second bind")
	if got := p.Forwarder.Do(p.Transport, "GET", "http://other.demo/", nil, nil).StatusCode; got != 421 {
		t.Errorf("by Host: %d", got)
	}
	const absolute = "GET http://%s/a?b HTTP/1.1\r\nHost: other.demo\r\nConnection: close\r\n\r\n"
	for host, want := range map[string]string{"hello.demo": "200 hello hello.demo/a?b", "other.demo": "421 "} {
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		_, _ = fmt.Fprintf(st, absolute, host)
		all, _ := framingtest.Answers(st)
		if len(all) != 1 || !strings.HasPrefix(all[0], want) {
			t.Errorf("by absolute form, %s: %q", host, all)
		}
	}
}

// errorPageCases are paths on which no upstream answers, and the page for each.
var errorPageCases = []struct {
	name     string
	path     func(t *testing.T) *servicetest.Path
	status   int
	code     account.Code
	sentence string // part of it
}{
	{"agent offline", func(t *testing.T) *servicetest.Path {
		p := servicetest.NewPathTo(t, servicetest.Start(t), closedport.Reserve(t))
		p.Agent.Stop()
		return p
	}, 503, account.CodeEndpointOffline, "is offline"},
	{"upstream refuses", func(t *testing.T) *servicetest.Path {
		return servicetest.NewPathTo(t, servicetest.Start(t), closedport.Reserve(t))
	}, 502, account.CodeUpstreamUnreachable, "could not connect"},
	{"upstream hangs up", func(t *testing.T) *servicetest.Path {
		upstream := servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = http.ReadRequest(bufio.NewReader(c)) })
		return servicetest.NewPathTo(t, servicetest.Start(t), upstream)
	}, 502, account.CodeUpstreamBroken, "ended the connection"},
	{"upstream speaks no HTTP", func(t *testing.T) *servicetest.Path {
		upstream := servicetest.ServeTCP(t, func(c *net.TCPConn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, "220 smtp ready\r\n")
		})
		return servicetest.NewPathTo(t, servicetest.Start(t), upstream)
	}, 502, account.CodeUpstreamBroken, "not HTTP"},
	{"agent is silent", func(t *testing.T) *servicetest.Path {
		r := servicetest.Start(t, func(o *service.Options) { o.AgentOpenTimeout = 50 * time.Millisecond })
		p := &servicetest.Path{Server: r, Forwarder: r.StartForwarder()}
		p.Agent = r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "http://hello.demo"},
			func(_ context.Context, st *tunnel.Stream) { _, _ = st.Next(); _, _ = io.Copy(io.Discard, st) })
		p.Bound = servicetest.Receive(t, p.Agent.Bound, "bind")
		p.Transport = p.Forwarder.Transport(p.Bound)
		return p
	}, 504, account.CodeAgentSilent, "did not answer"},
}

func TestEdge_ErrorPages(t *testing.T) {
	t.Parallel()
	for _, c := range errorPageCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := c.path(t)
			for _, method := range []string{"GET", "POST"} {
				res := p.Forwarder.Do(p.Transport, method, "http://hello.demo/",
					strings.NewReader(strings.Repeat("x", 100)), nil)
				checkJSONPage(t, res, c.status, c.code, c.sentence)
			}
			res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil,
				http.Header{"Accept": {"text/html,application/xhtml+xml,*/*;q=0.8"}})
			page := servicetest.ReadAll(t, res.Body)
			if res.StatusCode != c.status || res.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
				!strings.Contains(page, string(c.code)) || !strings.Contains(page, c.sentence) {
				t.Errorf("HTML answer %d %v:\n%s", res.StatusCode, res.Header, page)
			}
			res = p.Forwarder.Do(p.Transport, "HEAD", "http://hello.demo/", nil, nil)
			if res.StatusCode != c.status || servicetest.ReadAll(t, res.Body) != "" {
				t.Errorf("HEAD answer %d", res.StatusCode)
			}
		})
	}
}

// checkJSONPage checks an error page for a client that does not ask for HTML.
func checkJSONPage(t *testing.T, res *http.Response, status int, code account.Code, sentence string) {
	t.Helper()
	var page struct {
		ErrorCode  account.Code      `json:"error_code"`
		StatusCode int               `json:"status_code"`
		Msg        string            `json:"msg"`
		Details    map[string]string `json:"details"`
	}
	body := servicetest.ReadAll(t, res.Body)
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	if res.StatusCode != status || page.StatusCode != status || page.ErrorCode != code ||
		!strings.Contains(page.Msg, sentence) || page.Details == nil {
		t.Errorf("answer %d %s, want %d %s with %q", res.StatusCode, body, status, code, sentence)
	}
	if got := res.Header.Get("Fairlead-Error-Code"); got != string(code) {
		t.Errorf("header is %q, want %s", got, code)
	}
}

func TestEdge_EndpointReturnsOnSameConnection(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "back") })
	upstream := strings.TrimPrefix(upstreamURL(p), "http://")
	p.Agent.Stop()
	checkJSONPage(t, p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil), 503,
		account.CodeEndpointOffline,
		"offline")
	again := p.Server.StartAgent(tunnel.Bind{URL: "http://hello.demo"}, upstream)
	if b := servicetest.Receive(t, again.Bound, "second bind"); b.EndpointID != p.Bound.EndpointID {
		t.Errorf("the endpoint came back as %s, was %s", b.EndpointID, p.Bound.EndpointID)
	}
	if got := servicetest.ReadAll(t,
		p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil).Body); got != "back" {
		t.Errorf("answer %q", got)
	}
}

// TestEdge_ReportsFailedRequestsToForwarder checks that the forwarder, which reads no HTTP, learns
// of every request that the edge answered itself and of the next one that got through, and of no
// other.
func TestEdge_ReportsFailedRequestsToForwarder(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "well") })
	upstream := strings.TrimPrefix(upstreamURL(p), "http://")
	ask := func(status int) {
		t.Helper()
		res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/secret", nil, nil)
		_ = servicetest.ReadAll(t, res.Body)
		if res.StatusCode != status {
			t.Fatalf("status %d, want %d", res.StatusCode, status)
		}
	}
	expectLine := func(status int, code account.Code) {
		t.Helper()
		l := servicetest.Receive(t, p.Forwarder.Lines, "a line")
		if l.Status != status || l.Code != string(code) || l.EndpointID != p.Bound.EndpointID || l.Path != "" ||
			l.At.IsZero() {
			t.Errorf("line %+v, want %d %s", l, status, code)
		}
	}
	ask(200)
	p.Agent.Stop()
	ask(503)
	expectLine(503, account.CodeEndpointOffline)
	ask(503)
	expectLine(503, account.CodeEndpointOffline)
	again := p.Server.StartAgent(tunnel.Bind{URL: "http://hello.demo"}, upstream)
	servicetest.Receive(t, again.Bound, "second bind")
	ask(200)
	expectLine(200, "")
	ask(200)
	again.Stop()
	ask(503)
	expectLine(503, account.CodeEndpointOffline) // and nothing before it
	servicetest.Receive(t, p.Server.StartAgent(tunnel.Bind{URL: "http://hello.demo"}, closedport.Reserve(t)).Bound,
		"third bind")
	ask(502)
	expectLine(502, account.CodeUpstreamUnreachable)
}

func upstreamURL(p *servicetest.Path) string {
	p.T.Helper()
	var ep account.Endpoint
	if status := p.CallAPI("GET", "/endpoints/"+p.Bound.EndpointID, nil, &ep); status != http.StatusOK {
		p.T.Fatalf("reading the endpoint: status %d", status)
	}
	return ep.UpstreamURL
}

func TestEdge_RetriesStalePooledStream(t *testing.T) {
	t.Parallel()
	served := make(chan string, 16)
	// Each connection answers one request, and hangs up on the second without a word.
	upstream := servicetest.ServeTCP(t, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		for n := range 2 {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			served <- r.Method
			if n == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}
	})
	p := servicetest.NewPathTo(t, servicetest.Start(t), upstream)
	for range 3 {
		if res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil); res.StatusCode != 200 ||
			servicetest.ReadAll(t, res.Body) != "ok" {
			t.Errorf("GET over a stale stream gave %d", res.StatusCode)
		}
	}
	post := func() *http.Response {
		return p.Forwarder.Do(p.Transport, "POST", "http://hello.demo/", strings.NewReader("once"), nil)
	}
	if res := post(); res.StatusCode != 200 || servicetest.ReadAll(t, res.Body) != "ok" {
		t.Errorf("the first POST gave %d", res.StatusCode)
	}
	checkJSONPage(t, post(), 502, account.CodeUpstreamBroken, "ended the connection")
	posts := 0
	for len(served) > 0 {
		if <-served == "POST" {
			posts++
		}
	}
	if posts != 2 {
		t.Errorf("the POSTs were sent %d times", posts)
	}
}

func TestEdge_DropsUpgradeToHTTP2(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	p := servicetest.NewPath(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, http.Header{
		"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {"h2c"}, "Http2-Settings": {"AAMAAABkAAQAoAAAAAIAAAAA"},
	})
	if h := servicetest.Receive(t, got, "request"); res.StatusCode != 200 || h.Get("Upgrade") != "" ||
		h.Get("Http2-Settings") != "" {
		t.Errorf("status %d, the upstream saw %v", res.StatusCode, h)
	}
}

func TestEdge_AnswersBadRequestsItself(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.RequestURI)
	})
	for _, c := range []struct{ name, request, status, body string }{
		{"CONNECT", "CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n", "400", "ERR_FL_3031"},
		{"large header", "GET / HTTP/1.1\r\nHost: hello.demo\r\nX-Big: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
			"431",
			""},
		{"two lengths", "POST / HTTP/1.1\r\nHost: hello.demo\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
			"400", ""},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400", ""},
		{"no HTTP", "HELO mail.example.com\r\n\r\n", "400", ""},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: hello.demo\r\n\r\n", "200", "OPTIONS *"}, // passed on
	} {
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		_, _ = io.WriteString(st, c.request)
		res, err := http.ReadResponse(bufio.NewReader(st), nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if body := servicetest.ReadAll(t, res.Body); !strings.HasPrefix(res.Status, c.status) ||
			!strings.Contains(body, c.body) {
			t.Errorf("%s: %s %q", c.name, res.Status, body)
		}
		_ = res.Body.Close()
	}
}
