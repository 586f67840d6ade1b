// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// oidcKinds are kinds of login with the same result: through Dex, through another provider of
// OpenID Connect, and through the provider of an oauth action that has a URL of its own.
var oidcKinds = map[string]struct {
	provider string
	action   func(s *site, p *provider) action
	auth     string
}{
	"dex":       {"dex", func(s *site, p *provider) action { return s.oidc(p, "oidc") }, "oidc"},
	"op":        {"op", func(s *site, p *provider) action { return s.oidc(p, "oidc") }, "oidc"},
	"gitlab":    {"op", func(s *site, p *provider) action { return s.oauth(p, "gitlab") }, "oauth"},
	"google":    {"op", func(s *site, p *provider) action { return s.oauth(p, "google") }, "oauth"},
	"microsoft": {"dex", func(s *site, p *provider) action { return s.oauth(p, "microsoft") }, "oauth"},
}

// oauth returns an oauth action for the named provider, whose URL is that of p.
func (s *site) oauth(p *provider, name string) action {
	s.Helper()
	client := s.register(p, "oauth")
	return action{Type: "oauth", Config: map[string]any{"provider": name, "provider_url": p.Issuer, "client_id": client,
		"client_secret": secretOf(client)}}
}

// TestOIDC_LogsIn redirects a browser to the provider and, with a session, back to the page; the
// upstream gets the identity.
func TestOIDC_LogsIn(t *testing.T) {
	t.Parallel()
	for name, kind := range oidcKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := env.provider(kind.provider)
			s := newTenant(t).site(name)
			s.serve(always(kind.action(s, p)))
			b := newBrowser(t)
			const deep = "/a/deep%2Fpage;v=1?q=a%26b&empty=&q=%C3%A9"
			asking := b.visit(s.url + deep)
			if !asking.asksPassword() || siteOf(asking.url.String()) != siteOf(p.URL) {
				t.Fatalf("the browser is not redirected to the provider: %s", asking)
			}
			if first := asking.hops[0]; first.header.Get("Cache-Control") != "no-store" ||
				first.status != http.StatusSeeOther &&
					first.status != http.StatusFound {
				t.Errorf("the redirect to the provider may be cached: %d %v", first.status, first.header)
			}
			back := b.signIn(asking, alice)
			e := back.echo(t)
			if e.URL != deep || e.Host != s.host {
				t.Errorf("the login ends at %s%s, not at the page that was asked for", e.Host, e.URL)
			}
			for header, want := range map[string]string{"Fairlead-Auth-Email": alice.email,
				"Fairlead-Auth-Name": "Alice Arnold"} {
				if got := e.Header.Values(header); !slices.Equal(got, []string{want}) {
					t.Errorf("%s: %q, want %q", header, got, want)
				}
			}
			if e.Header.Get("Fairlead-Auth-User-Id") == "" || e.Header.Get("Fairlead-Auth-Provider") == "" {
				t.Errorf("the upstream got %v", e.Header)
			}
			if strings.Contains(e.Header.Get("Cookie"), "fl-") {
				t.Errorf("the upstream got our cookies: %s", e.Header.Get("Cookie"))
			}
			checkCookies(t, back, s, kind.auth)
			if again := b.firstResponse(s.url + "/again"); again.status != http.StatusOK {
				t.Errorf("with a session the next page is %s", again)
			}
		})
	}
}

// checkCookies checks that scripts and other hosts cannot read the cookies of a login, and that the
// flow's cookie is deleted.
func checkCookies(t *testing.T, back page, s *site, authID string) {
	t.Helper()
	left := map[string]bool{}
	for _, h := range back.hops {
		if h.url.Hostname() != s.host {
			continue
		}
		for _, line := range h.header.Values("Set-Cookie") {
			c, err := http.ParseSetCookie(line)
			must.Succeed(t, err)
			if !strings.HasPrefix(c.Name, "__Host-fl-"+authID) || !c.Secure || !c.HttpOnly || c.Path != "/" ||
				c.Domain != "" ||
				c.SameSite != http.SameSiteLaxMode {
				t.Errorf("a cookie of the login: %s", line)
			}
			left[c.Name] = c.MaxAge >= 0 && c.Value != ""
		}
	}
	maps.DeleteFunc(left, func(_ string, there bool) bool { return !there })
	if len(left) != 1 || !left["__Host-fl-"+authID] {
		t.Errorf("after the login there are the cookies %v", left)
	}
}

// TestOIDC_GroupsAndAddresses passes groups to rules and upstream, and no unverified address.
func TestOIDC_GroupsAndAddresses(t *testing.T) {
	t.Parallel()
	s := newTenant(t).site("groups")
	s.serve(always(s.oidc(env.provider("dex"), "staff")),
		rule{Expressions: []string{"req.url.path.startsWith('/eng')",
			"!('engineering' in actions.oidc.identity.groups)"},
			Actions: []action{{Type: "deny"}}},
		rule{Expressions: []string{"req.url.path.startsWith('/mail')",
			"!actions.oidc.identity.email.endsWith('@example.com')"}, Actions: []action{{Type: "deny"}}})
	for _, test := range []struct {
		who          person
		eng, mail    int
		groups, name string
	}{
		{alice, 200, 200, "engineering,admins", "Alice Arnold"},
		{bob, 403, 200, "support", "Bob Brown"},
		{eve, 403, 403, "", "%C3%89ve \"%C5%92\""},
	} {
		t.Run(test.who.email, func(t *testing.T) {
			t.Parallel()
			b := newBrowser(t)
			e := b.signIn(b.visit(s.url+"/"), test.who).echo(t)
			if got := e.Header.Get("Fairlead-Auth-Groups"); got != test.groups {
				t.Errorf("groups: %q", got)
			}
			if got := e.Header.Get("Fairlead-Auth-Name"); got != test.name {
				t.Errorf("name: %q", got)
			}
			if eng, mail := b.visit(s.url+"/eng").status, b.visit(s.url+"/mail").status; eng != test.eng ||
				mail != test.mail {
				t.Errorf("/eng: %d, /mail: %d", eng, mail)
			}
			if got := e.Header.Values("Fairlead-Auth-Email"); test.mail == 403 && len(got) != 0 {
				t.Errorf("an address that is not verified reaches the upstream: %q", got)
			}
		})
	}
}

// TestLogin_RedirectsNavigationsOnly answers other requests without a session with 401.
func TestLogin_RedirectsNavigationsOnly(t *testing.T) {
	t.Parallel()
	s := oidcSite(t, "scripts")
	b := newBrowser(t)
	for range 2 {
		want := http.StatusUnauthorized
		if _, status := b.websocket(s); status == http.StatusSwitchingProtocols {
			want = http.StatusOK
		} else if status != want {
			t.Errorf("a websocket: %d", status)
		}
		for _, call := range []page{b.fetch(s.url + "/api"),
			b.fetch(s.url+"/api", "Sec-Fetch-Mode", "", "X-Requested-With", "XMLHttpRequest", "Accept", "text/html"),
			b.fetch(s.url+"/api", "Sec-Fetch-Mode", "", "Accept", "application/json"),
			b.fetch(s.url+"/api", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image", "Accept",
				"image/*,text/html")} {
			if call.status != want || call.header.Get("Location") != "" || len(call.header.Values("Set-Cookie")) > 0 {
				t.Errorf("want %d: %s %v", want, call, call.header)
			}
			if want == 401 && !strings.Contains(call.body, "ERR_FL_3011") {
				t.Errorf("no error code in the response: %s", call)
			}
		}
		if want == http.StatusOK {
			return
		}
		b.signIn(b.visit(s.url+"/"), bob).echo(t)
	}
	t.Error("with a session a websocket is still refused")
}

// TestLogin_SeveralTabs finishes the logins of one browser in any order, each at its own page,
// also the oldest of too many.
func TestLogin_SeveralTabs(t *testing.T) {
	t.Parallel()
	s := oidcSite(t, "tabs")
	b := newBrowser(t)
	tabs := make([]page, 6)
	for i := range tabs {
		tabs[i] = b.visit(fmt.Sprintf("%s/tab/%d", s.url, i))
	}
	for _, i := range []int{3, 1, 5} {
		if e := b.signIn(tabs[i], alice).echo(t); e.URL != fmt.Sprintf("/tab/%d", i) {
			t.Errorf("tab %d ends at %s", i, e.URL)
		}
	}
	if e := b.signIn(tabs[0], alice).echo(t); e.URL != "/tab/0" { // by the session of the others
		t.Errorf("the oldest of six ends at %s", e.URL)
	}
}

// TestSession_AdmitsOneEndpoint accepts a session at one host only; another host gets its own
// through the provider's session, without a password.
func TestSession_AdmitsOneEndpoint(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	p := env.provider("dex")
	one, two := a.site("one"), a.site("two")
	one.serve(always(one.oidc(p, "oidc")))
	two.serve(always(two.oidc(p, "oidc")))
	b := newBrowser(t)
	first := b.signIn(b.visit(one.url+"/x"), alice).echo(t)
	through := b.visit(two.url + "/y")
	second := through.echo(t)
	if _, asked := through.findHop("/callback"); !asked || second.URL != "/y" {
		t.Errorf("the second endpoint is not logged in to by the provider: %s", through)
	}
	if id := second.Header.Get("Fairlead-Auth-User-Id"); id == "" || id != first.Header.Get("Fairlead-Auth-User-Id") {
		t.Errorf("one person is two users: %q", id)
	}
	b.logout(one, "oidc")
	if status := b.firstResponse(two.url + "/y").status; status != http.StatusOK {
		t.Errorf("a logout from one endpoint ends the session at another: %d", status)
	}
	if status := b.firstResponse(one.url + "/x").status; status/100 != 3 {
		t.Errorf("after the logout: %d", status)
	}
}

// logout submits the logout page.
func (b *browser) logout(s *site, authID string) page {
	b.t.Helper()
	asks := b.visit(s.loginURL(authID, "logout"))
	if !strings.Contains(asks.body, "<form") || asks.status != http.StatusOK {
		b.t.Fatalf("no page to log out with: %s", asks)
	}
	return b.post(asks, form{action: ""})
}

// TestLogout_EndsSession ends a session by the page's form only, and refuses a copy of its cookie.
func TestLogout_EndsSession(t *testing.T) {
	t.Parallel()
	s := oidcSite(t, "logout")
	b := newBrowser(t)
	b.signIn(b.visit(s.url+"/"), bob).echo(t)
	kept := b.jar.Cookies(parse(t, s.url))
	if foreign := b.follow(b.navigation(http.MethodPost, parse(t, s.loginURL("oidc", "logout")), nil,
		"https://evil.example")); foreign.status != http.StatusForbidden {
		t.Errorf("another site logs the person out: %s", foreign)
	}
	b.firstResponse(s.loginURL("oidc", "logout"))
	if status := b.firstResponse(s.url + "/").status; status != http.StatusOK {
		t.Fatalf("a GET of the logout page has ended the session: %d", status)
	}
	conn, _ := b.websocket(s)
	if done := b.logout(s, "oidc"); done.status != http.StatusOK || !strings.Contains(done.body, "logged out") {
		t.Errorf("the page after the logout: %s", done)
	}
	waitClosed(t, conn)
	b.jar.SetCookies(parse(t, s.url), kept)
	if status := b.fetch(s.url + "/").status; status != http.StatusUnauthorized {
		t.Errorf("the cookie of a session that is logged out: %d", status)
	}
}

// TestLogin_RequiresMatchingRule logs in at the paths of the rule only.
func TestLogin_RequiresMatchingRule(t *testing.T) {
	t.Parallel()
	s := newTenant(t).site("some")
	s.serve(rule{Expressions: []string{"req.url.path.startsWith('/admin')"},
		Actions: []action{s.oidc(env.provider("dex"), "oidc")}})
	b := newBrowser(t)
	b.extra.Set("Fairlead-Auth-Email", "root@example.com")
	if e := b.visit(s.url + "/open").echo(t); len(e.Header.Values("Fairlead-Auth-Email")) != 0 {
		t.Errorf("an identity header of the client passes: %v", e.Header)
	}
	if e := b.signIn(b.visit(s.url+"/admin/x"), alice).echo(t); e.URL != "/admin/x" ||
		e.Header.Get("Fairlead-Auth-Email") != alice.email {
		t.Errorf("the upstream got %+v", e)
	}
}

// TestLogin_AtCloudEndpoint logs in at a cloud endpoint that forwards to an internal one.
func TestLogin_AtCloudEndpoint(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	inside := a.site("inside")
	inside.host, inside.url = fmt.Sprintf("app-%d.internal", a.n), fmt.Sprintf("http://app-%d.internal", a.n)
	inside.bindWith("internal")
	s := a.site("cloud")
	s.grant()
	doc := policy(t, always(s.oidc(env.provider("dex"), "oidc"),
		action{Type: "forward-internal", Config: map[string]any{"url": inside.url}}))
	var made struct{ ID, Msg string }
	if status := a.api("POST", "/endpoints", map[string]any{"url": s.url, "bindings": []string{"public"},
		"traffic_policy": doc}, &made); status != http.StatusCreated {
		t.Fatalf("%d %s", status, made.Msg)
	}
	b := newBrowser(t)
	if e := b.signIn(b.visit(s.url+"/cloudy"), alice).echo(t); e.URL != "/cloudy" ||
		e.Header.Get("Fairlead-Auth-Email") != alice.email {
		t.Errorf("the upstream got %+v", e)
	}
	for _, path := range []string{"/endpoints", "/endpoints/" + made.ID, "/events", "/app/users", "/app/sessions"} {
		var all map[string]any
		if status := a.api("GET", path, nil, &all); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
		if text := fmt.Sprint(all); strings.Contains(text, secretPrefix) ||
			strings.Contains(text, b.session(s, "oidc")) {
			t.Errorf("%s gives a secret out: %s", path, text)
		}
	}
}
