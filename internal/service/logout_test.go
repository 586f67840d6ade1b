// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// loggedIn reports whether the browser has a session at the site.
func (w *loginServer) loggedIn(b *http.Client, site string) bool {
	w.T.Helper()
	return w.request(b, "GET", site+"/").status == 200
}

func TestLogin_LogoutEndsSession(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	const app = "https://a.example.com"
	w.protect(app, w.policy(""), mirror)
	b := w.newLoginBrowser()
	w.logIn(b, app+"/")
	if page := w.request(b, "GET", app+"/_fairlead/oidc/logout"); page.status != 200 ||
		!strings.Contains(page.body, "<button>Log out</button>") || !w.loggedIn(b, app) {
		t.Errorf("the logout page: %d", page.status)
	}
	if a := w.request(b, "POST", app+"/_fairlead/oidc/logout", "Sec-Fetch-Site", "cross-site"); a.status != 403 ||
		!w.loggedIn(b, app) {
		t.Errorf("another site's logout: %d", a.status)
	}
	if a := w.request(b, "POST", app+"/_fairlead/oidc/logout", "Sec-Fetch-Site", "same-origin"); a.status != 200 ||
		w.loggedIn(b, app) {
		t.Errorf("logout: %d", a.status)
	}
}

func TestLogin_SessionExpires(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	const app = "https://b.example.com"
	w.protect(app, w.policy(", max_session_duration: 1s"), mirror)
	b := w.newLoginBrowser()
	start := w.request(b, "GET", app+"/")
	callback := w.request(b, "GET", start.header.Get("Location"))
	if a := w.request(b, "GET", callback.header.Get("Location")); a.status != http.StatusSeeOther ||
		cookiesOf(b, app)[loadCookie] == "" {
		t.Fatalf("a login for one second: %d", a.status)
	}
	servicetest.Eventually(t, "a session of one second ends", func() bool { return !w.loggedIn(b, app) })
}

// newLogoutRequest returns the provider's request that posts a token to the back-channel logout of
// the site.
func newLogoutRequest(t testing.TB, site, token string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(servicetest.Context(t), "POST", site+"/_fairlead/oidc/logout",
		strings.NewReader(url.Values{"logout_token": {token}}.Encode()))
	must.Succeed(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// postLogoutToken posts a token to the back-channel logout of the site and returns the status.
func (w *loginServer) postLogoutToken(site, token string) int {
	w.T.Helper()
	res, err := w.newLoginBrowser().Do(newLogoutRequest(w.T, site, token))
	must.Succeed(w.T, err)
	_ = res.Body.Close()
	return res.StatusCode
}

func TestLogin_BackChannelLogoutEndsSession(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	const app = "https://a.example.com"
	w.protect(app, w.policy(""), mirror)
	b := w.newLoginBrowser()
	if a, _ := w.logIn(b, app+"/"); a.status != 200 {
		t.Fatalf("%d", a.status)
	}
	claims := w.idp.LogoutClaims("alice")
	claims["sid"] = "sid-alice"
	delete(claims, "sub")
	token := w.idp.Sign(claims)
	if got := w.postLogoutToken(app, token+"x"); got != 400 || !w.loggedIn(b, app) {
		t.Errorf("a broken token: %d", got)
	}
	if got := w.postLogoutToken(app, token); got != 200 || w.loggedIn(b, app) {
		t.Errorf("the provider's logout: %d", got)
	}
	if got := w.postLogoutToken(app, token); got != 400 {
		t.Errorf("its token a second time: %d", got)
	}
}
