// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// saml returns a saml action for the provider, with more fields of its config.
func (s *site) saml(p *provider, more map[string]any) action {
	config := map[string]any{"idp_metadata_url": p.Metadata}
	for k, v := range more {
		config[k] = v
	}
	return action{Type: "saml", Config: config}
}

// registerServiceProvider gives the provider the metadata of the site, which must be served, and a
// shortcut for IdP-initiated logins.
func (s *site) registerServiceProvider(p *provider, relayState string) {
	s.Helper()
	metadata := newBrowser(s.TB).firstResponse(s.loginURL("saml", "metadata"))
	if metadata.status != http.StatusOK || !strings.Contains(metadata.body, s.loginURL("saml", "acs")) {
		s.Fatalf("the metadata: %s", metadata)
	}
	p.control(s.TB, "PUT", "/services/"+s.host, metadata.body, nil)
	_, entity, _ := strings.Cut(metadata.body, `entityID="`)
	entity, _, _ = strings.Cut(entity, `"`)
	p.control(s.TB, "PUT", "/shortcuts/"+s.host, map[string]any{"entity_id": entity, "relay_state": relayState}, nil)
}

// samlForm signs alice in at the provider of the page, and returns the provider's response and the
// form with which it posts the SAML response.
func (b *browser) samlForm(target string) (page, form) {
	b.t.Helper()
	sent := b.submitPassword(b.visit(target), alice)
	f, ok := sent.form("SAMLResponse")
	if !ok {
		b.t.Fatalf("the provider posts nothing: %s", sent)
	}
	return sent, f
}

func TestSAML_LogsIn(t *testing.T) {
	t.Parallel()
	p := env.provider("saml")
	s := newTenant(t).site("saml")
	s.serve(always(s.saml(p, map[string]any{"authorized_groups": []string{"engineering", "others"}})))
	s.registerServiceProvider(p, "")
	b := newBrowser(t)
	const deep = "/deep/page?q=a%26b"
	asking := b.visit(s.url + deep)
	if asking.url.Hostname() != parse(t, p.URL).Hostname() {
		t.Fatalf("the browser is not redirected to the provider: %s", asking)
	}
	back := b.signIn(asking, alice)
	e := back.echo(t)
	if e.URL != deep || e.Header.Get("Fairlead-Auth-Email") != alice.email ||
		e.Header.Get("Fairlead-Auth-Groups") != "engineering,admins" {
		t.Errorf("the upstream got %+v", e)
	}
	checkCookies(t, back, s, "saml")
	other := newBrowser(t)
	if end := other.signIn(other.visit(s.url+"/"), bob); end.status != http.StatusForbidden ||
		!strings.Contains(end.body, "ERR_FL_3015") {
		t.Errorf("a user of no authorized group: %s", end)
	}
	if _, status := newBrowser(t).websocket(s); status != http.StatusUnauthorized {
		t.Errorf("a websocket: %d", status)
	}
}

// TestSAML_RefusesReplays accepts an assertion once, in the browser that started the login.
func TestSAML_RefusesReplays(t *testing.T) {
	t.Parallel()
	p := env.provider("saml")
	s := newTenant(t).site("once")
	s.serve(always(s.saml(p, nil)))
	s.registerServiceProvider(p, "")
	b := newBrowser(t)
	sent, f := b.samlForm(s.url + "/")
	victim := newBrowser(t)
	if end := victim.post(sent, f); end.status != http.StatusForbidden || len(victim.jar.Cookies(parse(t, s.url))) > 0 {
		t.Errorf("in another browser: %s", end)
	}
	if end := b.post(sent, f); end.status != http.StatusForbidden {
		t.Errorf("used before: %s", end)
	}
	var ok bool
	sent = b.visit(s.url + "/")
	if f, ok = sent.form("SAMLResponse"); !ok { // of the provider's session
		t.Fatalf("the provider posts nothing: %s", sent)
	}
	end := b.post(sent, f)
	end.echo(t)
	finish, _ := end.findHop("/finish")
	session := fmt.Sprint(b.jar.Cookies(parse(t, s.url)))
	b.post(sent, f).echo(t) // a page that was reloaded leads on, with the session of the browser
	if again := b.firstResponse(finish.url.String()); again.header.Get("Location") != "/" {
		t.Errorf("the ticket a second time: %s", again)
	}
	if now := fmt.Sprint(b.jar.Cookies(parse(t, s.url))); now != session {
		t.Errorf("cookies %s, before %s", now, session)
	}
	f.values.Set("SAMLResponse", "PHhtbC8+")
	if again := b.post(sent, f); again.status != http.StatusForbidden {
		t.Errorf("something else: %s", again)
	}
}

// TestSAML_IdPInitiated accepts logins that start at the provider where the policy allows them, and
// redirects within the endpoint's host.
func TestSAML_IdPInitiated(t *testing.T) {
	t.Parallel()
	p := env.provider("saml")
	for name, test := range map[string]struct {
		allow  bool
		relay  string
		status int
		end    string
	}{
		"refused":       {false, "/x", http.StatusForbidden, ""},
		"admitted":      {true, "/x?y=1", http.StatusOK, "/x?y=1"},
		"no RelayState": {true, "", http.StatusOK, "/"},
		"another URL":   {true, "https://evil.example/", http.StatusOK, "/"},
		"another host":  {true, "//evil.example/", http.StatusOK, "/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTenant(t).site("initiated")
			s.serve(always(s.saml(p, map[string]any{"allow_idp_initiated": test.allow})))
			s.registerServiceProvider(p, test.relay)
			b := newBrowser(t)
			b.follow(b.navigation(http.MethodPost, parse(t, p.URL+"/login"),
				url.Values{"user": {alice.email}, "password": {alice.password}}, p.URL))
			sent := b.visit(p.URL + "/login/" + s.host)
			f, ok := sent.form("SAMLResponse")
			if !ok {
				t.Fatalf("the provider posts nothing: %s", sent)
			}
			end := b.post(sent, f)
			if end.status != test.status || end.url.Hostname() != s.host {
				t.Fatalf("%s", end)
			}
			if test.status == http.StatusOK && end.echo(t).URL != test.end {
				t.Errorf("it ends at %s", end.url)
			}
			if again := b.post(sent, f); again.status != test.status { // with the session, it leads on
				t.Errorf("a second time: %s", again)
			}
		})
	}
}

// TestSAML_ForcesReauth makes the provider ask for the password after a revocation, for
// IdP-initiated logins, too.
func TestSAML_ForcesReauth(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	p := env.provider("saml")
	s := a.site("forced")
	s.serve(always(s.saml(p, map[string]any{"allow_idp_initiated": true})))
	s.registerServiceProvider(p, "/")
	b := newBrowser(t)
	user := b.signIn(b.visit(s.url+"/"), alice).echo(t).Header.Get("Fairlead-Auth-User-Id")
	if status := a.api("DELETE", "/app/users/"+user, nil, nil); status != http.StatusNoContent {
		t.Fatalf("revoking: %d", status)
	}
	for _, from := range []string{s.url + "/again", p.URL + "/login/" + s.host} {
		at := b.visit(from)
		for range 3 {
			f, ok := at.form("SAMLResponse")
			if !ok {
				break
			}
			at = b.post(at, f)
		}
		if !at.asksPassword() {
			t.Errorf("from %s: the provider does not ask for the password: %s", from, at)
			continue
		}
		if e := b.signIn(at, alice).echo(t); e.Header.Get("Fairlead-Auth-Email") != alice.email {
			t.Errorf("%+v", e)
		}
		var users struct {
			Users []struct{ ID string } `json:"application_users"`
		}
		a.api("GET", "/app/users", nil, &users)
		for _, u := range users.Users {
			a.api("DELETE", "/app/users/"+u.ID, nil, nil)
		}
	}
}
