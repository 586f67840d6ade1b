// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// loginServer is a public service whose endpoints require a login at a provider.
type loginServer struct {
	*servicetest.PublicServer
	idp *oidctest.Provider
}

func startLogins(t *testing.T, change ...func(*service.Options)) *loginServer {
	t.Helper()
	idp := oidctest.Start(t)
	idp.Discovery = map[string]any{"authorization_response_iss_parameter_supported": true}
	idp.Person = map[string]any{"sub": "alice", "sid": "sid-alice", "email": "alice@example.com",
		"email_verified": true,
		"name":           "Alice Ä", "groups": []string{"staff", "a,b"}}
	return &loginServer{servicetest.StartPublic(t,
		append([]func(*service.Options){func(o *service.Options) { o.LoginAllow = []string{"127.0.0.1"} }},
			change...)...), idp}
}

// policy returns a traffic policy with a login at the provider; more is appended to its config.
func (w *loginServer) policy(more string) string {
	return fmt.Sprintf(
		"on_http_request:\n- actions:\n  - type: openid-connect\n    config: {issuer_url: %q, client_id: %s, "+
			"client_secret: %s, scopes: [openid, email, profile, groups]%s}\n",
		w.idp.URL, oidctest.ClientID, oidctest.ClientSecret, more)
}

// protect binds an endpoint with a login before it.
func (w *loginServer) protect(url, policy string, h http.HandlerFunc) *servicetest.Agent {
	w.T.Helper()
	a := w.StartAgent(tunnel.Bind{URL: url, Binding: "public", UpstreamURL: "http://localhost:1",
		UpstreamProtocol: "http1",
		TrafficPolicy:    policy}, servicetest.ServeHTTP(w.T, h))
	servicetest.Receive(w.T, a.Bound, "bind")
	return a
}

// mirror answers with the request line, the Fairlead headers and the cookies of the request.
func mirror(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Set-Cookie", "__Host-fl-oidc=tossed; Path=/; Secure")
	w.Header().Add("Set-Cookie", "=__host-FL-oidc=tossed; Path=/; Secure")
	w.Header().Add("Set-Cookie", "theme=dark")
	fmt.Fprintf(w, "%s %s\n", r.Method, r.URL.RequestURI())
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if strings.HasPrefix(strings.ToLower(name), "fairlead") || name == "Cookie" {
			fmt.Fprintf(w, "%s=%s\n", name, strings.Join(r.Header[name], "|"))
		}
	}
}

// newLoginBrowser returns a browser with cookies, which reaches the provider, too.
func (w *loginServer) newLoginBrowser() *http.Client {
	b := w.NewBrowser()
	b.Jar, _ = cookiejar.New(nil)
	inner := b.Transport
	b.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Hostname(), ".example.com") {
			return inner.RoundTrip(r)
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	w.T.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return b
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// response is an answer whose body was read.
type response struct {
	status int
	header http.Header
	body   string
}

// request sends one request as a browser does when it navigates, and does not follow redirects.
func (w *loginServer) request(b *http.Client, method, target string, header ...string) response {
	w.T.Helper()
	r, err := http.NewRequestWithContext(servicetest.Context(w.T), method, target, nil)
	must.Succeed(w.T, err)
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Accept", "text/html")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := b.Do(r)
	must.Succeed(w.T, err)
	defer res.Body.Close()
	return response{res.StatusCode, res.Header, servicetest.ReadAll(w.T, res.Body)}
}

// logIn navigates and follows redirects, also through the provider.
func (w *loginServer) logIn(b *http.Client, target string) (response, *url.URL) {
	w.T.Helper()
	at, err := url.Parse(target)
	must.Succeed(w.T, err)
	for range 10 {
		a := w.request(b, "GET", at.String())
		if a.status/100 != 3 {
			return a, at
		}
		at, err = at.Parse(a.header.Get("Location"))
		must.Succeed(w.T, err)
	}
	w.T.Fatalf("redirects without end, at %s", at)
	return response{}, nil
}

func cookiesOf(b *http.Client, raw string) map[string]string {
	u, _ := url.Parse(raw)
	all := map[string]string{}
	for _, c := range b.Jar.Cookies(u) {
		all[c.Name] = c.Value
	}
	return all
}

func TestLogin_SessionsHeadersAndLogout(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	w.protect("https://app.example.com", w.policy(""), mirror)
	b := w.newLoginBrowser()
	first := w.request(b, "GET", "https://app.example.com/deep/page?q=%2F&x")
	if first.status != http.StatusSeeOther || first.header.Get("Cache-Control") != "no-store" ||
		!strings.HasPrefix(first.header.Get("Location"), w.idp.URL+"/authorize?") {
		t.Fatalf("%d %v", first.status, first.header)
	}
	if c := first.header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-fl-oidc-") ||
		!strings.Contains(c, "; Path=/; Max-Age=600; HttpOnly; Secure; SameSite=Lax") {
		t.Errorf("the cookie of the flow: %s", c)
	}
	got, at := w.logIn(b, "https://app.example.com/deep/page?q=%2F&x")
	want := "GET /deep/page?q=%2F&x\nFairlead-Auth-Email=alice@example.com\n" +
		"Fairlead-Auth-Groups=staff,a%2Cb\nFairlead-Auth-Name=Alice %C3%84\n" +
		"Fairlead-Auth-Provider=" + strings.TrimPrefix(w.idp.URL, "http://")
	if got.status != 200 || at.String() != "https://app.example.com/deep/page?q=%2F&x" ||
		!strings.HasPrefix(got.body, want+"\nFairlead-Auth-User-Id=au-") {
		t.Errorf("%d at %s\n%s\nwant\n%s", got.status, at, got.body, want)
	}
	if all := got.header.Values("Set-Cookie"); len(all) != 1 || all[0] != "theme=dark" {
		t.Errorf("cookies of the upstream: %q", all)
	}
	spoofed := w.request(b, "GET", "https://app.example.com/", "Fairlead-Auth-Email", "eve@example.com",
		"Fairlead_Auth_Email",
		"eve@example.com", "FAIRLEAD-Auth_User-Id", "eve", "Cookie", "a=b")
	if strings.Contains(spoofed.body, "eve") ||
		!strings.Contains(spoofed.body, "Fairlead-Auth-Email=alice@example.com\n") {
		t.Errorf("spoofed: %s", spoofed.body)
	}
	if strings.Contains(spoofed.body, "__Host") || !strings.Contains(spoofed.body, "Cookie=a=b") {
		t.Errorf("cookies that the upstream sees: %s", spoofed.body)
	}
	// of the session, of the upstream, and of the first request's login
	if c := cookiesOf(b, "https://app.example.com"); len(c) != 3 || c["__Host-fl-oidc"] == "" {
		t.Errorf("cookies %v", c)
	}
	for _, secret := range []string{oidctest.ClientSecret, oidctest.AccessToken,
		cookiesOf(b, "https://app.example.com")["__Host-fl-oidc"], "code-", "state="} {
		if strings.Contains(w.Log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// TestLogin_ComesBackToMappedPort checks that a login ends at the port that the browser uses, and
// that its session is the endpoint's, whichever port a browser uses next.
func TestLogin_ComesBackToMappedPort(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	w.protect("https://app.example.com", w.policy(""), mirror)
	b := w.newLoginBrowser()
	const target = "https://app.example.com:30443/deep?q=1"
	began := w.request(b, "GET", target)
	to, err := url.Parse(began.header.Get("Location"))
	if err != nil || to.Query().Get("redirect_uri") != "https://app.example.com:30443/_fairlead/oidc/callback" {
		t.Errorf("the provider is to send the browser back with %s", began.header.Get("Location"))
	}
	if got, at := w.logIn(b, target); got.status != 200 || at.String() != target {
		t.Errorf("%d at %s: %s", got.status, at, got.body)
	}
	for _, other := range []string{"https://app.example.com/", "https://app.example.com:8443/"} {
		if got := w.request(b, "GET", other); got.status != 200 {
			t.Errorf("%s: %d", other, got.status)
		}
	}
}
