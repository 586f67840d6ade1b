// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// waitClosed waits until the other side has closed the connection.
func waitClosed(t testing.TB, conn net.Conn) {
	t.Helper()
	if conn == nil {
		t.Fatal("there was no connection")
	}
	_ = conn.SetDeadline(time.Now().Add(maxWait))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection is still open")
	}
}

// stream starts a long response and reads its first 5 bytes.
func (b *browser) stream(target string) *http.Response {
	b.t.Helper()
	r := b.navigation(http.MethodGet, parse(b.t, target), nil, "")
	for _, c := range b.jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	res, err := b.tr.RoundTrip(r)
	must.Succeed(b.t, err)
	b.t.Cleanup(func() { _ = res.Body.Close() })
	if n, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil || res.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %d, %d bytes, %v", target, res.StatusCode, n, err)
	}
	return res
}

// waitAborted reads until the response is aborted; a complete response fails the test.
func waitAborted(t testing.TB, res *http.Response) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, res.Body)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the stream ended as a complete response")
		}
	case <-time.After(maxWait):
		t.Error("the stream is still open")
	}
}

// TestBackChannelLogout_EndsSessions ends the sessions of a logout at the provider and their open
// connections, and no other sessions.
func TestBackChannelLogout_EndsSessions(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "dex")
	s := newTenant(t).site("backchannel")
	s.serve(always(s.oidc(p, "oidc")))
	hers, his := newBrowser(t), newBrowser(t)
	hers.signIn(hers.visit(s.url+"/"), alice).echo(t)
	his.signIn(his.visit(s.url+"/"), bob).echo(t)
	conn, _ := hers.websocket(s)
	events, download := hers.stream(s.url+"/events"), hers.stream(s.url+"/stall")
	p.control(t, "POST", "/logout", map[string]string{"email": alice.email}, nil)
	waitClosed(t, conn)
	waitAborted(t, events)
	waitAborted(t, download)
	if status := hers.fetch(s.url + "/").status; status != http.StatusUnauthorized {
		t.Errorf("with the session: %d", status)
	}
	if again := hers.visit(s.url + "/back"); !again.asksPassword() {
		t.Errorf("the next page is %s", again)
	} else if e := hers.signIn(again, alice).echo(t); e.URL != "/back" {
		t.Errorf("the next login ends at %s", e.URL)
	}
	if status := his.firstResponse(s.url + "/").status; status != http.StatusOK {
		t.Errorf("another person was logged out: %d", status)
	}
}

// TestRevoke_EndsSessions ends all sessions and connections of a user before the API's DELETE
// responds. The provider then asks for the password although it has a session.
func TestRevoke_EndsSessions(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	p := newProvider(t, "dex")
	one, two := a.site("one"), a.site("two")
	one.serve(always(one.oidc(p, "oidc")))
	two.serve(always(two.oidc(p, "oidc")))
	hers, his := newBrowser(t), newBrowser(t)
	user := hers.signIn(hers.visit(one.url+"/"), alice).echo(t).Header.Get("Fairlead-Auth-User-Id")
	hers.visit(two.url + "/").echo(t)
	his.signIn(his.visit(one.url+"/"), bob).echo(t)
	hersOpen, _ := hers.websocket(one)
	hisOpen := his.stream(one.url + "/events")
	events, download := hers.stream(one.url+"/events"), hers.stream(two.url+"/stall")
	begun := hers.startFlow(two, "/begun", "oidc") // a login that began before the revoke
	var sessions struct {
		Sessions []struct {
			PublicURL string `json:"public_url"`
			User      struct{ ID string }
		} `json:"application_sessions"`
	}
	if status := a.api("GET", "/app/sessions", nil, &sessions); status != http.StatusOK || len(sessions.Sessions) != 3 {
		t.Fatalf("%d: %+v", status, sessions)
	}
	if status := a.api("DELETE", "/app/users/"+user, nil, nil); status != http.StatusNoContent {
		t.Fatalf("revoking: %d", status)
	}
	for _, s := range []*site{one, two} {
		if status := hers.fetch(s.url + "/").status; status != http.StatusUnauthorized {
			t.Errorf("%s: %d", s.url, status)
		}
	}
	waitClosed(t, hersOpen)
	waitAborted(t, events)
	waitAborted(t, download)
	a.upstream.waitClosed(t, "/ws", "/events", "/stall")
	if again := hers.visit(begun); !again.asksPassword() {
		t.Errorf("a login that began before the revoke ends at %s", again)
	}
	again := hers.visit(one.url + "/again")
	if !again.asksPassword() {
		t.Fatalf("the provider does not ask for the password: %s", again)
	}
	if e := hers.signIn(again, alice).echo(t); e.URL != "/again" || e.Header.Get("Fairlead-Auth-User-Id") == user {
		t.Errorf("the login after the revoke: %+v", e)
	}
	if status := his.firstResponse(one.url + "/").status; status != http.StatusOK {
		t.Errorf("another person's session: %d", status)
	}
	a.upstream.more <- struct{}{} // to the only open stream
	if _, err := io.ReadFull(hisOpen.Body, make([]byte, len("data: hello\n\ndata: more\n\n")-5)); err != nil {
		t.Errorf("another person's stream: %v", err)
	}
}

// startFlow starts a login in a browser with a session at the provider, and returns the callback
// URL without requesting it.
func (b *browser) startFlow(s *site, path, authID string) string {
	b.t.Helper()
	at := b.firstResponse(s.loginURL(authID, "login") + "?return_to=" + path)
	for range 10 {
		to := at.header.Get("Location")
		if to == "" {
			break
		}
		next, err := at.url.Parse(to)
		must.Succeed(b.t, err)
		if next.Hostname() == s.host {
			return next.String()
		}
		at = b.firstResponse(next.String())
	}
	b.t.Fatalf("the provider does not send the browser back: %s", at)
	return ""
}
