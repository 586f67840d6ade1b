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
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// rawStatus sends a request over a connection of its own, and returns the status of the answer.
func (w *loginServer) rawStatus(host, request string) int {
	w.T.Helper()
	c, err := tls.Dial("tcp", w.Addrs.HTTPS.String(),
		&tls.Config{ServerName: host, RootCAs: w.Roots, NextProtos: []string{"http/1.1"}})
	must.Succeed(w.T, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(servicetest.MaxWait))
	_, _ = io.WriteString(c, request)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must.Succeed(w.T, err)
	_ = res.Body.Close()
	if c := res.Header["Set-Cookie"]; res.StatusCode < 300 && len(c) > 0 {
		w.T.Errorf("the answer sets a cookie of the login: %q", c)
	}
	return res.StatusCode
}

// websocketUpgrade is a request to upgrade, with its host and its cookies left out.
const websocketUpgrade = "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nCookie: %s\r\n\r\n"

// rawRequest is a request as text, to a host, with the status of its answer.
type rawRequest struct {
	host, text string
	want       int
}

// forgedRequests returns requests that abuse the cookie of a session at a.example.com, and one that
// uses it as it is meant.
func forgedRequests(token string) map[string]rawRequest {
	const a, b = "a.example.com", "b.example.com"
	get := func(host, path string, header ...string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(header, "\r\n"), "\r\n")
	}
	cookie := loadCookie + "=" + token
	return map[string]rawRequest{
		"websocket with its session":    {a, fmt.Sprintf(websocketUpgrade, a, cookie), 101},
		"websocket without a session":   {a, fmt.Sprintf(websocketUpgrade, a, "a=b"), 401},
		"script":                        {a, get(a, "/", "Sec-Fetch-Mode: cors"), 401},
		"cookie of another host":        {b, get(b, "/", "Cookie: "+cookie), 401},
		"tossed cookie":                 {a, get(a, "/", "Cookie: "+loadCookie+"=x; "+cookie), 401},
		"two Cookie headers":            {a, get(a, "/", "Cookie: "+loadCookie+"=x", "Cookie: "+cookie), 401},
		"encoded slash in login's path": {a, get(a, "/_fairlead/oidc%2fcallback"), 401},
		"dots to login's path":          {a, get(a, "/x/../_fairlead/oidc/callback"), 401},
		"preflight request": {a, "OPTIONS / HTTP/1.1\r\nHost: a.example.com\r\nOrigin: https://b\r\n" +
			"Access-Control-Request-Method: GET\r\n\r\n", 401},
		"identity headers": {a,
			get(a, "/", "Fairlead-Auth-User-Id: au-1", "fairlead_auth_user_id: au-1"), 401},
	}
}

// TestLogin_ResistsForgery sends requests without a session of their host: none reaches the
// upstream.
func TestLogin_ResistsForgery(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	upstream := func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Fairlead-Auth-User-Id") == "" {
			t.Errorf("%s %s reached the upstream", r.Host, r.URL)
		}
		if r.Header.Get("Upgrade") != "" {
			c, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
				"Upgrade: websocket\r\nSet-Cookie: __Host-fl-oidc=x\r\n\r\n")
			_ = c.Close()
		}
	}
	w.protect("https://a.example.com", w.policy(""), upstream)
	w.protect("https://b.example.com", w.policy(""), upstream)
	b := w.newLoginBrowser()
	if a, at := w.logIn(b, "https://a.example.com/x"); a.status != 200 || at.Path != "/x" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for name, c := range forgedRequests(cookiesOf(b, "https://a.example.com")[loadCookie]) {
		if got := w.rawStatus(c.host, c.text); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestLogin_RefusesBadCallbacks: a callback counts once, in the browser that began the login; each
// tab ends its own login.
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
		t.Errorf("a callback in another browser: %d", a.status)
	}
	for want, target := range map[string]string{"/1": one, "/2": two} {
		if a := w.request(b, "GET", target); a.status != http.StatusSeeOther || a.header.Get("Location") != want {
			t.Errorf("%d to %q, want %s: %s", a.status, a.header.Get("Location"), want, a.body)
		}
		session := cookiesOf(b, "https://a.example.com")["__Host-fl-oidc"]
		if a := w.request(b, "GET", target); a.header.Get("Location") != want || a.header.Get("Set-Cookie") != "" ||
			cookiesOf(b, "https://a.example.com")["__Host-fl-oidc"] != session {
			t.Errorf("a second time: %d, %v", a.status, a.header)
		}
	}
	// A code of an earlier login, in the callback of another.
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
