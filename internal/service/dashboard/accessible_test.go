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

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead-dev/fairlead/internal/account"
)

//go:embed testdata/accessible.js
var accessible string

// TestDashboard_InBrowser drives one real browser through everything that scripts, style and
// keyboard do.
func TestDashboard_InBrowser(t *testing.T) {
	ctx := chromium(t)
	for name, test := range map[string]func(*testing.T, *tab, *fake, *httptest.Server){
		"accessibility": testAccessibility, "search": testSearch, "keyboard": testKeyboardRevocation,
		"live updates keep input": testLiveUpdatesKeepInput, "key deletion": testKeyDeletion, "sign-in": testSignIn,
		"without scripts": testWithoutScripts, "visible focus": testVisibleFocus, "server outage": testServerOutage,
		"phone": testPhone, "filters without scripts": testFiltersWithoutScripts,
		"charts": testCharts, "charts live": testChartsLive, "map": testMap,
		"text in drawings":        testTextInDrawings,
		"traffic without scripts": testTrafficWithoutScripts,
		"policy editor":           testPolicyEditor, "editor without scripts": testEditorWithoutScripts,
		"editor by keyboard": testEditorByKeyboard, "editor on a phone": testEditorOnPhone,
		"editor over a sign-in": testEditorOverSignIn, "focus in the editor": testFocusInEditor,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(time.Now())
			srv := dashboardOf(t, f, func(o *Options) { o.Limits.SignInCheckInterval = 50 * time.Millisecond })
			b := &tab{t, ctx, localhost(srv.URL)}
			sendCommand(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{})
			b.size(1280, 720, "light")
			b.signIn(signedInAs(t, srv, "flk_admin"))
			// ends what is still open, so that the server can close
			t.Cleanup(func() { _ = chromedp.Do(ctx, chromedp.Navigate("about:blank")) })
			test(t, b, f, srv)
		})
	}
}

func testAccessibility(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	f.addLoginFailures()
	pages := append(shownPages(f), shownPage{"sign-in", "/ui/sign-in?return=/ui/none", ""})
	for _, p := range pages {
		b.size(1280, 720, "light")
		b.open(p.path)
		if p.press != "" {
			eval[bool](b, fmt.Sprintf("(document.querySelector(%q).click(), true)", p.press))
			b.until("the dialog", "document.querySelector('dialog[open] form')")
		}
		for _, theme := range []string{"light", "dark"} {
			b.size(1280, 720, theme)
			for _, complaint := range eval[[]string](b, accessible) {
				t.Errorf("%s, %s: %s", p.name, theme, complaint)
			}
		}
		checkTree(t, b, p.name)
		for _, width := range []int64{320, 768, 2560} {
			b.size(width, 720, "light")
			if is := eval[int64](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); is >
				0 {
				t.Errorf("%s at %d pixels: %d pixels lie outside", p.name, width, is)
			}
		}
		b.size(320, 720, "light")
		checkTree(t, b, p.name+" at 320 pixels")
	}
}

// checkTree asks the browser what it tells screen readers.
func checkTree(t *testing.T, b *tab, page string) {
	t.Helper()
	value := func(v *accessibility.Value) string {
		if v == nil {
			return ""
		}
		return strings.Trim(string(v.Value), `"`)
	}
	roles := map[string]int{}
	for _, n := range sendCommand(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		role := value(n.Role)
		if n.Ignored {
			continue
		}
		roles[role]++
		switch role {
		case "link", "button", "textbox", "searchbox", "combobox", "checkbox", "dialog", "table", "navigation":
			if strings.TrimSpace(value(n.Name)) == "" {
				t.Errorf("%s: a %s has no name", page, role)
			}
		}
	}
	if roles["dialog"] > 0 {
		return // what lies behind it is not told
	}
	shown := eval[map[string]int](b, `(() => {
		const open = (selector) => [...document.querySelectorAll(selector)].filter((el) => !el.closest("details:not([open])")).length;
		return {table: open("table"), row: open("tr"), rowheader: open("tbody th"), columnheader: open("thead th")};
	})()`)
	for role, n := range shown {
		if roles[role] != n {
			t.Errorf("%s: screen readers hear of %d of the role %s, and there are %d", page, roles[role], role, n)
		}
	}
	if roles["main"] != 1 {
		t.Errorf("%s: %d main landmarks", page, roles["main"])
	}
}

// press presses keys. The browser throws away those that come before it has painted the page.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.until("that the page is painted", "performance.getEntriesByName('first-contentful-paint').length > 0")
	b.do(chromedp.KeyEvent(keys))
}

// write types a text into the field with the id, in the place of what it holds.
func (b *tab) write(id, text string) {
	b.t.Helper()
	field := "document.getElementById('" + id + "')"
	eval[bool](b, "("+field+".focus(), "+field+".select(), true)")
	b.press(text)
	if got := eval[string](b, field+".value"); got != text {
		b.t.Fatalf("typing %q into %s made %q", text, id, got)
	}
}

func testSearch(t *testing.T, b *tab, _ *fake, _ *httptest.Server) {
	b.open("/ui/traffic-policy/identities")
	eval[bool](b, "window.same = true")
	b.write("q", "chia")
	b.until("one row",
		"location.search === '?q=chia' && document.querySelectorAll('#live tbody tr').length === 1 && "+
			"document.querySelector('#live tbody').textContent.includes('Chiara')")
	if got := eval[string](b, "document.querySelector('#live [role=status]').textContent"); got != "1 identity" {
		t.Errorf("the number of results is told as %q", got)
	}
	if got := eval[string](b,
		"location.search + ' ' + document.activeElement.id + ' ' + document.activeElement.value + ' ' + "+
			"window.same"); got !=
		"?q=chia q chia true" {
		t.Errorf("address, focus, text, and whether the page is still the same: %s", got)
	}
	b.press("zzz")
	b.until("that nothing matches",
		"document.querySelector('#live .empty')?.textContent.includes('No identity matches')")
	b.write("q", "github")
	b.until("who is of the provider",
		"document.querySelectorAll('#live tbody tr').length === 1 && document.querySelector('#live "+
			"tbody').textContent.includes('erin-dev')")
	eval[bool](b,
		`(() => { const q = document.getElementById("q"), p = document.getElementById("provider"); q.value = ""; p.value = "login.example.com"; p.dispatchEvent(new Event("input", {bubbles: true})); return true; })()`)
	b.until("those of a provider",
		"document.querySelectorAll('#live tbody tr').length === 2 && location.search === '?provider=login.example.com'")
	b.open("/ui/traffic-policy/identities?q=bob") // the address is the search
	b.until("the search of the address",
		"document.querySelectorAll('#live tbody tr').length === 1 && document.getElementById('q').value === 'bob'")
}

func testKeyboardRevocation(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	b.open("/ui/traffic-policy/identities?q=chiara")
	control := "a[data-dialog]"
	for range 40 {
		if eval[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", control)) {
			break
		}
		b.press(kb.Tab)
	}
	focused := func() string { return eval[string](b, "document.activeElement.textContent.trim()") }
	if got := focused(); got != "Revoke Chiara Conti, login.example.com" {
		t.Fatalf("with the tab key one comes to %q", got)
	}
	b.press(kb.Enter)
	b.until("the dialog", "document.querySelector('dialog[open] form')")
	if got := focused(); got != "Cancel" {
		t.Errorf("the focus is on %q, want what does no harm", got)
	}
	if text := eval[string](b, "document.querySelector('dialog').textContent"); !strings.Contains(text,
		"Revoke Chiara Conti?") || !strings.Contains(text, "2 live sessions") {
		t.Errorf("the dialog asks: %s", text)
	}
	b.press(kb.Escape)
	b.until("the end of the dialog", "!document.querySelector('dialog[open]')")
	if got := focused(); got != "Revoke Chiara Conti, login.example.com" {
		t.Errorf("after the dialog the focus is on %q", got)
	}
	f.set(func() {
		if len(f.revoked) != 0 {
			t.Error("escape has revoked")
		}
	})
	b.press(kb.Enter)
	b.until("the dialog again", "document.querySelector('dialog[open] form')")
	b.press(kb.Tab)
	if got := focused(); got != "Revoke identity" {
		t.Errorf("the tab key leads to %q", got)
	}
	b.press(kb.Enter)
	b.until("what was done", "document.querySelector('.notice')?.textContent.includes('2 sessions have ended')")
	b.until("the search as it was, and the focus on the notice",
		"location.search === '?q=chiara' && document.activeElement.className === 'notice'")
}

func testLiveUpdatesKeepInput(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	b.size(1280, 400, "light")
	b.open("/ui/endpoints")
	b.until("the stream", "'following' in document.body.dataset")
	eval[bool](b,
		`(() => { window.same = true; document.getElementById("q").value = "half a wo"; [...document.querySelectorAll("#live tbody a")].find((a) => a.textContent.includes("search.internal")).focus();
		window.scrollTo(0, 120); window.row = document.activeElement.closest("tr"); return true; })()`)
	f.change(func() {
		f.endpoints[0].Status, f.endpoints[0].OfflineSince = account.StatusOffline, new(f.now)
		e := f.endpoints[1]
		e.ID, e.URL = account.NewID(account.PrefixEndpoint, f.now), "http://brand-new.demo"
		// one is gone, one is new
		f.endpoints, f.owner[e.ID] = append(f.endpoints[:2:2], append(f.endpoints[3:], e)...), mine
	})
	b.until("the news", `document.querySelector("#live").textContent.includes("http://brand-new.demo")`)
	state := eval[string](b,
		`[window.same, document.activeElement.textContent, document.activeElement.closest("tr") === window.row, document.getElementById("q").value, window.scrollY > 0,
		document.querySelectorAll("#live tbody tr").length, document.querySelector("#live").textContent.includes("ledger"), document.querySelectorAll("#live .status.offline").length].join("|")`)
	if state != "true|http://search.internal|true|half a wo|true|7|false|1" {
		t.Errorf("same page, focus, same row, typed text, scrolled, rows, what is gone, offline: %s", state)
	}
}

func testKeyDeletion(_ *testing.T, b *tab, f *fake, _ *httptest.Server) {
	b.open("/ui/agents")
	b.until("the stream", "'following' in document.body.dataset")
	f.set(func() { f.keys = f.keys[1:] })
	b.until("the sign-in page, with the way back",
		"location.pathname === '/ui/sign-in' && location.search === '?return=%2Fui%2Fagents'")
}

func testServerOutage(_ *testing.T, b *tab, f *fake, _ *httptest.Server) {
	b.open("/ui/agents")
	b.until("the stream", "'following' in document.body.dataset")
	f.change(func() { f.down = true })
	eval[bool](b, "(document.dispatchEvent(new Event('visibilitychange')), true)")
	b.until("that what is shown may be old",
		"document.querySelector('.stale')?.textContent.includes('may be old') && "+
			"document.querySelectorAll('#live tbody "+
			"tr').length > 0")
	f.change(func() { f.down = false })
	eval[bool](b, "(document.dispatchEvent(new Event('visibilitychange')), true)")
	b.until("that it is up to date again", "!document.querySelector('.stale')")
}

func testSignIn(t *testing.T, b *tab, _ *fake, _ *httptest.Server) {
	b.open("/ui/agents")
	b.do(chromedp.Click(chromedp.CSS(".menu-wide form button")))
	b.until("the sign-in page",
		"location.pathname === '/ui/sign-in' && document.querySelector('.notice')?.textContent.includes('signed out')")
	b.open("/ui/events?type=endpoint.updated")
	b.until("the sign-in page", "document.activeElement.id === 'key'")
	b.write("key", "flk_wrong")
	b.press(kb.Enter)
	b.until("the refusal, and the focus on the field",
		"document.querySelector('[role=alert]')?.textContent.includes('not known') && document.activeElement.id "+
			"=== 'key'")
	b.write("key", "flk_read")
	b.press(kb.Enter)
	b.until("the page that was asked for",
		"location.pathname + location.search === '/ui/events?type=endpoint.updated' && document.querySelector('#live "+
			"tbody tr')")
	// A link on another site's page sends no cookie; the browser is signed in nevertheless.
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="%s">there</a>`, b.base+"/ui/backends?kind=static")
	}))
	defer elsewhere.Close()
	b.do(chromedp.Navigate(elsewhere.URL), chromedp.Click(chromedp.CSS("a")))
	b.until("the page behind the link", "location.pathname + location.search === '/ui/backends?kind=static'")
	if cookies := eval[string](b, "document.cookie"); cookies != "" {
		t.Errorf("scripts see cookies: %s", cookies)
	}
}

func testWithoutScripts(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	sendCommand(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/ui/traffic-policy/identities")
	b.do(chromedp.SendKeys(chromedp.CSS("#q"), "dmitri"+kb.Enter))
	b.until("the search", "location.search.includes('q=dmitri') && document.querySelectorAll('tbody tr').length === 1")
	b.do(chromedp.Click(chromedp.CSS("a[data-dialog]")))
	b.until("the page that asks",
		"location.pathname.endsWith('/revoke') && document.querySelector('h1')?.textContent === 'Revoke Dmitri "+
			"Denisov?'")
	b.do(chromedp.Click(chromedp.CSS("button.destroy")))
	b.until("what was done", "document.querySelector('.notice')?.textContent.includes('1 session has ended')")
	if got := eval[string](b, "location.pathname + location.search"); !strings.HasPrefix(got,
		"/ui/traffic-policy/identities?q=dmitri") {
		t.Errorf("afterwards one is at %s", got)
	}
	f.set(func() {
		if len(f.revoked) != 1 {
			t.Errorf("revoked %v", f.revoked)
		}
	})
}

func testVisibleFocus(t *testing.T, b *tab, _ *fake, _ *httptest.Server) {
	b.open("/ui/traffic-policy/identities")
	seen := map[string]bool{}
	for range 60 {
		b.press(kb.Tab)
		at := eval[[]string](b,
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
	sendCommand(b, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}})
	if moving := eval[int](b,
		"[...document.querySelectorAll('*')].filter((el) => getComputedStyle(el).transitionDuration !== "+
			"'0s').length"); moving != 0 {
		t.Errorf("%d elements move for people who want no motion", moving)
	}
}
