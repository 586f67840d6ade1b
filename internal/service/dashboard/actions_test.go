// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestSignIn_ChecksKey(t *testing.T) {
	t.Parallel()
	_, srv := newDashboard(t)
	for secret, want := range map[string]struct {
		status int
		text   string
	}{
		"flk_admin": {303, ""}, "  flk_read \n": {303, ""}, "flk_identities": {303, ""},
		"":             {400, "Paste an API key."},
		"flk_nonsense": {401, "The API key is not known."},
		"flt_anything": {401, "This is an authtoken"},
		"flk_operator": {403, "The dashboard needs admin, read or identities."},
	} {
		b := newBrowser(t, srv)
		a := b.post("/ui/sign-in", url.Values{"key": {secret}}.Encode())
		if a.status != want.status || !strings.Contains(a.body, want.text) {
			t.Errorf("signing in with %q: %d, want %d with %q", secret, a.status, want.status, want.text)
		}
		if (b.cookie[cookiePrefix] != "") != (want.status == 303) {
			t.Errorf("signing in with %q: cookie %q", secret, b.cookie[cookiePrefix])
		}
		if secret != "" && strings.Contains(a.body, strings.TrimSpace(secret)) {
			t.Errorf("signing in with %q: the page shows the secret", secret)
		}
	}
	b := newBrowser(t, srv)
	a := b.post("/ui/sign-in", "key=flk_admin")
	cookie := a.header.Get("Set-Cookie")
	for _, part := range []string{"=fld_", "Path=/", "Max-Age=43200", "HttpOnly", "Secure",
		"SameSite=Strict"} {
		if !strings.HasPrefix(cookie, "__Host-fairlead-ui~") || !strings.Contains(cookie, part) {
			t.Errorf("the cookie %s lacks %s", cookie, part)
		}
	}
	if strings.Contains(cookie, "Domain") || strings.Contains(cookie, "flk_") {
		t.Errorf("cookie %s", cookie)
	}
	first := b.cookie[cookiePrefix]
	b.post("/ui/sign-in", "key=flk_admin")
	if b.cookie[cookiePrefix] == first {
		t.Error("signing in again keeps the secret: it could have been planted")
	}
}

func TestSignIn_ReturnsToRequestedPage(t *testing.T) {
	t.Parallel()
	_, srv := newDashboard(t)
	b := newBrowser(t, srv)
	a := b.get("/ui/endpoints?q=a%26b&binding=public")
	to := a.header.Get("Location")
	if a.status != http.StatusSeeOther || !strings.HasPrefix(to, "/ui/sign-in?return=") {
		t.Fatalf("without a sign-in: %d to %q", a.status, to)
	}
	if a = b.get(to); !strings.Contains(a.body, `name="return" value="/ui/endpoints?q=a%26b&amp;binding=public"`) {
		t.Errorf("the sign-in page does not keep where to return to:\n%s", a.body)
	}
	for given, want := range map[string]string{
		"/ui/endpoints?q=a%26b": "/ui/endpoints?q=a%26b", "/ui/events": "/ui/events", "": "/ui/",
		"https://evil.example/ui/": "/ui/", "//evil.example/ui/": "/ui/", `/\evil.example`: "/ui/", "/ui//evil": "/ui/",
		"/api": "/ui/", "/ui/../x": "/ui/", "/ui/%2e%2e/endpoints": "/ui/",
		"javascript:alert(1)": "/ui/", "/ui/\r\nSet-Cookie: a=b": "/ui/", `/ui/\\evil`: "/ui/", "http:/ui/": "/ui/",
		"/ui/a?b#c": "/ui/a?b",
	} {
		a := newBrowser(t, srv).post("/ui/sign-in", url.Values{"key": {"flk_read"}, "return": {given}}.Encode())
		if got := a.header.Get("Location"); got != want {
			t.Errorf("return %q leads to %q, want %q", given, got, want)
		}
	}
	if a := b.do(http.MethodGet, "/ui/endpoints", "",
		map[string]string{RefreshHeader: "1"}); a.status != http.StatusUnauthorized {
		t.Errorf("a script without a sign-in: %d, want 401", a.status)
	}
}

func TestSignIn_Ends(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*fake, *browser){
		"the key is deleted": func(f *fake, _ *browser) { f.set(func() { f.keys = f.keys[1:] }) },
		"twelve hours pass": func(f *fake, _ *browser) {
			f.set(func() { f.now = f.now.Add(account.DashboardLife + time.Second) })
		},
		"the key expires": func(f *fake, _ *browser) {
			f.set(func() { f.keys[0].ExpiresAt = new(f.now.Add(-time.Second)) })
		},
		"signing out": func(_ *fake, b *browser) { b.post("/ui/sign-out", "") },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := newFake(testTime())
			srv := dashboardOf(t, f, nil)
			b := signedInAs(t, srv, "flk_admin")
			held := b.cookie[cookiePrefix]
			if a := b.get("/ui/endpoints"); a.status != http.StatusOK {
				t.Fatalf("signed in: %d", a.status)
			}
			end(f, b)
			b.cookie[cookiePrefix] = held // a copy of the cookie is worth nothing
			if a := b.get("/ui/endpoints"); a.status != http.StatusSeeOther ||
				!strings.HasPrefix(a.header.Get("Location"),
					"/ui/sign-in") {
				t.Errorf("afterwards: %d", a.status)
			}
			if a := b.post("/ui/traffic-policy/identities/"+f.users[0].ID+"/revoke",
				""); a.status != http.StatusSeeOther ||
				len(f.revoked) != 0 {
				t.Errorf("afterwards a form: %d, revoked %v", a.status, f.revoked)
			}
		})
	}
}

func TestSignIn_LimitsAttempts(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	client := netip.MustParseAddr("2001:db8:1:2::1")
	srv := dashboardOf(t, f, func(o *Options) {
		o.TrustedProxies, o.Limits.SignInBurst = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, 3
	})
	b := newBrowser(t, srv)
	signIn := func(key string) answer {
		return b.do(http.MethodPost, "/ui/sign-in", "key="+key, map[string]string{"X-Forwarded-For": client.String()})
	}
	for range 3 {
		if a := signIn("flk_wrong"); a.status != http.StatusUnauthorized {
			t.Fatalf("an attempt: %d", a.status)
		}
	}
	client = netip.MustParseAddr("2001:db8:1:2:ffff::9") // the same /64
	if a := signIn("flk_wrong"); a.status != http.StatusTooManyRequests ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("one attempt too many: %d", a.status)
	}
	for range 5 {
		if a := signIn("flk_admin"); a.status != http.StatusSeeOther {
			t.Errorf("the right key: %d", a.status)
		}
	}
	f.set(func() { f.now = f.now.Add(7 * time.Second) })
	for _, client = range []netip.Addr{client, netip.MustParseAddr("2001:db8:1:3::1")} {
		if a := signIn("flk_wrong"); a.status != http.StatusUnauthorized {
			t.Errorf("%s, a while later or for the first time: %d", client, a.status)
		}
	}
}

func TestForms_RefuseOtherOrigins(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	forms := []string{"/ui/sign-in", "/ui/sign-out", "/ui/agents/" + f.agents[0].ID + "/stop",
		"/ui/agents/" + f.agents[0].ID + "/restart", "/ui/api-keys/new", "/ui/authtokens/new",
		"/ui/api-keys/" + f.keys[1].ID + "/delete", "/ui/authtokens/" + f.tokens[0].ID + "/delete",
		"/ui/traffic-policy/identities/" + f.users[0].ID + "/revoke",
		"/ui/traffic-policy/identities/" + f.users[0].ID + "/sign-out",
		"/ui/traffic-policy/sessions/" + f.sessions[0].ID + "/revoke"}
	for _, path := range forms {
		for _, header := range []map[string]string{{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
			{"Sec-Fetch-Site": "", "Origin": "https://evil.example"}} {
			if a := b.do(http.MethodPost, path, "key=flk_admin&description=x&scopes=read&acl=bind:*",
				header); a.status != http.StatusForbidden {
				t.Errorf("POST %s with %v: %d, want 403", path, header, a.status)
			}
		}
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch} {
			if a := b.do(method, path, "",
				map[string]string{"Sec-Fetch-Site": "same-origin"}); a.status != http.StatusMethodNotAllowed ||
				a.header.Get("Allow") == "" {
				t.Errorf("%s %s: %d, want 405", method, path, a.status)
			}
		}
		b.get(path) // changes nothing
	}
	if len(f.revoked)+len(f.stopped) != 0 || len(f.keys) != 6 || len(f.tokens) != 4 {
		t.Errorf("something was done: revoked %v, stopped %v, %d keys, %d tokens", f.revoked, f.stopped, len(f.keys),
			len(f.tokens))
	}
	if a := b.post("/ui/sign-in", "key="+strings.Repeat("x", maxForm)); a.status !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("a form that is too large: %d", a.status)
	}
	if a := b.post("/ui/events", ""); a.status != http.StatusMethodNotAllowed {
		t.Errorf("a form for a page without one: %d", a.status)
	}
}

// TestForms_RefusePlainHTTPOrigin posts without Sec-Fetch-Site, as older browsers do: an attacker
// who answers for the host over http has another origin, and its forms are refused.
func TestForms_RefusePlainHTTPOrigin(t *testing.T) {
	t.Parallel()
	_, srv := newDashboard(t)
	b := signedInAs(t, srv, "flk_admin")
	for origin, want := range map[string]int{"https://fairlead.example.com": http.StatusSeeOther,
		"http://fairlead.example.com": http.StatusForbidden,
		"HTTP://fairlead.example.com": http.StatusForbidden, "https://evil.example": http.StatusForbidden,
		"null": http.StatusForbidden, "": http.StatusSeeOther} {
		r := httptest.NewRequest(http.MethodPost, "https://fairlead.example.com/ui/sign-out", nil)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		r.AddCookie(&http.Cookie{Name: CookieName(r.Host), Value: b.cookie[cookiePrefix]})
		w := httptest.NewRecorder()
		srv.Config.Handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("a form of %q: %d, want %d", origin, w.Code, want)
		}
	}
}

func TestPages_SetSecurityHeaders(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	style := regexp.MustCompile(`/ui/static/app\.[0-9a-f]+\.css`).FindString(b.get("/ui/").body)
	for _, path := range []string{"/ui/", "/ui/sign-in", "/ui/none", style, "/ui/static/app.js"} {
		a := b.get(path)
		csp := a.header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'",
			"frame-ancestors 'none'",
			"base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(csp, part) {
				t.Errorf("%s: the policy %q lacks %s", path, csp, part)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") {
			t.Errorf("%s: policy %q", path, csp)
		}
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin"} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if cache := a.header.Get("Cache-Control"); path != style && cache != "no-store" || path == style &&
			!strings.Contains(cache, "immutable") {
			t.Errorf("%s: Cache-Control %q", path, cache)
		}
	}
	for _, p := range shownPages(f) {
		body := b.get(p.path).body
		if regexp.MustCompile(`(?i)<style|<script>|\son[a-z]+=|\sstyle=`).MatchString(body) ||
			strings.Contains(body, `src="http`) {
			t.Errorf("%s has something inline, or of another host", p.path)
		}
	}
}

func TestRevoke_EndsSessionsAfterConfirmation(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_identities")
	alice := f.users[0]
	at := "/ui/traffic-policy/identities/" + alice.ID
	a := b.get(at + "/revoke?return=" + url.QueryEscape("/ui/traffic-policy/identities?q=ali"))
	for _, w := range []string{"Revoke Alice Amari?", "3 live sessions", "alice@example.com", "Google",
		`name="return" value="/ui/traffic-policy/identities?q=ali"`, `action="` + at + `/revoke"`} {
		if !strings.Contains(a.body, w) {
			t.Errorf("the confirmation lacks %q", w)
		}
	}
	session := f.sessions[0].ID
	if a = b.post("/ui/traffic-policy/sessions/"+session+"/revoke", ""); a.header.Get("Location") != at {
		t.Errorf("revoking a session leads to %q", a.header.Get("Location"))
	}
	if a = b.get(at); !strings.Contains(a.body, "The session has ended.") || strings.Contains(a.body, session) {
		t.Error("the page does not say that the session has ended, or still has it")
	}
	if a = b.get(at); strings.Contains(a.body, "The session has ended.") {
		t.Error("the notice stays")
	}
	a = b.post(at+"/revoke", "return="+url.QueryEscape("/ui/traffic-policy/identities?q=ali"))
	if to := a.header.Get("Location"); a.status != http.StatusSeeOther || to != "/ui/traffic-policy/identities?q=ali" {
		t.Errorf("revoking: %d to %q", a.status, to)
	}
	if a = b.do(http.MethodGet, "/ui/traffic-policy/identities", "",
		map[string]string{RefreshHeader: "1"}); strings.Contains(a.body, "is revoked") {
		t.Error("a script takes the notice away from the page")
	}
	if a = b.get("/ui/traffic-policy/identities"); !strings.Contains(a.body,
		"The identity is revoked, and 2 sessions have ended.") || strings.Contains(a.body, "Alice") {
		t.Error("the list lacks what was done, or still has the user")
	}
	want := []account.RevokeSelector{{SessionID: session}, {UserID: alice.ID}}
	if !slices.Equal(f.revoked, want) || f.callers[1] != (account.Caller{AccountID: mine, PrincipalID: f.keys[2].ID}) {
		t.Errorf("revoked %v by %v, want %v", f.revoked, f.callers, want)
	}
	if a = b.post(at+"/revoke", ""); a.status != http.StatusNotFound {
		t.Errorf("revoking once more: %d", a.status)
	}
	b.cookie[noticeCookie] = "<script>.9"
	if a = b.get("/ui/traffic-policy/identities"); strings.Contains(a.body, "<script>.") ||
		strings.Contains(a.body, `class="notice"`) {
		t.Error("a notice is shown that is none of ours")
	}
}

func TestAgents_StopAndRestart(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	at := "/ui/agents/" + f.agents[0].ID
	if a := b.get(at + "/stop"); !strings.Contains(a.body, "203.0.113.24") || !strings.Contains(a.body, "2 endpoints") {
		t.Error("the confirmation lacks its subject")
	}
	b.post(at+"/stop", "")
	if a := b.get("/ui/agents"); !strings.Contains(a.body, "The agent was told to stop.") {
		t.Error("the page does not confirm it")
	}
	b.post(at+"/restart", "")
	if want := []string{"stop " + f.agents[0].ID, "restart " + f.agents[0].ID}; !slices.Equal(f.stopped, want) {
		t.Errorf("did %v, want %v", f.stopped, want)
	}
}

func TestCredentials_CreateAndDelete(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	secretOf := func(a answer, prefix string) string {
		return regexp.MustCompile(prefix + `[A-Za-z0-9_-]{43}`).FindString(a.body)
	}

	a := b.post("/ui/api-keys/new", "description=CI&scopes=read&scopes=identities&expires=30d")
	key := f.keys[len(f.keys)-1]
	secret := secretOf(a, account.APIKeyPrefix)
	if a.status != http.StatusCreated || secret == "" || key.Description != "CI" ||
		!slices.Equal(key.Scopes, []account.Scope{"read", "identities"}) ||
		!key.ExpiresAt.Equal(f.now.Add(30*24*time.Hour)) {
		t.Errorf("a new key: %d, %+v", a.status, key)
	}
	if a.header.Get("Cache-Control") != "no-store" {
		t.Error("the secret may be kept in a cache")
	}
	for _, path := range []string{"/ui/api-keys", "/ui/events", "/ui/api-keys/" + key.ID + "/delete"} {
		if strings.Contains(b.get(path).body, secret) {
			t.Errorf("%s shows the secret again", path)
		}
	}
	a = b.post("/ui/authtokens/new",
		url.Values{"description": {"Gate"}, "acl": {"bind:http://*.demo\r\n\r\nconnect:*"}}.Encode())
	token := f.tokens[len(f.tokens)-1]
	if a.status != http.StatusCreated || secretOf(a, account.AuthtokenPrefix) == "" ||
		!slices.Equal(token.ACL, []string{"bind:http://*.demo", "connect:*"}) {
		t.Errorf("a new authtoken: %d, %+v", a.status, token)
	}
	for form, text := range map[string]string{
		"/ui/api-keys/new?description=x":                                            "At least one is required",
		"/ui/api-keys/new?scopes=read&description=" + strings.Repeat("x", 300):      "at most 255 are allowed",
		"/ui/api-keys/new?scopes=emperor":                                           "Must be admin, read",
		"/ui/api-keys/new?scopes=read&expires=never-ever":                           "Choose one of the lifetimes",
		"/ui/authtokens/new?acl=steal:everything":                                   "must be bind:",
		"/ui/authtokens/new?acl=":                                                   "At least one rule is required",
		"/ui/authtokens/new?description=kept&acl=" + url.QueryEscape("bind:nope%%"): "kept",
	} {
		path, body, _ := strings.Cut(form, "?")
		a := b.post(path, body)
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, text) ||
			!strings.Contains(a.body, "aria-invalid") && !strings.Contains(a.body, "scopes-problem") {
			t.Errorf("%s: %d, want 400 with %q", form, a.status, text)
		}
	}
	before := len(f.keys)
	b.post("/ui/api-keys/"+key.ID+"/delete", "")
	b.post("/ui/authtokens/"+token.ID+"/delete", "")
	if len(f.keys) != before-1 || !strings.Contains(b.get("/ui/authtokens").body, "The authtoken is deleted.") {
		t.Error("not deleted, or the page does not confirm it")
	}
	b.post("/ui/api-keys/"+f.keys[4].ID+"/delete", "") // the other admin
	if a := b.post("/ui/api-keys/"+f.keys[0].ID+"/delete", ""); a.status != http.StatusConflict ||
		!strings.Contains(a.body, "last admin key") {
		t.Errorf("deleting the last admin key: %d", a.status)
	}
}
