// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestLogin_ReturnPaths redirects to the endpoint's own host for every return_to.
func TestLogin_ReturnPaths(t *testing.T) {
	t.Parallel()
	s := oidcSite(t, "return")
	b := newBrowser(t)
	b.signIn(b.visit(s.url+"/"), alice).echo(t)
	for _, to := range []string{"https://evil.example/", "//evil.example/", `/\evil.example/`, `\/evil.example`,
		"///evil.example", "/%09/evil.example", "/\t/evil.example", "/\n//evil.example", " //evil.example",
		"http:evil.example", "javascript:alert(1)", "/x\r\nSet-Cookie: a=b", "/.//evil.example", "/..//evil.example",
		"/@evil.example", "@evil.example", ".evil.example", ":443@evil.example",
		"/_fairlead/oidc/logout", "/_fairlead/oidc/login?return_to=/", "/%5cevil.example", "/%2fevil.example",
		"\\\\evil.example", "/x#@evil.example", "?x", "", strings.Repeat("/a", 4000)} {
		at := b.firstResponse(s.loginURL("oidc", "login") + "?return_to=" + url.QueryEscape(to))
		for range 10 { // the provider knows the browser and asks nothing
			next := at.header.Get("Location")
			if next == "" {
				break
			}
			u, err := at.url.Parse(next)
			must.Succeed(t, err)
			if host := u.Hostname(); host != s.host && siteOf("http://"+host) != "dex.localhost" {
				t.Errorf("return_to %q leads to %s", to, u)
				break
			}
			if at.url.Path == "/_fairlead/oidc/callback" &&
				(strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\t\r\n") ||
					strings.HasPrefix(u.Path, "/_fairlead")) {
				t.Errorf("return_to %q: Location %q", to, next)
			}
			at = b.firstResponse(u.String())
		}
		if at.status != http.StatusOK || at.url.Hostname() != s.host {
			t.Errorf("return_to %q ends with %s", to, at)
		}
	}
}

// TestSession_RefusesForeignCookies accepts a session at the host and action that created it only,
// and no cookies that neighbouring hosts have set.
func TestSession_RefusesForeignCookies(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	p := env.provider("dex")
	one, two, other := a.site("one"), a.site("two"), a.site("other")
	one.serve(always(one.oidc(p, "oidc")))
	two.serve(always(two.oidc(p, "oidc")))
	other.serve(always(other.oidc(p, "staff")))
	b := newBrowser(t)
	b.signIn(b.visit(one.url+"/"), alice).echo(t)
	session := b.session(one, "oidc")
	for _, test := range []struct {
		name    string
		at      *site
		cookies []*http.Cookie
		want    int
	}{
		{"its own", one, []*http.Cookie{{Name: "__Host-fl-oidc", Value: session}}, 200},
		{"of another endpoint", two, []*http.Cookie{{Name: "__Host-fl-oidc", Value: session}}, 401},
		{"of another action", other, []*http.Cookie{{Name: "__Host-fl-staff", Value: session}}, 401},
		{"under another name", one, []*http.Cookie{{Name: "__host-fl-oidc", Value: session}}, 401},
		{"two, one of another host", one, []*http.Cookie{{Name: "__Host-fl-oidc", Value: strings.Repeat("A", 43)},
			{Name: "__Host-fl-oidc", Value: session}}, 401},
		{"nothing", one, []*http.Cookie{{Name: "__Host-fl-oidc", Value: ""}}, 401},
		{"another's guess", one, []*http.Cookie{{Name: "__Host-fl-oidc", Value: strings.Repeat("A", 43)}}, 401},
		{"much", one, []*http.Cookie{{Name: "__Host-fl-oidc", Value: strings.Repeat("A", 5000)}}, 401},
		{"its public id", one, []*http.Cookie{{Name: "__Host-fl-oidc", Value: "as_2Nz"}}, 401},
	} {
		c := newBrowser(t)
		for _, cookie := range test.cookies {
			c.extra.Add("Cookie", cookie.Name+"="+cookie.Value)
		}
		c.extra = http.Header{"Cookie": {strings.Join(c.extra.Values("Cookie"), "; ")}}
		if got := c.fetch(test.at.url + "/"); got.status != test.want {
			t.Errorf("%s: %d, want %d", test.name, got.status, test.want)
		}
	}
	// Forged flows, and more than the limit.
	c := newBrowser(t)
	c.extra.Set("Cookie", strings.Repeat("__Host-fl-oidc-AAAAAAAA=x; ", 30)+
		"__Host-fl-oidc-x; __Host-fl-oidc-AAAAAAAB=")
	if end := c.firstResponse(one.url + "/"); end.status/100 != 3 {
		t.Errorf("forged flows: %s", end)
	}
	if end := c.firstResponse(one.loginURL("oidc", "callback") +
		"?code=x&state=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"); end.status != http.StatusForbidden {
		t.Errorf("a callback for a forged flow: %s", end)
	}
}

// session returns the token of the browser's session.
func (b *browser) session(s *site, authID string) string {
	b.t.Helper()
	for _, c := range b.jar.Cookies(parse(b.t, s.url)) {
		if c.Name == "__Host-fl-"+authID {
			return c.Value
		}
	}
	b.t.Fatalf("there is no session at %s", s.url)
	return ""
}

// TestCallback_RefusesReplays accepts callback, code and state once, in the browser of the flow,
// and makes a new token at every login.
func TestCallback_RefusesReplays(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	s, two := a.site("replay"), a.site("second")
	s.serve(always(s.oidc(env.provider("dex"), "oidc")))
	two.serve(always(two.oidc(env.provider("dex"), "oidc")))
	b := newBrowser(t)
	back := b.signIn(b.visit(s.url+"/"), alice)
	back.echo(t)
	used, ok := back.findHop("/callback")
	if !ok {
		t.Fatalf("no callback: %s", back)
	}
	first := b.session(s, "oidc")
	// With a session, a callback without a flow leads on; it makes no session in either case.
	refused := func(what string, end page) {
		t.Helper()
		isStale := end.url.Hostname() == s.host && end.header.Get("Location") == "/"
		if !isStale && (end.status != http.StatusForbidden || !strings.Contains(end.body, "ERR_FL_3015")) ||
			isStale && strings.Contains(what, "in another browser") {
			t.Errorf("%s: %s", what, end)
		}
		for _, line := range end.header.Values("Set-Cookie") {
			if strings.HasPrefix(line, "__Host-fl-oidc=") {
				t.Errorf("%s sets %s", what, line)
			}
		}
	}
	refused("the callback again", b.firstResponse(used.url.String()))
	refused("the callback in another browser", newBrowser(t).firstResponse(used.url.String()))
	fresh := b.startFlow(s, "/", "oidc") // unopened
	refused("a callback in another browser, unused", newBrowser(t).firstResponse(fresh))
	refused("a callback at another endpoint", b.firstResponse(strings.Replace(fresh, s.host, two.host, 1)))
	q := parse(t, fresh).Query()
	q.Set("code", used.url.Query().Get("code"))
	old := b.firstResponse(s.loginURL("oidc", "callback") + "?" + q.Encode())
	if old.status != http.StatusForbidden && old.status != http.StatusBadGateway {
		t.Errorf("an old code with a new state: %s", old)
	}
	q = parse(t, b.startFlow(s, "/", "oidc")).Query()
	q.Set("state", q.Get("state")[:8]+strings.Repeat("A", len(q.Get("state"))-8))
	refused("a state with the right beginning", b.firstResponse(s.loginURL("oidc", "callback")+"?"+q.Encode()))
	for _, bad := range []string{"", "?", "?state=", "?code=x", "?error=access_denied", "?state=%00&code=%00"} {
		refused("callback"+bad, b.firstResponse(s.loginURL("oidc", "callback")+bad))
	}
	state := parse(t, b.startFlow(s, "/", "oidc")).Query().Get("state")
	denied := b.firstResponse(s.loginURL("oidc", "callback") + "?error=access_denied&error_description=" +
		url.QueryEscape("<script>alert(1)</script>") + "&state=" + state)
	refused("the provider's refusal", denied)
	if strings.Contains(denied.body, "<script>alert") {
		t.Errorf("the page has the provider's text unescaped: %s", denied)
	}
	b.visit(b.startFlow(s, "/", "oidc")).echo(t)
	if again := b.session(s, "oidc"); again == first {
		t.Error("a second login keeps the first one's token")
	}
}

// TestSession_ResistsFixation makes a new session at a login, and never adopts an existing one.
func TestSession_ResistsFixation(t *testing.T) {
	t.Parallel()
	s := oidcSite(t, "fixation")
	attacker, victim := newBrowser(t), newBrowser(t)
	attacker.signIn(attacker.visit(s.url+"/"), bob).echo(t)
	known := attacker.session(s, "oidc")
	victim.jar.SetCookies(parse(t, s.url),
		[]*http.Cookie{{Name: "__Host-fl-oidc", Value: known, Path: "/", Secure: true}})
	end := victim.signIn(victim.visit(s.loginURL("oidc", "login")+"?return_to=/"), alice)
	if e := end.echo(t); e.Header.Get("Fairlead-Auth-Email") != alice.email {
		t.Errorf("after the login the upstream gets %v", e.Header)
	}
	if victim.session(s, "oidc") == known {
		t.Error("the login has adopted the existing token")
	}
	if e := attacker.visit(s.url + "/").echo(t); e.Header.Get("Fairlead-Auth-Email") != bob.email {
		t.Errorf("the attacker is %v", e.Header)
	}
}

// TestUpstream_DropsSpoofedHeaders drops identity headers of clients, in any spelling that an
// upstream could read as one.
func TestUpstream_DropsSpoofedHeaders(t *testing.T) {
	t.Parallel()
	s := newTenant(t).site("spoof")
	s.serve(rule{Expressions: []string{"!req.url.path.startsWith('/open')"},
		Actions: []action{s.oidc(env.provider("dex"), "oidc")}})
	b := newBrowser(t).http1() // which knows the header Connection
	b.signIn(b.visit(s.url+"/"), bob)
	for _, name := range []string{"Fairlead-Auth-Email", "fairlead-auth-email", "FAIRLEAD-AUTH-EMAIL",
		"Fairlead_Auth_Email", "fairlead-auth_email", "FAIRLEAD_AUTH_GROUPS", "Fairlead-Auth-User-Id",
		"Fairlead_auth-user_id",
		"Fairlead-Auth-Anything", "fairlead-x", "Fairlead.Auth.Email"} {
		b.extra = http.Header{name: {"root@example.com"},
			"Connection": {"close, " + name + ", fairlead-auth-email, Fairlead-Auth-Groups"}}
		for path, email := range map[string][]string{"/x": {bob.email}, "/open": nil} {
			e := b.fetch(s.url + path).echo(t)
			if got := e.Header.Values("Fairlead-Auth-Email"); !slices.Equal(got, email) {
				t.Errorf("%s at %s: the upstream gets %q", name, path, got)
			}
			for header, values := range e.Header {
				if slices.Contains(values, "root@example.com") {
					t.Errorf("%s at %s reaches the upstream as %s", name, path, header)
				}
			}
		}
	}
}

// TestUpstream_CannotSetLoginCookies drops cookies of the login that an upstream sets.
func TestUpstream_CannotSetLoginCookies(t *testing.T) {
	t.Parallel()
	s := oidcSite(t, "cookies")
	b := newBrowser(t)
	b.signIn(b.visit(s.url+"/"), bob).echo(t)
	b.extra["X-Set-Cookie"] = []string{"own=1; Path=/", "__Host-fl-oidc=x; Path=/; Secure",
		"__host-FL-oidc=x; Path=/; Secure", "__Host-fl-oidc-AAAAAAAA=; Path=/; Secure; Max-Age=0", " __Host-fl-oidc=x"}
	set := b.fetch(s.url + "/cookie").header.Values("Set-Cookie")
	if !slices.Equal(set, []string{"own=1; Path=/"}) {
		t.Errorf("the upstream sets %q", set)
	}
	delete(b.extra, "X-Set-Cookie")
	if e := b.visit(s.url + "/").echo(t); e.Header.Get("Cookie") != "own=1" {
		t.Errorf("the upstream gets %q", e.Header.Get("Cookie"))
	}
}
