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
)

// untilClosed waits until the other side has closed the connection.
func untilClosed(t testing.TB, conn net.Conn) {
	t.Helper()
	if conn == nil {
		t.Fatal("there was no connection")
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection is still open")
	}
}

// stream opens a long answer and reads its beginning.
func (b *browser) stream(target string) *http.Response {
	b.t.Helper()
	r := b.navigation(http.MethodGet, parse(b.t, target), nil, "")
	for _, c := range b.jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	res, err := b.tr.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = res.Body.Close() })
	if n, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil || res.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %d, %d bytes, %v", target, res.StatusCode, n, err)
	}
	return res
}

// untilCut reads until the answer breaks off; an orderly end is not one.
func untilCut(t testing.TB, res *http.Response) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, res.Body)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the stream ended as if it were whole")
		}
	case <-time.After(patience):
		t.Error("the stream is still open")
	}
}

// TestBackChannelLogout_EndsSessions: a logout at the provider ends sessions and what they have
// open, and no other sessions.
func TestBackChannelLogout_EndsSessions(t *testing.T) {
	t.Parallel()
	p := ownProvider(t, "dex")
	s := newTenant(t).site("backchannel")
	s.serve(always(s.oidc(p, "oidc")))
	hers, his := newBrowser(t), newBrowser(t)
	hers.signIn(hers.visit(s.url+"/"), alice).echo(t)
	his.signIn(his.visit(s.url+"/"), bob).echo(t)
	conn, _ := hers.websocket(s)
	events, download := hers.stream(s.url+"/events"), hers.stream(s.url+"/stall")
	p.control(t, "POST", "/logout", map[string]string{"email": alice.email}, nil)
	untilClosed(t, conn)
	untilCut(t, events)
	untilCut(t, download)
	if status := hers.call(s.url + "/").status; status != http.StatusUnauthorized {
		t.Errorf("the session is alive: %d", status)
	}
	if again := hers.visit(s.url + "/back"); !again.asksPassword() {
		t.Errorf("the next page is %s", again)
	} else if e := hers.signIn(again, alice).echo(t); e.URL != "/back" {
		t.Errorf("the next login ends at %s", e.URL)
	}
	if status := his.step(s.url + "/").status; status != http.StatusOK {
		t.Errorf("another person was logged out: %d", status)
	}
}

// TestRevoke_EndsSessions: when the API's DELETE has answered, nothing of the person is served; the
// provider asks for the password again, although it knows the browser.
func TestRevoke_EndsSessions(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	p := ownProvider(t, "dex")
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
		if status := hers.call(s.url + "/").status; status != http.StatusUnauthorized {
			t.Errorf("%s: %d", s.url, status)
		}
	}
	untilClosed(t, hersOpen)
	untilCut(t, events)
	untilCut(t, download)
	a.upstream.waitClosed(t, "/ws", "/events", "/stall")
	if again := hers.visit(begun); !again.asksPassword() {
		t.Errorf("a login that began before the revoke ends at %s", again)
	}
	again := hers.visit(one.url + "/again")
	if !again.asksPassword() {
		t.Fatalf("the provider was not told to ask again: %s", again)
	}
	if e := hers.signIn(again, alice).echo(t); e.URL != "/again" || e.Header.Get("Fairlead-Auth-User-Id") == user {
		t.Errorf("the login after the revoke: %+v", e)
	}
	if status := his.step(one.url + "/").status; status != http.StatusOK {
		t.Errorf("another person's session: %d", status)
	}
	a.upstream.more <- struct{}{} // to the only one that still listens
	if _, err := io.ReadFull(hisOpen.Body, make([]byte, len("data: hello\n\ndata: more\n\n")-5)); err != nil {
		t.Errorf("another person's stream: %v", err)
	}
}

// startFlow begins a login and goes as far as the provider sends the browser back; it returns that
// URL, unopened.
func (b *browser) startFlow(s *site, path, authID string) string {
	b.t.Helper()
	at := b.step(s.at(authID, "login") + "?return_to=" + path)
	for range 10 {
		to := at.header.Get("Location")
		if to == "" {
			break
		}
		next, err := at.url.Parse(to)
		if err != nil {
			b.t.Fatal(err)
		}
		if next.Hostname() == s.host {
			return next.String()
		}
		at = b.step(next.String())
	}
	b.t.Fatalf("the provider does not send the browser back: %s", at)
	return ""
}
