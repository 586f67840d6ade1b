// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestLogin_ReturnPaths: for every return_to a login ends on the endpoint's own host, without a
// header that the attacker has injected.
func TestLogin_ReturnPaths(t *testing.T) {
	t.Parallel()
	s := newTenant(t).site("return")
	s.serve(always(s.oidc(world.provider("dex"), "oidc")))
	b := newBrowser(t)
	b.signIn(b.visit(s.url+"/"), alice).echo(t)
	for _, to := range []string{"https://evil.example/", "//evil.example/", `/\evil.example/`, `\/evil.example`,
		"///evil.example", "/%09/evil.example", "/\t/evil.example", "/\n//evil.example", " //evil.example",
		"http:evil.example", "javascript:alert(1)", "/x\r\nSet-Cookie: a=b", "/.//evil.example", "/..//evil.example",
		"/@evil.example", "@evil.example", ".evil.example", ":443@evil.example",
		"/_fairlead/oidc/logout", "/_fairlead/oidc/login?return_to=/", "/%5cevil.example", "/%2fevil.example",
		"\\\\evil.example", "/x#@evil.example", "?x", "", strings.Repeat("/a", 4000)} {
		at := b.step(s.at("oidc", "login") + "?return_to=" + url.QueryEscape(to))
		for range 10 { // the provider knows the browser and asks nothing
			next := at.header.Get("Location")
			if next == "" {
				break
			}
			u, err := at.url.Parse(next)
			if err != nil {
				t.Fatal(err)
			}
			if host := u.Hostname(); host != s.host && siteOf("http://"+host) != "dex.localhost" {
				t.Errorf("return_to %q leads to %s", to, u)
				break
			}
			if at.url.Path == "/_fairlead/oidc/callback" &&
				(strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\t\r\n") ||
					strings.HasPrefix(u.Path, "/_fairlead")) {
				t.Errorf("return_to %q: Location %q", to, next)
			}
			at = b.step(u.String())
		}
		if at.status != http.StatusOK || at.url.Hostname() != s.host {
			t.Errorf("return_to %q ends with %s", to, at)
		}
	}
}

// TestSession_RefusesForeignCookies: a session is valid on the host that created it; cookies set by
// neighbouring hosts authenticate no request and break no session.
func TestSession_RefusesForeignCookies(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	p := world.provider("dex")
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
		{"two, one of them tossed", one, []*http.Cookie{{Name: "__Host-fl-oidc", Value: strings.Repeat("A", 43)},
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
		if got := c.call(test.at.url + "/"); got.status != test.want {
			t.Errorf("%s: %d, want %d", test.name, got.status, test.want)
		}
	}
	// Forged flows, and more than the limit.
	c := newBrowser(t)
	c.extra.Set("Cookie", strings.Repeat("__Host-fl-oidc-AAAAAAAA=x; ", 30)+
		"__Host-fl-oidc-x; __Host-fl-oidc-AAAAAAAB=")
	if end := c.step(one.url + "/"); end.status/100 != 3 {
		t.Errorf("tossed flows: %s", end)
	}
	if end := c.step(one.at("oidc", "callback") +
		"?code=x&state=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"); end.status != http.StatusForbidden {
		t.Errorf("a callback for a tossed flow: %s", end)
	}
}

// session is the secret of the browser's session.
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

// TestCallback_RefusesReplays: neither callback nor code nor state counts twice, or in another
// browser, and a login always makes a new secret.
func TestCallback_RefusesReplays(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	s, two := a.site("replay"), a.site("second")
	s.serve(always(s.oidc(world.provider("dex"), "oidc")))
	two.serve(always(two.oidc(world.provider("dex"), "oidc")))
	b := newBrowser(t)
	back := b.signIn(b.visit(s.url+"/"), alice)
	back.echo(t)
	used, ok := back.passed("/callback")
	if !ok {
		t.Fatalf("no callback: %s", back)
	}
	first := b.session(s, "oidc")
	refused := func(what string, end page) {
		t.Helper()
		if end.status != http.StatusForbidden || !strings.Contains(end.body, "ERR_FL_3015") {
			t.Errorf("%s: %s", what, end)
		}
		for _, line := range end.header.Values("Set-Cookie") {
			if strings.HasPrefix(line, "__Host-fl-oidc=") {
				t.Errorf("%s sets %s", what, line)
			}
		}
	}
	refused("the callback again", b.step(used.url.String()))
	refused("the callback in another browser", newBrowser(t).step(used.url.String()))
	fresh := b.startFlow(s, "/", "oidc") // unopened
	refused("a callback in another browser, unused", newBrowser(t).step(fresh))
	refused("a callback at another endpoint", b.step(strings.Replace(fresh, s.host, two.host, 1)))
	q := parse(t, fresh).Query()
	q.Set("code", used.url.Query().Get("code"))
	old := b.step(s.at("oidc", "callback") + "?" + q.Encode())
	if old.status != http.StatusForbidden && old.status != http.StatusBadGateway {
		t.Errorf("an old code with a new state: %s", old)
	}
	q = parse(t, b.startFlow(s, "/", "oidc")).Query()
	q.Set("state", q.Get("state")[:8]+strings.Repeat("A", len(q.Get("state"))-8))
	refused("a state with the right beginning", b.step(s.at("oidc", "callback")+"?"+q.Encode()))
	for _, bad := range []string{"", "?", "?state=", "?code=x", "?error=access_denied", "?state=%00&code=%00"} {
		refused("callback"+bad, b.step(s.at("oidc", "callback")+bad))
	}
	state := parse(t, b.startFlow(s, "/", "oidc")).Query().Get("state")
	denied := b.step(s.at("oidc", "callback") + "?error=access_denied&error_description=" +
		url.QueryEscape("<script>alert(1)</script>") + "&state=" + state)
	refused("the provider's refusal", denied)
	if strings.Contains(denied.body, "<script>alert") {
		t.Errorf("the provider's words are in the page as they came: %s", denied)
	}
	b.visit(b.startFlow(s, "/", "oidc")).echo(t)
	if again := b.session(s, "oidc"); again == first {
		t.Error("a second login keeps the first one's secret")
	}
}

// TestSession_ResistsFixation: a login never adopts an existing session.
func TestSession_ResistsFixation(t *testing.T) {
	t.Parallel()
	s := newTenant(t).site("fixation")
	s.serve(always(s.oidc(world.provider("dex"), "oidc")))
	attacker, victim := newBrowser(t), newBrowser(t)
	attacker.signIn(attacker.visit(s.url+"/"), bob).echo(t)
	known := attacker.session(s, "oidc")
	victim.jar.SetCookies(parse(t, s.url),
		[]*http.Cookie{{Name: "__Host-fl-oidc", Value: known, Path: "/", Secure: true}})
	end := victim.signIn(victim.visit(s.at("oidc", "login")+"?return_to=/"), alice)
	if e := end.echo(t); e.Header.Get("Fairlead-Auth-Email") != alice.email {
		t.Errorf("after the login the upstream sees %v", e.Header)
	}
	if victim.session(s, "oidc") == known {
		t.Error("the login took the secret that it found")
	}
	if e := attacker.visit(s.url + "/").echo(t); e.Header.Get("Fairlead-Auth-Email") != bob.email {
		t.Errorf("the attacker is %v", e.Header)
	}
}

// TestUpstream_DropsSpoofedHeaders: only the edge sets the identity headers, in any spelling that
// an upstream could take for ours.
func TestUpstream_DropsSpoofedHeaders(t *testing.T) {
	t.Parallel()
	s := newTenant(t).site("spoof")
	s.serve(rule{Expressions: []string{"!req.url.path.startsWith('/open')"},
		Actions: []action{s.oidc(world.provider("dex"), "oidc")}})
	b := newBrowser(t).http1() // which knows the header Connection
	b.signIn(b.visit(s.url+"/"), bob)
	for _, name := range []string{"Fairlead-Auth-Email", "fairlead-auth-email", "FAIRLEAD-AUTH-EMAIL",
		"Fairlead_Auth_Email", "fairlead-auth_email", "FAIRLEAD_AUTH_GROUPS", "Fairlead-Auth-User-Id",
		"Fairlead_auth-user_id",
		"Fairlead-Auth-Anything", "fairlead-x", "Fairlead.Auth.Email"} {
		b.extra = http.Header{name: {"root@example.com"},
			"Connection": {"close, " + name + ", fairlead-auth-email, Fairlead-Auth-Groups"}}
		for path, email := range map[string][]string{"/x": {bob.email}, "/open": nil} {
			e := b.call(s.url + path).echo(t)
			if got := e.Header.Values("Fairlead-Auth-Email"); !slices.Equal(got, email) {
				t.Errorf("%s at %s: the upstream is told %q", name, path, got)
			}
			for header, values := range e.Header {
				if slices.Contains(values, "root@example.com") {
					t.Errorf("%s at %s reaches the upstream as %s", name, path, header)
				}
			}
		}
	}
}

// TestUpstream_CannotSetLoginCookies: it can set its own, and none of the login's.
func TestUpstream_CannotSetLoginCookies(t *testing.T) {
	t.Parallel()
	s := newTenant(t).site("cookies")
	s.serve(always(s.oidc(world.provider("dex"), "oidc")))
	b := newBrowser(t)
	b.signIn(b.visit(s.url+"/"), bob).echo(t)
	b.extra["X-Set-Cookie"] = []string{"own=1; Path=/", "__Host-fl-oidc=x; Path=/; Secure",
		"__host-FL-oidc=x; Path=/; Secure", "__Host-fl-oidc-AAAAAAAA=; Path=/; Secure; Max-Age=0", " __Host-fl-oidc=x"}
	set := b.call(s.url + "/cookie").header.Values("Set-Cookie")
	if !slices.Equal(set, []string{"own=1; Path=/"}) {
		t.Errorf("the upstream sets %q", set)
	}
	delete(b.extra, "X-Set-Cookie")
	if e := b.visit(s.url + "/").echo(t); e.Header.Get("Cookie") != "own=1" {
		t.Errorf("the upstream gets %q", e.Header.Get("Cookie"))
	}
}
