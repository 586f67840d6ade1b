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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// noMeter is a Meter that counts nothing.
type noMeter struct{}

func (noMeter) Start(*RequestRecord)  {}
func (noMeter) Finish(*RequestRecord) {}
func (noMeter) CountStream(string)    {}
func (noMeter) CountBytes(int, int)   {}

// noAgents are the Agents of an account in which no agent is online.
type noAgents struct{}

func (noAgents) ChooseAgent(context.Context, *account.Endpoint, time.Duration, bool, []Agent) (Agent, error) {
	return nil, &account.Error{Code: account.CodeEndpointOffline}
}

func (noAgents) ChooseTunnel(context.Context, string, map[string]string, []Agent) (Agent, error) {
	return nil, &account.Error{Code: account.CodeEndpointOffline, Msg: "no labelled tunnel is online"}
}

// fakeEndpoints are Endpoints that a test reads; a nil function finds nothing.
type fakeEndpoints struct {
	byID  func(ctx context.Context, accountID, id string) (*account.Endpoint, error)
	byURL func(ctx context.Context, accountID, url string) (*account.Endpoint, error)
	pool  func(ctx context.Context, ep *account.Endpoint) ([]account.Endpoint, error)
}

func (f *fakeEndpoints) Endpoint(ctx context.Context, accountID, id string) (*account.Endpoint, error) {
	if f.byID == nil {
		return nil, &account.Error{Code: account.CodeUnavailable}
	}
	return f.byID(ctx, accountID, id)
}

func (f *fakeEndpoints) InternalEndpoint(ctx context.Context, accountID, url string) (*account.Endpoint, error) {
	if f.byURL == nil {
		return nil, &account.Error{Code: account.CodeNotFound}
	}
	return f.byURL(ctx, accountID, url)
}

func (f *fakeEndpoints) ListPool(ctx context.Context, ep *account.Endpoint) ([]account.Endpoint, error) {
	if f.pool == nil {
		return nil, nil
	}
	return f.pool(ctx, ep)
}

// newEdge makes an edge in whose account no agent is online.
func newEdge(t *testing.T, change ...func(*Options)) *Edge {
	t.Helper()
	o := Options{
		Agents: noAgents{}, Meter: noMeter{}, Logger: slog.New(slog.DiscardHandler),
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

// serveOffline starts a server whose requests e serves, for an endpoint without an agent.
func serveOffline(t *testing.T, e *Edge, info ClientInfo) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.ServeHTTP(w, r, httpEndpoint(), info)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// expectOffline sends a request and checks that the answer is the page of an offline endpoint. It
// reports whether the connection ends after it.
func expectOffline(t *testing.T, srv *httptest.Server, method, body string) (ends bool) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL, strings.NewReader(body))
	must.Succeed(t, err)
	res, err := srv.Client().Do(req)
	must.Succeed(t, err)
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 503 ||
		!strings.Contains(string(b), string(account.CodeEndpointOffline)) {
		t.Errorf("%s: %d %q %v", method, res.StatusCode, b, err)
	}
	return res.Close
}

func TestServeHTTP_KeepsConnections(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	srv := serveOffline(t, e, ClientInfo{})
	if expectOffline(t, srv, "GET", "") {
		t.Error("a connection ends after a page")
	}
	if !expectOffline(t, srv, "POST", "not read when the page is made") {
		t.Error("a connection goes on with an unread body")
	}
	stopping := make(chan struct{})
	close(stopping)
	if !expectOffline(t, serveOffline(t, e, ClientInfo{Draining: stopping}), "GET", "") {
		t.Error("a connection goes on while its server stops")
	}
	e.BeginStopping()
	if !expectOffline(t, srv, "GET", "") {
		t.Error("a connection goes on while the edge is about to stop")
	}
	wait.Until(t, "the end of the last request", func() bool { return e.Live() == 0 })
	if err := e.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if !expectOffline(t, srv, "GET", "") {
		t.Error("a connection goes on while the edge stops")
	}
}

func TestServeHTTP_AbortsWhenClientLeaves(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer func() {
		//nolint:errorlint // the very value is what net/http asks for
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("a request whose client left ended in %v", p)
		}
		if e.Live() != 0 {
			t.Errorf("%d live after it", e.Live())
		}
	}()
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil), httpEndpoint(),
		ClientInfo{})
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
			c.origin.setForwardingHeaders(in)
			p := &httputil.ProxyRequest{In: in, Out: in.Clone(t.Context())}
			for _, h := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} { // as httputil does
				p.Out.Header.Del(h)
			}
			new(delivery).rewrite(p)
			h := p.Out.Header
			if got := h.Get("X-Forwarded-For") + " " + h.Get("X-Forwarded-Proto") + " " +
				h.Get("X-Forwarded-Host"); got != c.want || h["X_forwarded_for"] != nil ||
				h["X.forwarded.host"] != nil {
				t.Errorf("%s (%v), want %s", got, h, c.want)
			}
		})
	}
}

// TestServeHTTP_DropsLoginCookies checks that the secret of a session does not reach the upstream,
// also where the rule with the login does not hold, and after the policy has lost it.
func TestServeHTTP_DropsLoginCookies(t *testing.T) {
	t.Parallel()
	in := httptest.NewRequestWithContext(t.Context(), "GET", "https://app.example.com/open", nil)
	in.Header["Cookie"] = []string{"a=b; __Host-fl-oidc=secret; __host-fl-oidc-abcdefgh=secret",
		"__Host-fl-oidc=secret"}
	p := &httputil.ProxyRequest{In: in, Out: in.Clone(t.Context())}
	new(delivery).rewrite(p)
	if got := p.Out.Header["Cookie"]; !slices.Equal(got, []string{"a=b"}) {
		t.Errorf("the upstream gets %q", got)
	}
}
