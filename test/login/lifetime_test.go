// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net"
	"net/http"
	"testing"
)

// TestSession_Ends closes the open connections of a session at its maximum duration or idle
// timeout, and redirects the next request to the login.
func TestSession_Ends(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]map[string]any{"maximum": {"max_session_duration": "3s"},
		"idle": {"idle_session_timeout": "3s"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTenant(t).site("ends")
			s.serve(always(s.oidc(env.provider("dex"), "oidc", config)))
			b := newBrowser(t)
			waitClosed(t, b.openAfterLogin(s))
			if status := b.fetch(s.url + "/").status; status != http.StatusUnauthorized {
				t.Errorf("with an ended session: %d", status)
			}
			again := b.visit(s.url + "/again") // the provider's session still exists
			if _, asked := again.findHop("/callback"); !asked || again.echo(t).URL != "/again" {
				t.Errorf("the login after it: %s", again)
			}
		})
	}
}

// openAfterLogin logs in and opens a websocket. It tries again when the session has ended before
// that, on a slow machine.
func (b *browser) openAfterLogin(s *site) net.Conn {
	b.t.Helper()
	for range 10 {
		p := b.visit(s.url + "/")
		if p.asksPassword() {
			b.signIn(p, alice)
		}
		if conn, status := b.websocket(s); status == http.StatusSwitchingProtocols {
			return conn
		}
	}
	b.t.Fatal("every session ends before it can be used")
	return nil
}

// TestSession_AfterPolicyChange keeps sessions when other actions of the policy change, and ends
// them when the login action's client changes.
func TestSession_AfterPolicyChange(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	p := env.provider("dex")
	s := a.site("policy")
	s.grant()
	respond := func(text string) action {
		return action{Type: "custom-response",
			Config: map[string]any{"status_code": 200, "body": text + " ${actions.oidc.identity.name}"}}
	}
	first := s.oidc(p, "oidc")
	second := s.oidc(p, "oidc")
	other := s.register(p, "other")
	second.Config["client_id"], second.Config["client_secret"] = other, secretOf(other)
	p.control(t, "PUT", "/clients", map[string]any{"id": other, "secret": secretOf(other),
		"redirect_uris": []string{s.loginURL("oidc", "callback")}}, nil)
	var made struct{ ID, Msg string }
	if status := a.api("POST", "/endpoints", map[string]any{"url": s.url, "bindings": []string{"public"},
		"traffic_policy": policy(t, always(first, respond("one")))}, &made); status != http.StatusCreated {
		t.Fatalf("%d %s", status, made.Msg)
	}
	change := func(rules ...rule) {
		t.Helper()
		if status := a.api("PATCH", "/endpoints/"+made.ID, map[string]any{"traffic_policy": policy(t, rules...)},
			&made); status != http.StatusOK {
			t.Fatalf("%d %s", status, made.Msg)
		}
	}
	b := newBrowser(t)
	if end := b.signIn(b.visit(s.url+"/"), alice); end.body != "one Alice Arnold" {
		t.Fatalf("%s", end)
	}
	change(always(first, respond("two")))
	b.visitUntil(s.url+"/", func(p page) bool { return p.body == "two Alice Arnold" })
	change(always(second, respond("three")))
	loggedIn := false
	b.visitUntil(s.url+"/", func(p page) bool { // a new policy applies within a second
		_, asked := p.findHop("/callback")
		loggedIn = loggedIn || asked
		return p.body == "three Alice Arnold"
	})
	if !loggedIn {
		t.Error("a session survives a change of the client")
	}
}
