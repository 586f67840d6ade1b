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

// TestProvider_BrokenGivesPage gives a clear page, at whichever step it breaks, and the next login
// after it was mended works; sessions do not mind.
func TestProvider_BrokenGivesPage(t *testing.T) {
	t.Parallel()
	const discovery, token, keys = "/.well-known/openid-configuration", "/token", "/keys"
	for mode, paths := range map[string][]string{"500": {discovery, token, keys}, "garbage": {discovery, token},
		"huge": {discovery}, "stall": {discovery, token}} {
		for _, path := range paths {
			t.Run(mode+path, func(t *testing.T) {
				t.Parallel()
				p := ownProvider(t, "dex")
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
				if e := b.signIn(b.untilAsked(s.url+"/mended"), bob).echo(t); e.URL != "/mended" {
					t.Errorf("the login after the repair ends at %s", e.URL)
				}
				p.fault(t, mode, "")
				if status := b.step(s.url + "/still").status; status != http.StatusOK {
					t.Errorf("a session depends on the provider: %d", status)
				}
			})
		}
	}
}

// TestProvider_RotatesKeys: a login with a key that came after the provider was asked for its keys
// works.
func TestProvider_RotatesKeys(t *testing.T) {
	t.Parallel()
	p := ownProvider(t, "dex")
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

// TestProvider_Requests: PKCE, state and nonce every time, the code exchanged once, and no
// token renewed.
func TestProvider_Requests(t *testing.T) {
	t.Parallel()
	p := ownProvider(t, "dex")
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
		t.Errorf("the provider's tokens were asked for with %v", exchanged)
	}
	// Dex sends the browser to itself, too
	auth := slices.DeleteFunc(p.requests(t, "/auth"), func(a recordedRequest) bool { return !a.Query.Has("client_id") })
	if len(auth) != 1 {
		t.Fatalf("the provider was asked %+v", auth)
	}
	q := auth[0].Query
	if q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 22 ||
		len(q.Get("nonce")) < 22 || q.Get("response_type") != "code" {
		t.Errorf("the provider was asked %v", q)
	}
	if q.Get("redirect_uri") != s.at("oidc", "callback") || q.Get("login_hint") != "alice" {
		t.Errorf("the provider was asked %v", q)
	}
}

// TestProvider_ForbiddenAddresses: an issuer, or what it names, in a place that no tenant may reach
// is not asked; the page does not say what is there.
func TestProvider_ForbiddenAddresses(t *testing.T) {
	t.Parallel()
	evil := http.NewServeMux()
	srv := httptest.NewServer(evil)
	t.Cleanup(srv.Close)
	evil.HandleFunc("/redirect/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
	})
	evil.HandleFunc("/elsewhere/", func(w http.ResponseWriter, r *http.Request) {
		// another service of the same machine
		http.Redirect(w, r, world.idp.at.Control+"/providers/dex/requests", http.StatusFound)
	})
	evil.HandleFunc("/endpoints/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"issuer":%q,"authorization_endpoint":"https://idp.example/auth",`+
				`"token_endpoint":"http://169.254.169.254/token","jwks_uri":"http://metadata.%s/keys",`+
				`"response_types_supported":["code"],"subject_types_supported":["public"],`+
				`"id_token_signing_alg_values_supported":["RS256"]}`, srv.URL+"/endpoints", domain)
	})
	evil.HandleFunc("/scheme/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"issuer":%q,"authorization_endpoint":"javascript:alert(1)","token_endpoint":%q,"jwks_uri":%q,`+
				`"response_types_supported":["code"],`+
				`"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256"]}`,
			srv.URL+"/scheme",
			srv.URL+"/t", srv.URL+"/k")
	})
	issuers := []string{"https://169.254.169.254", "https://[fe80::1]", "https://10.0.0.1",
		"https://[::ffff:169.254.169.254]", "https://2852039166", "https://0xa9fea9fe", "https://[fd00:ec2::254]",
		"https://100.100.100.200", srv.URL + "/redirect", srv.URL + "/elsewhere", srv.URL + "/scheme"}
	for name := range forbidden {
		issuers = append(issuers, "https://"+name)
	}
	for _, issuer := range issuers {
		t.Run(issuer, func(t *testing.T) {
			t.Parallel()
			s := newTenant(t).site("ssrf")
			s.serve(
				always(action{Type: "openid-connect",
					Config: map[string]any{"issuer_url": issuer, "client_id": "x", "client_secret": secretOf("x")}}))
			end := newBrowser(t).step(s.url + "/")
			if end.status != http.StatusBadGateway || !strings.Contains(end.body, "ERR_FL_3016") ||
				strings.Contains(end.body, "169.254") || strings.Contains(end.body, "dial") {
				t.Errorf("%s", end)
			}
		})
	}
	t.Run("token endpoint", func(t *testing.T) {
		t.Parallel()
		s := newTenant(t).site("ssrf")
		s.serve(
			always(action{Type: "openid-connect",
				Config: map[string]any{"issuer_url": srv.URL + "/endpoints", "client_id": "x",
					"client_secret": secretOf("x")}}))
		b := newBrowser(t)
		begun := b.step(s.url + "/")
		to := parse(t, begun.header.Get("Location"))
		if to.Hostname() != "idp.example" {
			t.Fatalf("%s", begun)
		}
		end := b.step(s.at("oidc", "callback") + "?code=c&state=" + to.Query().Get("state"))
		if end.status != http.StatusBadGateway || strings.Contains(end.body, "169.254") {
			t.Errorf("%s", end)
		}
	})
}

// untilAsked goes to the page until the provider asks for the password there: the service waits a
// few seconds before it asks a provider again that has failed.
func (b *browser) untilAsked(target string) page {
	b.t.Helper()
	return b.until(target, page.asksPassword)
}
