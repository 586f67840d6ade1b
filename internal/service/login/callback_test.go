// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const logoutPath = "/_fairlead/staff/logout"

// postACS posts a form to acs as the provider's page does: from another site, without cookies.
func (h *harness) postACS(form string) response {
	h.t.Helper()
	return h.browser().post("/_fairlead/staff/acs", form, "Sec-Fetch-Site", "cross-site", "Origin",
		"https://idp.example.com")
}

func TestACS_FinishesPostedLogin(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	b.get("/page")
	w.idp.authentication.InResponseTo, w.idp.authentication.Once = "id-"+w.idp.last().State, "assertion-1"
	post := w.postACS("SAMLResponse=x&RelayState=%2F%2Fevil")
	finish := post.Header().Get("Location")
	if post.Code != http.StatusSeeOther || !strings.HasPrefix(finish, "/_fairlead/staff/finish?ticket=") ||
		len(w.store.logins) != 0 {
		t.Fatalf("%d to %s", post.Code, finish)
	}
	again := w.postACS("SAMLResponse=x")
	if res := b.get(again.Header().Get("Location")); again.Code != http.StatusSeeOther || res.Code != 403 {
		t.Errorf("the assertion a second time: %d, %d", again.Code, res.Code)
	}
	if res := b.get(finish); res.Code != http.StatusSeeOther || res.Header().Get("Location") != "/page" ||
		b.get("/page").upstream == nil {
		t.Errorf("%d %s", res.Code, res.Body)
	}
	for _, target := range []string{finish, again.Header().Get("Location")} { // the browser has a session now
		if res := b.get(target); res.Header().Get("Location") != "/" || len(w.store.logins) != 1 {
			t.Errorf("the ticket or the assertion a second time: %d", res.Code)
		}
	}
	if strings.Contains(w.log.String(), "ticket=") || strings.Contains(w.log.String(), finish[len(finish)-20:]) {
		t.Errorf("the log has the ticket: %s", w.log)
	}
}

func TestFinish_RefusesInvalidTickets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]func(w *harness, b *browser) *browser{
			"in another browser": func(w *harness, _ *browser) *browser { return w.browser() },
			"in one with its own": func(w *harness, _ *browser) *browser {
				other := w.browser()
				other.get("/")
				return other
			},
			"at another host": func(_ *harness, b *browser) *browser { b.host = "other.example.com"; return b },
			"after the flow's life": func(w *harness, b *browser) *browser {
				time.Sleep(flowLifetime + time.Second)
				return b
			},
			"of another request": func(_ *harness, b *browser) *browser { clear(b.cookies); b.get("/"); return b },
		} {
			w := newHarness(t)
			b := w.browser()
			b.get("/")
			w.idp.authentication.InResponseTo = "id-" + w.idp.last().State
			finish := w.postACS("SAMLResponse=x").Header().Get("Location")
			if res := c(w, b).get(finish); res.Code != 403 || len(w.store.logins) != 0 {
				t.Errorf("%s: %d, %d logins", name, res.Code, len(w.store.logins))
			}
		}
		w := newHarness(t)
		b := w.browser()
		b.get("/")
		w.idp.authentication.InResponseTo = "id-" + w.idp.last().State
		finish := w.postACS("SAMLResponse=x").Header().Get("Location")
		if res := b.get(finish, "Sec-Fetch-Mode", "cors"); res.Code != 403 {
			t.Errorf("fetched by a script: %d", res.Code)
		}
	})
}

func TestACS_HandlesIdPInitiated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		if res := w.postACS("SAMLResponse=x"); res.Code != 403 || len(w.store.tickets) != 0 ||
			code(res) != account.CodeLoginFailed ||
			!strings.Contains(res.Body.String(), "began at the identity provider") {
			t.Errorf("not allowed: %d", res.Code)
		}
		w = newHarness(t, func(w *harness) { w.config.AllowIdPInitiated = true })
		w.idp.authentication.AuthTime = time.Now().Add(-time.Hour)
		for relay, want := range map[string]string{"%2Freports%3Fa%3Db": "/reports?a=b",
			"https%3A%2F%2Fevil.example": "/", "%2F%2Fevil.example": "/", "": "/"} {
			b := w.browser()
			res := b.get(w.postACS("SAMLResponse=x&RelayState=" + relay).Header().Get("Location"))
			if res.Header().Get("Location") != want || b.get("/").upstream == nil {
				t.Errorf("RelayState %s: %d to %q", relay, res.Code, res.Header().Get("Location"))
			}
		}
		if l := w.store.logins[0]; !l.StartedAt.Equal(time.Now().Add(-time.Hour)) {
			t.Errorf("the login started at %s", l.StartedAt)
		}
	})
}

func TestLogout_EndsSession(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	b.login("/")
	page := b.get(logoutPath)
	if page.Code != 200 || !strings.Contains(page.Body.String(), `<form method="post">`) || len(w.store.revoked) != 0 ||
		!strings.Contains(page.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Fatalf("%d %s", page.Code, page.Body)
	}
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example"},
		{"Origin", "http://app.example.com"}} {
		if res := b.post(logoutPath, "", header...); res.Code != 403 || len(w.store.revoked) != 0 ||
			b.get("/").upstream == nil {
			t.Errorf("%v: %d", header, res.Code)
		}
	}
	res := b.post(logoutPath, "", "Sec-Fetch-Site", "same-origin", "Origin", "https://app.example.com")
	if res.Code != 200 || len(b.cookies) != 0 || len(w.store.revoked) != 1 || w.store.revoked[0].SessionID != "as-1" ||
		w.store.reasons[0] != account.RevokedByLogout {
		t.Errorf("%d, cookies %v, revoked %v", res.Code, b.cookies, w.store.revoked)
	}
	if res := b.post(logoutPath, "", "Sec-Fetch-Site", "same-origin"); res.Code != 200 || len(w.store.revoked) != 1 {
		t.Errorf("without a session: %d", res.Code)
	}
	b.login("/")
	w.store.err = account.Errorf(account.CodeUnavailable, "down")
	if res := b.post(logoutPath, "", "Sec-Fetch-Site", "same-origin"); res.Code != 503 || len(b.cookies) != 1 {
		t.Errorf("while the store is down: %d", res.Code)
	}
}

func TestBackChannelLogout_EndsSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.idp.token = LogoutToken{Issuer: "https://idp", Client: "client", Subject: "ann", SessionID: "sid", ID: "jti",
			Expires: time.Now()}
		idp := w.browser()
		for name, c := range map[string]struct {
			form   string
			status int
		}{"a bad token": {"logout_token=bad", 400}, "an empty one": {"logout_token=", 400},
			"too much": {"logout_token=" + strings.Repeat("a", maxPost), 400}} {
			if res := idp.post(logoutPath, c.form); res.Code != c.status || len(w.store.revoked) != 0 {
				t.Errorf("%s: %d, %v", name, res.Code, w.store.revoked)
			}
		}
		w.store.err = account.Errorf(account.CodeUnavailable, "down")
		if res := idp.post(logoutPath, "logout_token=good"); res.Code != 503 {
			t.Errorf("while the store is down: %d", res.Code)
		}
		w.store.err, w.store.revoked, w.store.reasons = nil, nil, nil
		if res := idp.post(logoutPath, "logout_token=good"); res.Code != 200 || len(w.store.revoked) != 1 ||
			res.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v", res.Code, w.store.revoked)
		}
		if sel := w.store.revoked[0]; sel != (account.RevokeSelector{Issuer: "https://idp", Client: "client",
			ProviderSession: "sid", Subject: "ann", ReplayKey: "logout_token\x00https://idp\x00client\x00jti",
			ReplayUntil: time.Now().Add(ClockSkew)}) || w.store.reasons[0] != account.RevokedByBackChannel {
			t.Errorf("%+v %s", sel, w.store.reasons[0])
		}
		if res := idp.post(logoutPath, "logout_token=good"); res.Code != 400 || len(w.store.revoked) != 1 {
			t.Errorf("a second time: %d", res.Code)
		}
		w.idp.token = LogoutToken{Issuer: "https://idp", ID: "another"}
		if res := idp.post(logoutPath, "logout_token=good"); res.Code != 400 || len(w.store.revoked) != 1 {
			t.Errorf("for no session and no subject: %d", res.Code)
		}
	})
}

// TestBackChannelLogout_LimitsRefusedTokensOnly limits the refused tokens of one address, and not
// the accepted ones.
func TestBackChannelLogout_LimitsRefusedTokensOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		idp := w.browser()
		posts := func(n int, form func(i int) string) (statuses map[int]int) {
			statuses = map[int]int{}
			for i := range n {
				statuses[idp.post(logoutPath, form(i)).Code]++
			}
			return statuses
		}
		good := func(i int) string {
			w.idp.token = LogoutToken{
				Issuer: "https://idp", Client: "client", Subject: "ann", ID: fmt.Sprint("jti-", i), Expires: time.Now(),
			}
			return "logout_token=good"
		}
		if got := posts(300, good); got[200] != 300 || len(w.store.revoked) != 300 {
			t.Errorf("good tokens: %v", got)
		}
		if got := posts(130, func(int) string { return "logout_token=bad" }); got[400] != 100 || got[429] != 30 {
			t.Errorf("bad tokens: %v", got)
		}
		if got := posts(1, good); got[429] != 1 {
			t.Errorf("a good token after them: %v", got)
		}
		time.Sleep(time.Second)
		if got := posts(300, func(i int) string { return good(1000 + i) }); got[200] != 300 {
			t.Errorf("good tokens a second later: %v", got)
		}
		if got := posts(30, func(int) string { return "logout_token=good" }); got[400] != 10 || got[429] != 20 {
			t.Errorf("a good token again and again: %v", got)
		}
		time.Sleep(time.Second)
		large := "logout_token=" + strings.Repeat("a", maxLogoutPost)
		if got := posts(30, func(int) string { return large }); got[400] != 10 || got[429] != 20 {
			t.Errorf("large posts: %v", got)
		}
	})
}
