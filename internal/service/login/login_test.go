// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func code(r response) account.Code { return account.Code(r.Header().Get(account.CodeHeader)) }

func TestLogin_StartsFlow(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	res := w.browser().get("/a?b=c")
	if res.upstream != nil || res.Code != http.StatusSeeOther ||
		!strings.HasPrefix(res.Header().Get("Location"), "https://idp.example.com/start?") {
		t.Fatalf("%d %v", res.Code, res.Header())
	}
	if f := w.idp.last(); f.ForceReauth || f.ReturnTo != "/a?b=c" || len(f.State) < 43 ||
		strings.Contains(f.State, "a?b") || f.State == f.Nonce || f.Nonce == f.Verifier {
		t.Errorf("flow %+v", f)
	}
}

func TestLogin_MakesSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		b := w.browser()
		b.cookies["theme"] = "dark"
		back := b.login("/a?b=c")
		if back.Code != http.StatusSeeOther || back.Header().Get("Location") != "/a?b=c" || len(b.cookies) != 2 ||
			b.cookies["__Host-fl-staff"] == "" {
			t.Fatalf("%d %v, cookies %v", back.Code, back.Header(), b.cookies)
		}
		l := w.store.logins[0]
		if l.EndpointID != "ep-app.example.com" || l.URL != "https://app.example.com" ||
			!l.StartedAt.Equal(time.Now().Add(storeAhead)) ||
			l.MaxDuration != time.Hour || l.Device.IPAddress != "192.0.2.7" || l.ForceReauth {
			t.Errorf("stored %+v", l)
		}
	})
}

func TestAuthenticate_PassesIdentity(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	b.cookies["theme"] = "dark"
	b.login("/")
	res := b.get("/a", "Fairlead-Auth-Name", "Eve", "fairlead_auth_email", "eve@example.com", "Connection",
		"close, Fairlead-Auth-User-Id")
	if res.upstream == nil || res.person.ID != "au-ann" {
		t.Fatalf("%d %s", res.Code, res.Body)
	}
	for name, want := range map[string]string{"Fairlead-Auth-User-Id": "au-ann", "Fairlead-Auth-Name": "Ann",
		"Fairlead-Auth-Groups": "staff", "Fairlead-Auth-Provider": "IdP", "Cookie": "theme=dark",
		"Connection": "close"} {
		if got := res.upstream.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name := range res.upstream.Header {
		if strings.Contains(name, "_") || name == "Fairlead-Auth-Email" {
			t.Errorf("headers %v", res.upstream.Header)
		}
	}
}

// abortedRequest is set once it was aborted.
type abortedRequest struct{ atomic.Bool }

func (r *abortedRequest) Abort() { r.Store(true) }

// TestLogin_ReplacesSession ends the browser's previous session, and its open connections.
func TestLogin_ReplacesSession(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	b.login("/")
	token := b.cookies["__Host-fl-staff"]
	if b.get("/_fairlead/staff/login?return_to=%2Fx"); w.idp.last().ReturnTo != "/x" {
		t.Errorf("the login ends at %s", w.idp.last().ReturnTo)
	}
	var aborted abortedRequest
	open := w.live.Register(&aborted)
	open.SetSession("as-1")
	if b.get(w.callback()); b.cookies["__Host-fl-staff"] == token || len(w.store.sessions) != 1 || !aborted.Load() {
		t.Error("the second login keeps the session of the first, or has not ended it")
	}
}

func TestLogin_LogsNoSecrets(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	b.login("/")
	b.get("/a")
	f := w.idp.last()
	for _, secret := range []string{f.State, f.Nonce, f.Verifier, b.cookies["__Host-fl-staff"], "code="} {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// TestUnauthenticated_RedirectsNavigationsOnly answers all other requests with an error.
func TestUnauthenticated_RedirectsNavigationsOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		header http.Header
		status int
	}{
		"a navigation":            {"GET", http.Header{"Sec-Fetch-Mode": {"navigate"}}, 303},
		"a form":                  {"POST", http.Header{"Sec-Fetch-Mode": {"navigate"}}, 401},
		"an older browser's form": {"POST", http.Header{"Accept": {"text/html"}}, 401},
		"a page loaded ahead": {"GET",
			http.Header{"Sec-Fetch-Mode": {"navigate"}, "Sec-Purpose": {"prefetch;prerender"}},
			401},
		"an older browser": {"GET", http.Header{"Accept": {"text/html,*/*"}}, 303},
		"a script":         {"GET", http.Header{"Sec-Fetch-Mode": {"cors"}, "Accept": {"text/html"}}, 401},
		"an image":         {"GET", http.Header{"Sec-Fetch-Mode": {"no-cors"}}, 401},
		"an older script": {"GET", http.Header{"Accept": {"text/html"}, "X-Requested-With": {"XMLHttpRequest"}},
			401},
		"a program":        {"GET", http.Header{"Accept": {"*/*"}}, 401},
		"a program's post": {"POST", http.Header{"Accept": {"*/*"}}, 401},
		"a websocket": {"GET", http.Header{"Sec-Fetch-Mode": {"websocket"}, "Upgrade": {"websocket"}},
			401},
		"a websocket as navigation": {"GET", http.Header{"Sec-Fetch-Mode": {"navigate"}, "Upgrade": {"websocket"}},
			401},
		"an update": {"DELETE", http.Header{"Sec-Fetch-Mode": {"navigate"}}, 401},
		"a preflight request": {"OPTIONS",
			http.Header{"Origin": {"https://b"}, "Access-Control-Request-Method": {"PUT"}},
			401},
	} {
		w := newHarness(t)
		r := httptest.NewRequest(c.method, "/x", nil)
		r.Header = c.header
		if res := w.browser().do(r); res.Code != c.status || res.upstream != nil || c.status == 401 &&
			code(res) != account.CodeLoginNeeded || res.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d", name, res.Code)
		}
	}
}

// TestUnauthenticated_AnswersFormPost answers with a page: a redirect would drop the fields.
func TestUnauthenticated_AnswersFormPost(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	res := b.post("/form", "a=b", "Sec-Fetch-Mode", "navigate")
	if text := res.Body.String(); res.Code != http.StatusUnauthorized || code(res) != account.CodeLoginNeeded ||
		!strings.Contains(text, "not passed on") ||
		!strings.Contains(text, "https://app.example.com/_fairlead/staff/login") {
		t.Errorf("%d %s", res.Code, res.Body)
	}
	if len(b.cookies) != 0 || len(w.idp.flows) != 0 {
		t.Error("a flow was started")
	}
	b.login("/")
	if res := b.post("/form", "a=b", "Sec-Fetch-Mode", "navigate"); res.upstream == nil {
		t.Errorf("after the login: %d %s", res.Code, res.Body)
	}
}

// TestLogin_ErrorPagesLinkEndpoint checks that every error page of a login names the URL to start
// again from.
func TestLogin_ErrorPagesLinkEndpoint(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	b.get("/")
	for what, res := range map[string]response{
		"a refusal":     b.get(strings.Replace(w.callback(), "code=good", "code=bad", 1)),
		"no login":      b.get("/_fairlead/staff/callback?code=good&state=x"),
		"an empty call": b.get("/_fairlead/staff/callback"),
	} {
		if !strings.Contains(res.Body.String(), "Open https://app.example.com ") || res.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", what, res.Code, res.Body)
		}
	}
}

func TestUnauthenticated_PassesPreflight(t *testing.T) {
	t.Parallel()
	w := newHarness(t, func(w *harness) { w.config.AllowCORSPreflight = true })
	r := httptest.NewRequest(http.MethodOptions, "/x", nil)
	r.Header = http.Header{"Origin": {"https://b"}, "Access-Control-Request-Method": {"PUT"},
		"Fairlead-Auth-Email": {"eve"}, "Cookie": {"__Host-fl-staff=x; a=b"}}
	res := w.browser().do(r)
	if res.upstream == nil || res.person != nil || res.upstream.Header.Get("Fairlead-Auth-Email") != "" ||
		res.upstream.Header.Get("Cookie") != "a=b" {
		t.Errorf("%d %v", res.Code, res.upstream)
	}
	for _, header := range []http.Header{{"Origin": {"https://b"}}, {"Access-Control-Request-Method": {"PUT"}},
		{"Origin": {"https://b"}, "Access-Control-Request-Method": {"PUT"}, "Upgrade": {"x"}}} {
		r := httptest.NewRequest(http.MethodOptions, "/x", nil)
		r.Header = header
		if res := w.browser().do(r); res.upstream != nil {
			t.Errorf("%v passes", header)
		}
	}
}

// TestAuthenticate_RefusesInvalidSessions passes no request without a session of this action, and
// none while the store is unavailable.
func TestAuthenticate_RefusesInvalidSessions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *harness, b *browser)
		status int
	}{
		"the store is down": {func(w *harness, _ *browser) {
			w.store.err = account.Errorf(account.CodeUnavailable, "down")
		}, 503},
		"the store fails": {func(w *harness, _ *browser) { w.store.err = errors.New("disk on fire") }, 503},
		"revoked":         {func(w *harness, _ *browser) { clear(w.store.sessions) }, 303},
		"revoked while it is read": {func(w *harness, _ *browser) {
			w.store.onRead = func(id string) {
				w.live.Abort([]string{id})
			}
		}, 303},
		"the cookie of another host": {func(_ *harness, b *browser) { b.host = "other.example.com" }, 303},
		"of another client":          {func(w *harness, _ *browser) { w.idp.scope = "another client" }, 303},
		"with another auth_id": {func(w *harness, b *browser) {
			w.config.AuthID = "staff2"
			b.cookies["__Host-fl-staff2"] = b.cookies["__Host-fl-staff"]
		}, 303},
		"a token that is none": {func(_ *harness, b *browser) { b.cookies["__Host-fl-staff"] = "x" }, 303},
		"another token": {func(_ *harness, b *browser) {
			b.cookies["__Host-fl-staff"] = randomToken()
		}, 303},
		"a token written differently": {func(_ *harness, b *browser) { b.cookies["__Host-fl-staff"] += "=" }, 303},
		"no member of the groups": {func(w *harness, _ *browser) {
			w.config.AuthorizedGroups = []string{"admins"}
		}, 403},
	} {
		w := newHarness(t)
		b := w.browser()
		b.login("/")
		if res := b.get("/"); res.upstream == nil {
			t.Fatalf("%s: %d before", name, res.Code)
		}
		c.change(w, b)
		if w.config.AuthID != "staff" { // browser.do knows the cookies of staff only
			b.cookies = map[string]string{"__Host-fl-staff2": b.cookies["__Host-fl-staff2"]}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if res := b.do(r); res.upstream != nil || res.Code != 401 {
				t.Errorf("%s: %d", name, res.Code)
			}
			continue
		}
		if res := b.get("/"); res.Code != c.status || res.upstream != nil {
			t.Errorf("%s: %d, want %d; passed: %v", name, res.Code, c.status, res.upstream != nil)
		}
	}
}

// TestAuthenticate_RefusesDuplicateCookies ignores both of two session cookies: a sibling host or a
// man in the middle has set one of them.
func TestAuthenticate_RefusesDuplicateCookies(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b, eve := w.browser(), w.browser()
	b.login("/")
	eve.login("/")
	for _, order := range [][]*browser{{b, eve}, {eve, b}} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Cookie", fmt.Sprintf("__Host-fl-staff=%s; __Host-fl-staff=%s",
			order[0].cookies["__Host-fl-staff"],
			order[1].cookies["__Host-fl-staff"]))
		if res := w.browser().do(r); res.upstream != nil || res.Code != 401 {
			t.Errorf("%d", res.Code)
		}
	}
}

func TestServeReserved(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	b.login("/")
	for target, want := range map[string]int{
		"GET /_fairlead/staff/": 404, "GET /_fairlead/staff/x": 404, "GET /_fairlead/staff/callback/": 404,
		"POST /_fairlead/staff/callback": 405, "GET /_fairlead/staff/acs": 405,
		"POST /_fairlead/staff/login": 405, "PUT /_fairlead/staff/logout": 405, "GET /_fairlead/staff/metadata": 200,
		"GET /_fairlead/staff/callback": 403, "GET /_fairlead/staff/finish": 403,
		"GET /_fairlead/staff/finish?ticket=x": 403, "GET /_fairlead/other/callback": 200, "GET /_fairlead/staff": 200,
	} {
		method, path, _ := strings.Cut(target, " ")
		res := b.do(httptest.NewRequest(method, path, nil))
		if res.Code != want || (res.upstream != nil) != (want == 200 && !strings.Contains(path, "metadata")) {
			t.Errorf("%s: %d, want %d; passed: %v", target, res.Code, want, res.upstream != nil)
		}
	}
}

func TestHandler_LimitsSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		refused := func(target string) (n int) {
			for range 130 {
				if res := w.browser().get(target); code(res) == account.CodeRateLimited && res.Code == 429 &&
					res.Header().Get("Retry-After") != "" {
					n++
				}
			}
			return n
		}
		for _, target := range []string{"/", "/_fairlead/staff/callback"} {
			if n := refused(target); n != 30 {
				t.Errorf("%s: %d of 130 refused, want 30", target, n)
			}
		}
		time.Sleep(time.Minute)
		if n := refused("/"); n != 30 {
			t.Errorf("a minute later: %d of 130 refused, want 30", n)
		}
	})
}

// TestLogin_RefusesPeopleOverLimit checks that the page names the account's limit of users, and not
// its number.
func TestLogin_RefusesPeopleOverLimit(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	w.store.err = account.Errorf(account.CodeLimit, "the account has 7 application users, which is its limit")
	b := w.browser()
	b.get("/")
	if res := b.get(w.callback()); res.Code != 403 || !strings.Contains(res.Body.String(),
		"No more people can log in here") || strings.Contains(res.Body.String(), "7 application") {
		t.Errorf("%d %s", res.Code, res.Body)
	}
}

// TestLogin_NeedsStoreClock starts no login without the store's time: it could not be compared with
// revocations.
func TestLogin_NeedsStoreClock(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	w.store.clockErr = errors.New("the database is unavailable")
	if res := w.browser().get("/"); res.Code != 503 || res.Header().Get("Location") != "" {
		t.Errorf("%d to %q, want 503", res.Code, res.Header().Get("Location"))
	}
}
