// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// openRedirects are return paths that lead to another host after a login.
var openRedirects = []string{
	"", "//evil.example", "///evil.example", `/\evil.example`, `\\evil.example`, `\/evil.example`,
	"https://evil.example",
	"https:evil.example", "HTTPS://app.example.com", "javascript:alert(1)",
	"data:text/html,x", "evil.example", "@evil.example", ".evil.example", "/\t/evil.example", "/\n/evil.example",
	"/\r\nLocation: https://evil.example", "\t//evil.example", " //evil.example",
	"/ /evil", "/\x00", "/\x7f", "/é", "/\u2028", "/\u202e", "/%zz", "?x", "#x", "/_fairlead/staff/logout",
	"/_fairlead",
	"/_fairlead/staff/callback?code=x", "/%5ffairlead/x",
	"/x/../_fairlead/staff/logout", "/x/%2e%2e/_fairlead/staff/logout", "/x/.%2E/_fairlead/staff/logout",
	"/x%2f..%2f_fairlead/staff/logout", `/x/..\_fairlead\staff\logout`, "/x/..%5c_fairlead/x",
	"/./_fairlead/staff/logout",
	"/.//_fairlead/staff/logout", "/x//../../_fairlead/staff/logout", "/../_fairlead/staff/logout",
	"/x/../%5Ffairlead/staff/logout", "/x/../_fairlead?y", "/_fairlead//../x", "/_fairlead/x/..", "/x;y/../_fairlead/",
	"/" + strings.Repeat("a", maxReturnPath),
}

func TestReturnPath(t *testing.T) {
	t.Parallel()
	for _, given := range openRedirects {
		if got := returnPath(given); got != "/" {
			t.Errorf("%q returns to %q", given, got)
		}
	}
	for _, given := range []string{"/", "/a", "/a/b?c=d&e", "/a?next=https://b", "/a//b", "/.//b", "/a/../b", "/a%2fb",
		"/a/_fairlead/b",
		"/_fairlead/../b", "/a?b=/../_fairlead/", "/%5cevil.example", "/a:b", "/a@b", "/?//b", `/a?b=\`} {
		if got := returnPath(given); got != given {
			t.Errorf("%q returns to %q", given, got)
		}
	}
	if got := returnPath("/a#b"); got != "/a" {
		t.Errorf("a fragment: %q", got)
	}
}

// withoutDots removes the dot segments of a path as browsers do (WHATWG URL).
func withoutDots(path string) string {
	var kept []string
	all := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, segment := range all {
		last := i == len(all)-1
		switch strings.ReplaceAll(strings.ToLower(segment), "%2e", ".") {
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		case ".":
		default:
			kept = append(kept, segment)
			continue
		}
		if last {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// FuzzReturnPath checks that a browser stays on the host, and off reserved paths, for any return
// path.
func FuzzReturnPath(f *testing.F) {
	for _, s := range openRedirects {
		f.Add(s)
	}
	base := &url.URL{Scheme: "https", Host: "app.example.com", Path: "/_fairlead/staff/callback"}
	f.Fuzz(func(t *testing.T, given string) {
		got := returnPath(given)
		// As browsers do: tabs and line breaks are dropped, a backslash is a slash.
		read := strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/").Replace(strings.Trim(got, " \x00"))
		to, err := base.Parse(read)
		if err != nil || to.Host != base.Host || to.Scheme != base.Scheme || strings.HasPrefix(read, "//") ||
			!strings.HasPrefix(got, "/") {
			t.Errorf("%q returns to %q, which is %v, %v", given, got, to, err)
		} else if before, _, _ := strings.Cut(read, "?"); strings.HasPrefix(withoutDots(before), account.ReservedPath) {
			t.Errorf("%q returns to %q, a path of a login", given, got)
		}
	})
}

// FuzzCookies checks that arbitrary cookies authenticate no request, and that no login cookie goes
// upstream.
func FuzzCookies(f *testing.F) {
	for _, s := range []string{
		"__Host-fl-staff=x", "a=b; __Host-fl-staff=x; c=d", `__Host-fl-staff="x"`, "=__Host-fl-staff=x",
		"__host-FL-staff=x",
		"__Host-fl-staff", ";;;=;", "__Host-fl-staff-12345678=AQ",
		" \t__Host-fl-x = y", "a=\"__Host-fl-staff=x\"", "__Host-fl-staff=" + randomToken(),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		w := newHarness(t)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["Cookie"] = []string{line}
		if res := w.browser().do(r); res.upstream != nil {
			t.Errorf("%q authenticates", line)
		}
		h := http.Header{"Cookie": {line}}
		trafficpolicy.DropLoginCookies(h)
		for _, c := range (&http.Request{Header: h}).Cookies() {
			if strings.HasPrefix(strings.ToLower(c.Name), "__host-fl-") {
				t.Errorf("%q leaves %q", line, h["Cookie"])
			}
		}
	})
}

// TestFlow_KeepsOnePerTab finishes the flows of several tabs, the latest maxFlows of them.
func TestFlow_KeepsOnePerTab(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		b := w.browser()
		for _, path := range []string{"/1", "/2", "/3", "/4", "/5", "/6", "/7"} {
			b.get(path)
			time.Sleep(time.Second)
			if len(b.cookies) > maxFlows {
				t.Errorf("%d cookies", len(b.cookies))
			}
		}
		callback := func(i int) response {
			return b.get("/_fairlead/staff/callback?code=good&state=" + w.idp.flows[i].State)
		}
		if res := callback(0); code(res) != account.CodeLoginFailed || len(w.store.logins) != 0 ||
			!strings.Contains(res.Body.String(), "Open https://app.example.com/1 to begin again") {
			t.Errorf("a flow that was given up, without a session: %d %s", res.Code, res.Body)
		}
		// the last three have no flow any more, and the browser a session
		for _, i := range []int{2, 3, 4, 5, 6, 0, 1, 2} {
			res := callback(i)
			if got, want := res.Header().Get("Location"), fmt.Sprint("/", i+1); res.Code != http.StatusSeeOther ||
				got != want {
				t.Errorf("tab %d: %d, to %q, want %q", i+1, res.Code, got, want)
			}
		}
		if len(b.cookies) != 1 || len(w.store.logins) != 5 {
			t.Errorf("cookies %v, %d logins", b.cookies, len(w.store.logins))
		}
	})
}

// TestCallback_RefusesForeignFlows accepts a callback once, within flowLifetime, from the browser
// and at the host, action and provider of the flow.
func TestCallback_RefusesForeignFlows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]func(w *harness, b *browser) *browser{
			"another browser (login CSRF)": func(w *harness, _ *browser) *browser { return w.browser() },
			"a second time, without the session": func(w *harness, b *browser) *browser {
				b.get(w.callback())
				clear(b.cookies)
				return b
			},
			"too late": func(w *harness, b *browser) *browser {
				time.Sleep(flowLifetime + time.Second)
				return b
			},
			"at another host":      func(_ *harness, b *browser) *browser { b.host = "other.example.com"; return b },
			"for another client":   func(w *harness, b *browser) *browser { w.idp.scope = "another"; return b },
			"with another's state": func(w *harness, b *browser) *browser { w.browser().get("/"); return b },
			"with a cookie that is a session's": func(_ *harness, b *browser) *browser {
				for name := range b.cookies {
					b.cookies[name] = randomToken()
				}
				return b
			},
			"refused by the provider": func(w *harness, b *browser) *browser {
				w.idp.err = RefusedError("no", nil)
				return b
			},
		} {
			w := newHarness(t)
			b := w.browser()
			b.get("/")
			sender := c(w, b)
			before := len(w.store.logins)
			res := sender.get(w.callback())
			if res.Code != 403 || code(res) != account.CodeLoginFailed || len(w.store.logins) != before ||
				res.Header().Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("%s: %d %s, %d logins", name, res.Code, res.Body, len(w.store.logins))
			}
		}
		w := newHarness(t)
		b := w.browser()
		b.get("/")
		if res := b.get(strings.Replace(w.callback(), "good", "bad", 1)); res.Code != 403 ||
			strings.Contains(res.Body.String(), "cause") || !strings.Contains(w.log.String(), "cause-of-refusal") {
			t.Errorf("%d %s; log %s", res.Code, res.Body, w.log)
		}
		if res := b.get(w.callback()); res.Code != 403 { // the flow has ended with the first answer
			t.Errorf("a callback after one that was refused: %d", res.Code)
		}
	})
}

// TestCallback_GoesOnWithLiveSession sends responses of a provider that belong to no flow of a
// browser with a session: it keeps that session, and gets no other.
func TestCallback_GoesOnWithLiveSession(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	b.login("/page?a=b")
	reloaded, token := w.callback(), b.cookies["__Host-fl-staff"]
	w.browser().get("/other")
	foreign := w.callback()
	for target, want := range map[string]string{
		reloaded: "/page?a=b", foreign: "/other", strings.Replace(reloaded, "good", "bad", 1): "/page?a=b",
		"/_fairlead/staff/callback?error=access_denied&state=" + w.idp.flows[0].State: "/page?a=b",
		"/_fairlead/staff/callback": "/", reloaded[:len(reloaded)-1] + "!": "/",
		"/_fairlead/staff/callback?code=good&state=" + strings.Split(w.idp.last().State, ".")[0] + ".L2V2aWw": "/",
		"/_fairlead/staff/finish": "/", "/_fairlead/staff/finish?ticket=" + randomToken(): "/",
	} {
		if res := b.get(target); res.Code != http.StatusSeeOther || res.Header().Get("Location") != want {
			t.Errorf("%s: %d to %q, want %q", target, res.Code, res.Header().Get("Location"), want)
		}
		if res := b.get(target, "Sec-Fetch-Mode", "cors"); res.Code != 403 {
			t.Errorf("%s, fetched by a script: %d", target, res.Code)
		}
	}
	if len(w.store.logins) != 1 || b.cookies["__Host-fl-staff"] != token || b.get("/").upstream == nil {
		t.Errorf("%d logins; cookies %v", len(w.store.logins), b.cookies)
	}
	clear(w.store.sessions) // revoked
	if res := b.get(reloaded); res.Code != 403 || len(w.store.logins) != 1 {
		t.Errorf("after the session has ended: %d", res.Code)
	}
}

// TestSession_AdmitsOnePort logs in to two ports of one host, whose cookies a browser mixes.
func TestSession_AdmitsOnePort(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	for range 3 {
		for _, host := range []string{"app.example.com:8443", "app.example.com:9443", "app.example.com"} {
			if b.host = host; b.get("/").upstream == nil {
				b.get(w.callback())
			}
			if b.get("/").upstream == nil {
				t.Errorf("%s asks for a login again; cookies %v", host, b.cookies)
			}
		}
	}
	if len(w.store.logins) != 3 || len(w.store.sessions) != 3 || len(b.cookies) != 3 {
		t.Errorf("%d logins, %d sessions, cookies %v", len(w.store.logins), len(w.store.sessions), b.cookies)
	}
}

// TestFrame_GetsDisplayablePage opens an endpoint within another page.
func TestFrame_GetsDisplayablePage(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	for _, dest := range []string{"iframe", "frame", "embed", "object"} {
		res := b.get(`/a?b="><script>`, "Sec-Fetch-Dest", dest)
		if policy := res.Header().Get("Content-Security-Policy"); res.Code != 401 ||
			code(res) != account.CodeLoginNeeded ||
			!strings.Contains(policy, "frame-ancestors *") || strings.Contains(policy, "script-src") ||
			!strings.Contains(res.Body.String(),
				`target="_blank" rel="noopener">Open https://app.example.com in a new tab<`) ||
			strings.Contains(res.Body.String(), "<script>") || len(b.cookies) != 0 {
			t.Errorf("%s: %d %s %s", dest, res.Code, policy, res.Body)
		}
	}
	if res := b.get("/", "Sec-Fetch-Dest", "document"); res.Code != http.StatusSeeOther {
		t.Errorf("a tab: %d", res.Code)
	}
	b.login("/")
	if b.get("/", "Sec-Fetch-Dest", "iframe").upstream == nil {
		t.Error("a frame with a session is not passed on")
	}
}

// TestLogin_RestartsAfterRevocation restarts a login whose person's sessions were revoked, with
// ForceReauth, maxRestarts times at most.
func TestLogin_RestartsAfterRevocation(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	w.store.loginAgain = maxRestarts + 1
	b := w.browser()
	b.get("/x")
	for range maxRestarts {
		res := b.get(w.callback())
		if f := w.idp.last(); res.Code != http.StatusSeeOther || !f.ForceReauth || f.ReturnTo != "/x" ||
			!strings.HasPrefix(res.Header().Get("Location"), "https://idp.example.com/start") {
			t.Fatalf("%d, flow %+v", res.Code, f)
		}
	}
	if res := b.get(w.callback()); res.Code != 401 || code(res) != account.CodeLoginAgain {
		t.Errorf("after %d restarts: %d", maxRestarts, res.Code)
	}
}

// TestLogin_ChecksAuthTime checks when a provider has asked the person, after a restart with
// ForceReauth.
func TestLogin_ChecksAuthTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			ago      time.Duration // age of AuthTime; 0 = no AuthTime
			required bool
			admitted bool
		}{
			"asked after the restart":     {-time.Second, true, true},
			"within the clock skew, slow": {ClockSkew, true, true},
			"within the clock skew, fast": {-ClockSkew, true, true},
			"asked before":                {2 * ClockSkew, true, false},
			"asked in the future":         {-time.Hour, true, false},
			"no auth_time, required":      {0, true, false},
			"no auth_time, not required":  {0, false, true},
			"asked before, not required":  {time.Hour, false, false},
		} {
			w := newHarness(t)
			w.store.loginAgain, w.idp.authentication.AuthTimeRequired = 1, c.required
			b := w.browser()
			b.login("/x") // without ForceReauth, no auth_time is required
			if c.ago != 0 {
				w.idp.authentication.AuthTime = time.Now().Add(-c.ago)
			}
			res := b.get(w.callback())
			switch logins := w.store.logins[1:]; {
			case c.admitted && (res.Header().Get("Location") != "/x" || len(logins) != 1 || !logins[0].ForceReauth),
				!c.admitted && (res.Code != 403 || len(logins) != 0):
				t.Errorf("%s: %d", what, res.Code)
			}
		}
	})
}

func TestLogin_IgnoresFutureAuthTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.idp.authentication.AuthTime = time.Now().Add(time.Hour)
		if w.browser().login("/"); !w.store.logins[0].AuthTime.IsZero() {
			t.Errorf("stored %s", w.store.logins[0].AuthTime)
		}
	})
}
