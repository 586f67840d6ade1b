// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) Start(*RequestRecord)  {}
func (noMeter) Finish(*RequestRecord) {}
func (noMeter) CountStream(string)    {}
func (noMeter) CountBytes(int, int)   {}

// newEdge makes an edge in whose account no agent is online.
func newEdge(t *testing.T, change ...func(*Options)) *Edge {
	t.Helper()
	o := Options{
		ChooseAgent: func(context.Context, *account.Endpoint, []Agent) (Agent, error) {
			return nil, &account.Error{Code: account.CodeEndpointOffline}
		},
		Meter: noMeter{}, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&o)
	}
	e := New(o)
	t.Cleanup(e.Close)
	return e
}

func httpEndpoint() *account.Endpoint {
	return &account.Endpoint{ID: "ep-1", AccountID: "ac-1", URL: "http://hello.demo", Scheme: "http",
		Host: "hello.demo",
		Port: 80, HostPort: "hello.demo:80",
		Type: account.TypeAgent, Bindings: []string{account.BindingKubernetes}}
}

func TestServeHTTP_ServesRequestsOfOtherServers(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	serve := func(o ClientInfo) *httptest.Server {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e.ServeHTTP(w, r, httpEndpoint(), o)
		}))
		t.Cleanup(srv.Close)
		return srv
	}
	ask := func(srv *httptest.Server, method, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 503 ||
			!strings.Contains(string(b), string(account.CodeEndpointOffline)) {
			t.Errorf("%s: %d %q %v", method, res.StatusCode, b, err)
		}
		return res
	}
	srv := serve(ClientInfo{})
	if res := ask(srv, "GET", ""); res.Close {
		t.Error("a connection ends after a page")
	}
	if res := ask(srv, "POST", "not read when the page is made"); !res.Close {
		t.Error("a connection goes on with an unread body")
	}
	stopping := make(chan struct{})
	close(stopping)
	if res := ask(serve(ClientInfo{Draining: stopping}), "GET", ""); !res.Close {
		t.Error("a connection goes on while the one who has it stops")
	}
	// a client has its answer before the handler returns
	for end := time.Now().Add(time.Minute); e.Live() != 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d live after the last request", e.Live())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	func() {
		defer func() {
			//nolint:errorlint // the very value is what net/http asks for
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("a request whose client left ended in %v", p)
			}
		}()
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil), httpEndpoint(),
			ClientInfo{})
	}()
	if err := e.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if res := ask(srv, "GET", ""); !res.Close {
		t.Error("a connection goes on while the edge stops")
	}
}

func TestServeHTTP_SetsForwardingHeaders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		origin     ClientInfo
		given      http.Header
		addr, want string // of X-Forwarded-For, -Proto and -Host
	}{
		"a pod": {ClientInfo{}, http.Header{"X-Forwarded-For": {"6.6.6.6"}, "X-Forwarded-Host": {"evil"}},
			"10.1.2.3:4", "10.1.2.3 http hello.demo"},
		"TLS": {ClientInfo{TLS: true, ClientIP: netip.MustParseAddr("192.0.2.7")},
			http.Header{"X_forwarded_for": {"6.6.6.6"}, "X.forwarded.host": {"evil"}}, "10.0.0.1:4",
			"192.0.2.7 https hello.demo"},
		"behind a trusted": {ClientInfo{Forwarded: true},
			http.Header{"X-Forwarded-For": {"192.0.2.7"}, "X-Forwarded-Proto": {"https"},
				"X-Forwarded-Host": {"shop.example"}},
			"10.0.0.1:4", "192.0.2.7 https shop.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := httptest.NewRequestWithContext(t.Context(), "GET", "http://hello.demo/", nil)
			in.RemoteAddr, in.Header = c.addr, c.given
			x := &exchange{info: &c.origin, r: in}
			x.setForwardingHeaders()
			p := &httputil.ProxyRequest{In: in, Out: in.Clone(t.Context())}
			for _, h := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} { // as httputil does
				p.Out.Header.Del(h)
			}
			x.rewrite(p)
			h := p.Out.Header
			if got := h.Get("X-Forwarded-For") + " " + h.Get("X-Forwarded-Proto") + " " +
				h.Get("X-Forwarded-Host"); got != c.want || h["X_forwarded_for"] != nil ||
				h["X.forwarded.host"] != nil {
				t.Errorf("%s (%v), want %s", got, h, c.want)
			}
		})
	}
}

// The secret of a session stays here also where the rule with the login does not hold, and after
// the policy has lost it.
func TestServeHTTP_DropsLoginCookies(t *testing.T) {
	t.Parallel()
	in := httptest.NewRequestWithContext(t.Context(), "GET", "https://app.example.com/open", nil)
	in.Header["Cookie"] = []string{"a=b; __Host-fl-oidc=secret; __host-fl-oidc-abcdefgh=secret",
		"__Host-fl-oidc=secret"}
	p := &httputil.ProxyRequest{In: in, Out: in.Clone(t.Context())}
	(&exchange{info: &ClientInfo{}}).rewrite(p)
	if got := p.Out.Header["Cookie"]; !slices.Equal(got, []string{"a=b"}) {
		t.Errorf("the upstream gets %q", got)
	}
}
