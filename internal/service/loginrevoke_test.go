// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// onlySession returns the only session of the account.
func (w *loginServer) onlySession() account.AppSession {
	w.T.Helper()
	all, _, err := w.OpenStore().AppSessions(servicetest.Context(w.T), w.Account, account.AppSessionFilter{},
		account.Page{Limit: 10})
	if err != nil || len(all) != 1 {
		w.T.Fatalf("%d sessions, %v", len(all), err)
	}
	return all[0]
}

// TestLogin_RevokedSessionLogsInAgain: the next request after a revocation logs in again, and asks
// the provider for the person's credentials again.
func TestLogin_RevokedSessionLogsInAgain(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	w.protect("https://app.example.com", w.policy(""), mirror)
	b := w.newLoginBrowser()
	w.idp.SetAuthTime(time.Now().Add(-time.Hour)) // the provider has a session of its own
	if a, _ := w.logIn(b, "https://app.example.com/"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if q, n := lastAuthRequest(w.idp); n != 1 || q.Get("prompt") != "" || q.Get("max_age") != "" ||
		q.Get("scope") != "openid email profile groups" {
		t.Errorf("asked %d times, the last time %v", n, q)
	}
	session := w.onlySession()
	if session.PublicURL != "https://app.example.com" || session.Device.IPAddress != "127.0.0.1" {
		t.Errorf("session %+v", session)
	}
	if _, err := w.OpenStore().Revoke(servicetest.Context(t), account.Caller{AccountID: w.Account, PrincipalID: "test"},
		account.RevokeSelector{UserID: session.User.ID}, account.RevokedByAdmin); err != nil {
		t.Fatal(err)
	}
	if a := w.request(b, "GET", "https://app.example.com/"); a.status != http.StatusSeeOther ||
		!strings.HasPrefix(a.header.Get("Location"), w.idp.URL) {
		t.Fatalf("after the revocation: %d", a.status)
	}
	a, at := w.logIn(b, "https://app.example.com/again")
	if q, n := lastAuthRequest(w.idp); a.status != 200 || at.Path != "/again" || n != 3 || q.Get("prompt") != "login" ||
		q.Get("max_age") != "0" {
		t.Errorf("%d at %s; asked %d times, the last time %v", a.status, at, n, q)
	}
	if again := w.onlySession(); again.ID == session.ID || again.User.ID == session.User.ID {
		t.Errorf("session %s of %s again", again.ID, again.User.ID)
	}
}

// lastAuthRequest returns the query of the last request to authorize, and how many there were.
func lastAuthRequest(p *oidctest.Provider) (url.Values, int) {
	all := p.AuthRequests()
	if len(all) == 0 {
		return nil, 0
	}
	return all[len(all)-1], len(all)
}
