// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	_ "embed"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/chromium"
)

// TestDashboard_InBrowser drives one real browser through everything that scripts, style and
// keyboard do.
func TestDashboard_InBrowser(t *testing.T) {
	ctx := chromium.Start(t, false)
	for name, test := range map[string]func(*testing.T, *chromium.Tab, *fake, *httptest.Server){
		"accessibility": testAccessibility, "search": testSearch, "keyboard": testKeyboardRevocation,
		"live updates keep input": testLiveUpdatesKeepInput, "key deletion": testKeyDeletion, "sign-in": testSignIn,
		"without scripts": testWithoutScripts, "visible focus": testVisibleFocus, "server outage": testServerOutage,
		"server frozen and killed": testServerFrozenAndKilled,
		"phone":                    testPhone, "filters without scripts": testFiltersWithoutScripts,
		"charts": testCharts, "charts live": testChartsLive, "map": testMap,
		"text in drawings":        testTextInDrawings,
		"traffic without scripts": testTrafficWithoutScripts,
		"policy editor":           testPolicyEditor, "editor without scripts": testEditorWithoutScripts,
		"editor by keyboard": testEditorByKeyboard, "editor on a phone": testEditorOnPhone,
		"editor over a sign-in": testEditorOverSignIn, "editor without storage": testWithoutStorage,
		"focus in the editor": testFocusInEditor,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(time.Now())
			srv := dashboardOf(t, f, func(o *Options) { o.Limits.SignInCheckInterval = 50 * time.Millisecond })
			b := &chromium.Tab{T: t, Ctx: ctx, Base: chromium.Localhost(srv.URL)}
			b.EnableScripts(true)
			b.Resize(1280, 720, "light")
			setSignIn(b, signedInAs(t, srv, "flk_admin"))
			// ends what is still open, so that the server can close
			t.Cleanup(func() { _ = chromedp.Do(ctx, chromedp.Navigate("about:blank")) })
			test(t, b, f, srv)
		})
	}
}

// setSignIn puts the sign-in's cookie into the browser.
func setSignIn(b *chromium.Tab, session *browser) {
	b.T.Helper()
	chromium.Call(b, network.SetCookie, network.SetCookieParams{Name: CookieName(strings.TrimPrefix(b.Base, "http://")), Value: session.cookie[cookiePrefix],
		URL: b.Base, Secure: new(true), HTTPOnly: new(true), SameSite: network.CookieSameSiteStrict, Path: "/"})
}

func testAccessibility(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	f.addLoginFailures()
	pages := append(shownPages(f), shownPage{"sign-in", "/ui/sign-in?return=/ui/none", ""})
	for _, p := range pages {
		b.Resize(1280, 720, "light")
		b.Open(p.path)
		if p.press != "" {
			chromium.Eval[bool](b, fmt.Sprintf("(document.querySelector(%q).click(), true)", p.press))
			b.WaitUntil("the dialog", "document.querySelector('dialog[open] form')")
		}
		b.CheckThemes(p.name)
		b.CheckWidths(p.name, 320, 768, 2560)
		b.Resize(320, 720, "light")
		b.CheckTree(p.name + " at 320 pixels")
	}
}

func testSearch(t *testing.T, b *chromium.Tab, _ *fake, _ *httptest.Server) {
	b.Open("/ui/traffic-policy/identities")
	chromium.Eval[bool](b, "window.same = true")
	b.Fill("q", "chia")
	b.WaitUntil("one row",
		"location.search === '?q=chia' && document.querySelectorAll('#live tbody tr').length === 1 && "+
			"document.querySelector('#live tbody').textContent.includes('Chiara')")
	got := chromium.Eval[string](b, "document.querySelector('#live [role=status]').textContent")
	if got != "1 identity" {
		t.Errorf("the number of results is told as %q", got)
	}
	if got := chromium.Eval[string](b,
		"location.search + ' ' + document.activeElement.id + ' ' + document.activeElement.value + ' ' + "+
			"window.same"); got !=
		"?q=chia q chia true" {
		t.Errorf("address, focus, text, and whether the page is still the same: %s", got)
	}
	b.Press("zzz")
	b.WaitUntil("that nothing matches",
		"document.querySelector('#live .empty')?.textContent.includes('No identity matches')")
	b.Fill("q", "github")
	b.WaitUntil("who is of the provider",
		"document.querySelectorAll('#live tbody tr').length === 1 && document.querySelector('#live "+
			"tbody').textContent.includes('erin-dev')")
	chromium.Eval[bool](b,
		`(() => { const q = document.getElementById("q"), p = document.getElementById("provider"); q.value = ""; p.value = "login.example.com"; p.dispatchEvent(new Event("input", {bubbles: true})); return true; })()`)
	b.WaitUntil("those of a provider",
		"document.querySelectorAll('#live tbody tr').length === 2 && location.search === '?provider=login.example.com'")
	b.Open("/ui/traffic-policy/identities?q=bob") // the address is the search
	b.WaitUntil("the search of the address",
		"document.querySelectorAll('#live tbody tr').length === 1 && document.getElementById('q').value === 'bob'")
}

func testKeyboardRevocation(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.Open("/ui/traffic-policy/identities?q=chiara")
	control := "a[data-dialog]"
	for range 40 {
		if chromium.Eval[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", control)) {
			break
		}
		b.Press(kb.Tab)
	}
	focused := func() string { return chromium.Eval[string](b, "document.activeElement.textContent.trim()") }
	if got := focused(); got != "Revoke Chiara Conti, login.example.com" {
		t.Fatalf("with the tab key one comes to %q", got)
	}
	b.Press(kb.Enter)
	b.WaitUntil("the dialog", "document.querySelector('dialog[open] form')")
	if got := focused(); got != "Cancel" {
		t.Errorf("the focus is on %q, want what does no harm", got)
	}
	if text := chromium.Eval[string](b, "document.querySelector('dialog').textContent"); !strings.Contains(text,
		"Revoke Chiara Conti?") || !strings.Contains(text, "2 live sessions") {
		t.Errorf("the dialog asks: %s", text)
	}
	b.Press(kb.Escape)
	b.WaitUntil("the end of the dialog", "!document.querySelector('dialog[open]')")
	if got := focused(); got != "Revoke Chiara Conti, login.example.com" {
		t.Errorf("after the dialog the focus is on %q", got)
	}
	f.set(func() {
		if len(f.revoked) != 0 {
			t.Error("escape has revoked")
		}
	})
	b.Press(kb.Enter)
	b.WaitUntil("the dialog again", "document.querySelector('dialog[open] form')")
	b.Press(kb.Tab)
	if got := focused(); got != "Revoke identity" {
		t.Errorf("the tab key leads to %q", got)
	}
	b.Press(kb.Enter)
	b.WaitUntil("what was done", "document.querySelector('.notice')?.textContent.includes('2 sessions have ended')")
	b.WaitUntil("the search as it was, and the focus on the notice",
		"location.search === '?q=chiara' && document.activeElement.className === 'notice'")
}

func testLiveUpdatesKeepInput(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.Resize(1280, 400, "light")
	b.Open("/ui/endpoints")
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	chromium.Eval[bool](b,
		`(() => { window.same = true; document.getElementById("q").value = "half a wo"; [...document.querySelectorAll("#live tbody a")].find((a) => a.textContent.includes("search.internal")).focus();
		window.scrollTo(0, 120); window.row = document.activeElement.closest("tr"); return true; })()`)
	f.change(func() {
		f.endpoints[0].Status, f.endpoints[0].OfflineSince = account.StatusOffline, new(f.now)
		e := f.endpoints[1]
		e.ID, e.URL = account.NewID(account.PrefixEndpoint, f.now), "http://brand-new.demo"
		// one is gone, one is new
		f.endpoints, f.owner[e.ID] = append(f.endpoints[:2:2], append(f.endpoints[3:], e)...), mine
	})
	b.WaitUntil("the news", `document.querySelector("#live").textContent.includes("http://brand-new.demo")`)
	state := chromium.Eval[string](b,
		`[window.same, document.activeElement.textContent, document.activeElement.closest("tr") === window.row, document.getElementById("q").value, window.scrollY > 0,
		document.querySelectorAll("#live tbody tr").length, document.querySelector("#live").textContent.includes("ledger"), document.querySelectorAll("#live .status.offline").length].join("|")`)
	if state != "true|http://search.internal|true|half a wo|true|7|false|1" {
		t.Errorf("same page, focus, same row, typed text, scrolled, rows, what is gone, offline: %s", state)
	}
}

func testKeyDeletion(_ *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.Open("/ui/agents")
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	f.set(func() { f.keys = f.keys[1:] })
	b.WaitUntil("the sign-in page, with the way back",
		"location.pathname === '/ui/sign-in' && location.search === '?return=%2Fui%2Fagents'")
}

func testServerOutage(_ *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.Open("/ui/agents")
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	f.change(func() { f.down = true })
	chromium.Eval[bool](b, "(document.dispatchEvent(new Event('visibilitychange')), true)")
	b.WaitUntil("that what is shown may be old",
		"document.querySelector('.stale')?.textContent.includes('may be old') && "+
			"document.querySelectorAll('#live tbody "+
			"tr').length > 0")
	f.change(func() { f.down = false })
	chromium.Eval[bool](b, "(document.dispatchEvent(new Event('visibilitychange')), true)")
	b.WaitUntil("that it is up to date again", "!document.querySelector('.stale')")
}

func testSignIn(t *testing.T, b *chromium.Tab, _ *fake, _ *httptest.Server) {
	b.Open("/ui/agents")
	b.Do(chromedp.Click(chromedp.CSS(".menu-wide form button")))
	b.WaitUntil("the sign-in page",
		"location.pathname === '/ui/sign-in' && document.querySelector('.notice')?.textContent.includes('signed out')")
	b.Open("/ui/events?type=endpoint.updated")
	b.WaitUntil("the sign-in page", "document.activeElement.id === 'key'")
	b.Fill("key", "flk_wrong")
	b.Press(kb.Enter)
	b.WaitUntil("the refusal, and the focus on the field",
		"document.querySelector('[role=alert]')?.textContent.includes('not known') && document.activeElement.id "+
			"=== 'key'")
	b.Fill("key", "flk_read")
	b.Press(kb.Enter)
	b.WaitUntil("the page that was asked for",
		"location.pathname + location.search === '/ui/events?type=endpoint.updated' && document.querySelector('#live "+
			"tbody tr')")
	// A link on another site's page sends no cookie; the browser is signed in nevertheless.
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="%s">there</a>`, b.Base+"/ui/backends?kind=static")
	}))
	defer elsewhere.Close()
	b.Do(chromedp.Navigate(elsewhere.URL), chromedp.Click(chromedp.CSS("a")))
	b.WaitUntil("the page behind the link", "location.pathname + location.search === '/ui/backends?kind=static'")
	if cookies := chromium.Eval[string](b, "document.cookie"); cookies != "" {
		t.Errorf("scripts see cookies: %s", cookies)
	}
}

func testWithoutScripts(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.EnableScripts(false)
	b.Open("/ui/traffic-policy/identities")
	b.Do(chromedp.SendKeys(chromedp.CSS("#q"), "dmitri"+kb.Enter))
	b.WaitUntil("the search",
		"location.search.includes('q=dmitri') && document.querySelectorAll('tbody tr').length === 1")
	b.Do(chromedp.Click(chromedp.CSS("a[data-dialog]")))
	b.WaitUntil("the page that asks",
		"location.pathname.endsWith('/revoke') && document.querySelector('h1')?.textContent === 'Revoke Dmitri "+
			"Denisov?'")
	b.Do(chromedp.Click(chromedp.CSS("button.destroy")))
	b.WaitUntil("what was done", "document.querySelector('.notice')?.textContent.includes('1 session has ended')")
	if got := chromium.Eval[string](b, "location.pathname + location.search"); !strings.HasPrefix(got,
		"/ui/traffic-policy/identities?q=dmitri") {
		t.Errorf("afterwards one is at %s", got)
	}
	f.set(func() {
		if len(f.revoked) != 1 {
			t.Errorf("revoked %v", f.revoked)
		}
	})
}

func testVisibleFocus(t *testing.T, b *chromium.Tab, _ *fake, _ *httptest.Server) {
	b.Open("/ui/traffic-policy/identities")
	seen := map[string]bool{}
	for range 60 {
		b.Press(kb.Tab)
		at := chromium.Eval[[]string](b,
			`(() => { const el = document.activeElement, s = getComputedStyle(el); return [el.localName + "." + el.className, s.outlineStyle, s.outlineWidth, String(el === document.body)]; })()`)
		if at[3] == "true" {
			break
		}
		if seen[at[0]] = true; at[1] == "none" || at[1] == "auto" || at[2] == "0px" || at[2] == "1px" {
			t.Errorf("the focus on %s cannot be seen: %s", at[0], at[1:3])
		}
	}
	for _, one := range []string{"a.skip", "a.brand", "a.", "button.quiet", "input.", "select.",
		"a.icon-button danger"} {
		if !seen[one] {
			t.Errorf("the tab key does not come to %s, only to %v", one, seen)
		}
	}
	chromium.Call(b, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}})
	if moving := chromium.Eval[int](b,
		"[...document.querySelectorAll('*')].filter((el) => getComputedStyle(el).transitionDuration !== "+
			"'0s').length"); moving != 0 {
		t.Errorf("%d elements move for people who want no motion", moving)
	}
}
