// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestProvider_BrokenGivesPage answers with a page that names the provider's failure at every step
// of a login. Sessions stay, and logins work again after the failure.
func TestProvider_BrokenGivesPage(t *testing.T) {
	t.Parallel()
	const discovery, token, keys = "/.well-known/openid-configuration", "/token", "/keys"
	for mode, paths := range map[string][]string{"500": {discovery, token, keys}, "garbage": {discovery, token},
		"huge": {discovery}, "stall": {discovery, token}} {
		for _, path := range paths {
			t.Run(mode+path, func(t *testing.T) {
				t.Parallel()
				p := newProvider(t, "dex")
				s := newTenant(t).site("broken")
				s.serve(always(s.oidc(p, "oidc")))
				p.fault(t, mode, path)
				b := newBrowser(t)
				end := b.visit(s.url + "/x")
				if end.asksPassword() {
					end = b.signIn(end, alice)
				}
				if end.status != http.StatusBadGateway || end.url.Hostname() != s.host ||
					!strings.Contains(end.body, "ERR_FL_3016") || strings.Contains(end.body, "<script>alert") {
					t.Errorf("the login ends with %s", end)
				}
				p.fault(t, "none", "")
				b = newBrowser(t)
				if e := b.signIn(b.visitUntilPassword(s.url+"/works"), bob).echo(t); e.URL != "/works" {
					t.Errorf("the login after the failure ends at %s", e.URL)
				}
				p.fault(t, mode, "")
				if status := b.firstResponse(s.url + "/still").status; status != http.StatusOK {
					t.Errorf("with a session while the provider fails: %d", status)
				}
			})
		}
	}
}

// TestProvider_RotatesKeys logs in with keys that are newer than the last fetch of the provider's
// keys.
func TestProvider_RotatesKeys(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "dex")
	s := newTenant(t).site("rotation")
	s.serve(always(s.oidc(p, "oidc")))
	for i, who := range []person{alice, bob, alice} {
		b := newBrowser(t)
		if e := b.signIn(b.visit(s.url+"/"), who).echo(t); e.Header.Get("Fairlead-Auth-Email") != who.email {
			t.Errorf("login %d: %v", i, e.Header)
		}
		p.control(t, "POST", "/rotate", map[string]bool{"forget": i > 0}, nil)
	}
}

// TestProvider_Requests sends PKCE, state and nonce, exchanges the code once, and renews no token.
func TestProvider_Requests(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "dex")
	s := newTenant(t).site("asked")
	s.serve(
		always(s.oidc(p, "oidc", map[string]any{"authz_url_params": map[string]string{"login_hint": "alice"},
			"scopes": []string{"openid", "email", "offline_access"}})))
	b := newBrowser(t)
	b.signIn(b.visit(s.url+"/"), alice).echo(t)
	for range 5 {
		b.visit(s.url + "/more").echo(t)
	}
	var exchanged []string
	for _, a := range p.requests(t, "/token") {
		exchanged = append(exchanged, a.GrantType)
	}
	if fmt.Sprint(exchanged) != "[authorization_code]" {
		t.Errorf("token requests: %v", exchanged)
	}
	// Dex redirects within itself, too
	auth := slices.DeleteFunc(p.requests(t, "/auth"), func(a recordedRequest) bool { return !a.Query.Has("client_id") })
	if len(auth) != 1 {
		t.Fatalf("authorization requests: %+v", auth)
	}
	q := auth[0].Query
	if q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 22 ||
		len(q.Get("nonce")) < 22 || q.Get("response_type") != "code" {
		t.Errorf("the authorization request has %v", q)
	}
	if q.Get("redirect_uri") != s.loginURL("oidc", "callback") || q.Get("login_hint") != "alice" {
		t.Errorf("the authorization request has %v", q)
	}
}

// startHostileIssuer returns the URL of a server whose discovery documents redirect to, or name,
// addresses that no tenant may reach.
func startHostileIssuer(t *testing.T) string {
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	discovery := func(path, authURL, tokenURL, keysURL string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"jwks_uri":%q,`+
				`"response_types_supported":["code"],"subject_types_supported":["public"],`+
				`"id_token_signing_alg_values_supported":["RS256"]}`,
				srv.URL+strings.TrimSuffix(path, "/"), authURL, tokenURL, keysURL)
		})
	}
	mux.Handle("/redirect/", http.RedirectHandler("http://169.254.169.254/latest/meta-data/", http.StatusFound))
	// another service of the same machine
	mux.Handle("/elsewhere/", http.RedirectHandler(env.idp.at.Control+"/providers/dex/requests", http.StatusFound))
	discovery("/endpoints/", "https://idp.example/auth", "http://169.254.169.254/token",
		"http://metadata."+domain+"/keys")
	discovery("/scheme/", "javascript:alert(1)", srv.URL+"/t", srv.URL+"/k")
	return srv.URL
}

// issuerSite serves a site of a new tenant behind a login through the issuer.
func issuerSite(t *testing.T, issuer string) *site {
	t.Helper()
	return newTenant(t).site("ssrf").serve(always(action{Type: "openid-connect",
		Config: map[string]any{"issuer_url": issuer, "client_id": "x", "client_secret": secretOf("x")}}))
}

// TestProvider_ForbiddenAddresses sends no request to an issuer, or to a redirect of it, at an
// address that no tenant may reach; the page does not reveal why.
func TestProvider_ForbiddenAddresses(t *testing.T) {
	t.Parallel()
	hostile := startHostileIssuer(t)
	issuers := []string{"https://169.254.169.254", "https://[fe80::1]", "https://10.0.0.1",
		"https://[::ffff:169.254.169.254]", "https://2852039166", "https://0xa9fea9fe", "https://[fd00:ec2::254]",
		"https://100.100.100.200", hostile + "/redirect", hostile + "/elsewhere", hostile + "/scheme"}
	for name := range forbidden {
		issuers = append(issuers, "https://"+name)
	}
	for _, issuer := range issuers {
		t.Run(issuer, func(t *testing.T) {
			t.Parallel()
			end := newBrowser(t).firstResponse(issuerSite(t, issuer).url + "/")
			if end.status != http.StatusBadGateway || !strings.Contains(end.body, "ERR_FL_3016") ||
				strings.Contains(end.body, "169.254") || strings.Contains(end.body, "dial") {
				t.Errorf("%s", end)
			}
		})
	}
}

// TestProvider_ForbiddenTokenEndpoint sends no request to a token endpoint at an address that no
// tenant may reach.
func TestProvider_ForbiddenTokenEndpoint(t *testing.T) {
	t.Parallel()
	s := issuerSite(t, startHostileIssuer(t)+"/endpoints")
	b := newBrowser(t)
	first := b.firstResponse(s.url + "/")
	to := parse(t, first.header.Get("Location"))
	if to.Hostname() != "idp.example" {
		t.Fatalf("%s", first)
	}
	end := b.firstResponse(s.loginURL("oidc", "callback") + "?code=c&state=" + to.Query().Get("state"))
	if end.status != http.StatusBadGateway || strings.Contains(end.body, "169.254") {
		t.Errorf("%s", end)
	}
}

// visitUntilPassword navigates to the URL until the provider asks for the password: the service
// waits a few seconds after a failure of the provider.
func (b *browser) visitUntilPassword(target string) page {
	b.t.Helper()
	return b.visitUntil(target, page.asksPassword)
}
