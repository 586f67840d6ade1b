// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/dashboard"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// testBrowser is a browser without scripts: it keeps one cookie and does not follow redirects.
type testBrowser struct {
	*servicetest.Server
	via    *http.Transport
	from   string // X-Forwarded-For of its requests; "" = none
	cookie string
}

func newDashboardBrowser(r *servicetest.Server) *testBrowser {
	r.T.Helper()
	return &testBrowser{Server: r, via: r.NewAPITransport()}
}

// request sends a form, or gets a page when there is none.
func (p *testBrowser) request(path string, form url.Values) (status int, location, page string) {
	p.T.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(servicetest.Context(p.T), method, "https://"+p.Addrs.Service.String()+path,
		body)
	must.Succeed(p.T, err)
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if p.from != "" {
		r.Header.Set("X-Forwarded-For", p.from)
	}
	if p.cookie != "" {
		r.AddCookie(&http.Cookie{Name: dashboard.CookieName(r.Host), Value: p.cookie})
	}
	res, err := p.via.RoundTrip(r)
	must.Succeed(p.T, err)
	defer res.Body.Close()
	for _, c := range res.Cookies() {
		if c.Name == dashboard.CookieName(r.Host) {
			p.cookie = c.Value
		}
	}
	b, err := io.ReadAll(res.Body)
	must.Succeed(p.T, err)
	return res.StatusCode, res.Header.Get("Location"), string(b)
}

func (p *testBrowser) signIn(key string) int {
	p.T.Helper()
	status, _, _ := p.request("/ui/sign-in", url.Values{"key": {key}})
	return status
}

func TestDashboard_SharesAPIListener(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	a := r.StartAgent(tunnel.Bind{URL: "http://hello.demo", Binding: "kubernetes", UpstreamProtocol: "http1"},
		"127.0.0.1:1")
	bound := servicetest.Receive(t, a.Bound, "bind")
	p := newDashboardBrowser(r)
	if status, at, _ := p.request("/", nil); status != http.StatusSeeOther || at != "/ui/" {
		t.Errorf("/ answers %d, %q", status, at)
	}
	if status, at, _ := p.request("/ui/endpoints", nil); status != http.StatusSeeOther ||
		!strings.HasPrefix(at, "/ui/sign-in?return=") {
		t.Errorf("without a sign-in: %d, %q", status, at)
	}
	if status := p.signIn(r.APIKey); status != http.StatusSeeOther || p.cookie == "" {
		t.Fatalf("signing in: %d", status)
	}
	for path, want := range map[string]string{
		"/ui/": "Overview", "/ui/endpoints": "http://hello.demo", "/ui/endpoints/" + bound.EndpointID: bound.EndpointID,
		"/ui/kubernetes-operators": "Kubernetes operators",
		"/ui/backends":             "Backends", "/ui/agents": "0.0.0-test",
		"/ui/traffic-policy/identities": "Identities",
		"/ui/api-keys":                  "API keys", "/ui/authtokens": "Authtokens",
		"/ui/events": bound.EndpointID,
	} {
		if status, _, page := p.request(path, nil); status != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: %d, without %q", path, status, want)
		}
	}
	if status, _, _ := p.request("/ui/sign-out", url.Values{}); status != http.StatusSeeOther {
		t.Errorf("signing out: %d", status)
	}
}

// TestDashboard_LimitsSignInsBehindBalancer uses up the sign-ins of one client. A trusted
// balancer's X-Forwarded-For tells clients apart; that of others does not count.
func TestDashboard_LimitsSignInsBehindBalancer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trusted []string
		other   bool // another client is limited, too, when one has used up its wrong keys
	}{"trusted": {[]string{"127.0.0.0/8"}, false}, "not trusted": {nil, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := servicetest.Start(t, func(o *service.Options) { o.Public.TrustedProxies = c.trusted })
			p := newDashboardBrowser(r)
			p.from = "198.51.100.7, 203.0.113.1" // the client may have written the first
			for range 11 {
				p.signIn("flk_guess")
			}
			if status := p.signIn("flk_guess"); status != http.StatusTooManyRequests {
				t.Errorf("the client of twelve wrong keys: %d", status)
			}
			p.from = "198.51.100.7, 203.0.113.2"
			if status := p.signIn("flk_guess"); (status == http.StatusTooManyRequests) != c.other {
				t.Errorf("another client: %d, limited is to be %t", status, c.other)
			}
			if status := p.signIn(r.APIKey); status != http.StatusSeeOther {
				t.Errorf("a right key: %d", status)
			}
		})
	}
}

// TestDashboard_SetsHSTS checks pages and redirects. localhost gets no header: it has other ports,
// of other programs.
func TestDashboard_SetsHSTS(t *testing.T) {
	t.Parallel()
	v := newDashboardBrowser(servicetest.Start(t))
	for _, path := range []string{"/", "/ui", "/ui/", "/ui/sign-in", "/endpoints"} {
		for host, want := range map[string]string{"fairlead.example.com:8443": "max-age=15552000",
			"localhost:8443": ""} {
			r, err := http.NewRequestWithContext(servicetest.Context(t), http.MethodGet,
				"https://"+v.Addrs.Service.String()+path, nil)
			must.Succeed(t, err)
			r.Host = host
			r.Header.Set("Accept", "text/html")
			res, err := v.via.RoundTrip(r)
			must.Succeed(t, err)
			_ = res.Body.Close()
			if got := res.Header.Get("Strict-Transport-Security"); got != want {
				t.Errorf("%s of %s (%d): %q, want %q", path, host, res.StatusCode, got, want)
			}
		}
	}
}
