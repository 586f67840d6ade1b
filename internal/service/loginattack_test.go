// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/servicetest"
)

// rawStatus sends a request over a connection of its own, and returns the status of the answer.
func (w *loginServer) rawStatus(host, request string) int {
	w.T.Helper()
	c, err := tls.Dial("tcp", w.Addrs.HTTPS.String(),
		&tls.Config{ServerName: host, RootCAs: w.Roots, NextProtos: []string{"http/1.1"}})
	if err != nil {
		w.T.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(servicetest.MaxWait))
	_, _ = io.WriteString(c, request)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.T.Fatal(err)
	}
	_ = res.Body.Close()
	if c := res.Header["Set-Cookie"]; res.StatusCode < 300 && len(c) > 0 {
		w.T.Errorf("the upstream has set %q", c)
	}
	return res.StatusCode
}

// What comes without a session of the place does not reach the upstream, whatever it carries.
func TestLogin_ResistsForgery(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	secret := func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Fairlead-Auth-User-Id") == "" && r.URL.Path != "/open" {
			t.Errorf("%s %s has come through", r.Host, r.URL)
		}
		if r.Header.Get("Upgrade") != "" {
			c, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c,
				"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSet-Cookie: "+
					"__Host-fl-oidc=x\r\n\r\n")
			_ = c.Close()
		}
	}
	w.protect("https://a.example.com", w.policy(""), secret)
	w.protect("https://b.example.com", w.policy(""), secret)
	b := w.newLoginBrowser()
	if a, at := w.logIn(b, "https://a.example.com/x"); a.status != 200 || at.Path != "/x" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	token := cookiesOf(b, "https://a.example.com")["__Host-fl-oidc"]
	websocket := "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: " +
		"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nCookie: %s\r\n\r\n"
	for name, c := range map[string]struct {
		host, request string
		want          int
	}{
		"a websocket with its session": {"a.example.com",
			fmt.Sprintf(websocket, "a.example.com", "__Host-fl-oidc="+token), 101},
		"a websocket without": {"a.example.com", fmt.Sprintf(websocket, "a.example.com", "a=b"), 401},
		"a script": {"a.example.com",
			"GET / HTTP/1.1\r\nHost: a.example.com\r\nSec-Fetch-Mode: cors\r\n\r\n", 401},
		"the cookie of a on b": {"b.example.com",
			"GET / HTTP/1.1\r\nHost: b.example.com\r\nCookie: __Host-fl-oidc=" + token + "\r\n\r\n", 401},
		"a tossed cookie": {"a.example.com",
			"GET / HTTP/1.1\r\nHost: a.example.com\r\nCookie: __Host-fl-oidc=x; __Host-fl-oidc=" + token + "\r\n\r\n",
			401},
		"two lines of cookies": {"a.example.com",
			"GET / HTTP/1.1\r\nHost: a.example.com\r\nCookie: __Host-fl-oidc=x\r\nCookie: __Host-fl-oidc=" + token +
				"\r\n\r\n",
			401},
		"a path that looks like one of the login's": {"a.example.com",
			"GET /_fairlead/oidc%2fcallback HTTP/1.1\r\nHost: a.example.com\r\n\r\n", 401},
		"dots that lead to one": {"a.example.com",
			"GET /x/../_fairlead/oidc/callback HTTP/1.1\r\nHost: a.example.com\r\n\r\n", 401},
		"a preflight request": {"a.example.com",
			"OPTIONS / HTTP/1.1\r\nHost: a.example.com\r\nOrigin: https://b\r\nAccess-Control-Request-Method: " +
				"GET\r\n\r\n", 401},
		"identity headers": {"a.example.com",
			"GET / HTTP/1.1\r\nHost: a.example.com\r\nFairlead-Auth-User-Id: au-1\r\nfairlead_auth_user_id: " +
				"au-1\r\n\r\n", 401},
	} {
		if got := w.rawStatus(c.host, c.request); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A login counts once, in the browser that has begun it; each tab ends its own.
func TestLogin_RefusesBadCallbacks(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	w.protect("https://a.example.com", w.policy(""), mirror)
	b := w.newLoginBrowser()
	callback := func(path string) string {
		start := w.request(b, "GET", "https://a.example.com"+path)
		return w.request(b, "GET", start.header.Get("Location")).header.Get("Location")
	}
	one, two := callback("/1"), callback("/2")
	if a := w.request(w.newLoginBrowser(), "GET", one); a.status != 403 ||
		a.header.Get(account.CodeHeader) != string(account.CodeLoginFailed) {
		t.Errorf("in another browser: %d", a.status)
	}
	for want, target := range map[string]string{"/1": one, "/2": two} {
		if a := w.request(b, "GET", target); a.status != http.StatusSeeOther || a.header.Get("Location") != want {
			t.Errorf("%d to %q, want %s: %s", a.status, a.header.Get("Location"), want, a.body)
		}
		if a := w.request(b, "GET", target); a.status != 403 {
			t.Errorf("a second time: %d", a.status)
		}
	}
	// A code that was used already, in a flow of its own.
	w.request(b, "POST", "https://a.example.com/_fairlead/oidc/logout", "Sec-Fetch-Site", "same-origin")
	used, _ := url.Parse(one)
	fresh, _ := url.Parse(callback("/3"))
	q := fresh.Query()
	q.Set("code", used.Query().Get("code"))
	fresh.RawQuery = q.Encode()
	if a := w.request(b, "GET", fresh.String()); a.status != 403 ||
		cookiesOf(b, "https://a.example.com")["__Host-fl-oidc"] != "" {
		t.Errorf("a used code: %d", a.status)
	}
}

// Logout, the session's end and the provider's back-channel logout, on a service with a store of
// its own.
func TestLogin_SessionsEnd(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	const app, short = "https://a.example.com", "https://b.example.com"
	w.protect(app, w.policy(""), mirror)
	w.protect(short, w.policy(", max_session_duration: 1s"), mirror)
	b := w.newLoginBrowser()
	in := func(site string) bool { return w.request(b, "GET", site+"/").status == 200 }
	w.logIn(b, app+"/")
	start := w.request(b, "GET", short+"/")
	back := w.request(b, "GET", start.header.Get("Location"))
	if a := w.request(b, "GET", back.header.Get("Location")); a.status != http.StatusSeeOther ||
		cookiesOf(b, short)["__Host-fl-oidc"] == "" {
		t.Fatalf("a short login: %d", a.status)
	}
	if page := w.request(b, "GET", app+"/_fairlead/oidc/logout"); page.status != 200 ||
		!strings.Contains(page.body, "<button>Log out</button>") || !in(app) {
		t.Errorf("asking: %d", page.status)
	}
	if a := w.request(b, "POST", app+"/_fairlead/oidc/logout", "Sec-Fetch-Site", "cross-site"); a.status != 403 ||
		!in(app) {
		t.Errorf("another site's logout: %d", a.status)
	}
	if a := w.request(b, "POST", app+"/_fairlead/oidc/logout", "Sec-Fetch-Site", "same-origin"); a.status != 200 ||
		in(app) {
		t.Errorf("logout: %d", a.status)
	}
	for end := time.Now().Add(servicetest.MaxWait); in(short); {
		if time.Now().After(end) {
			t.Fatal("a session of one second does not end")
		}
	}
	if a, _ := w.logIn(b, app+"/"); a.status != 200 {
		t.Fatalf("%d", a.status)
	}
	logout := func(token string) int {
		r, err := http.NewRequestWithContext(servicetest.Context(t), "POST", app+"/_fairlead/oidc/logout",
			strings.NewReader(url.Values{"logout_token": {token}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := w.newLoginBrowser().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	claims := w.idp.LogoutClaims("alice")
	claims["sid"] = "sid-alice"
	delete(claims, "sub")
	token := w.idp.Sign(claims)
	if got := logout(token + "x"); got != 400 || !in(app) {
		t.Errorf("a broken token: %d", got)
	}
	if got := logout(token); got != 200 || in(app) {
		t.Errorf("the provider's logout: %d", got)
	}
	if got := logout(token); got != 400 {
		t.Errorf("its token a second time: %d", got)
	}
}
