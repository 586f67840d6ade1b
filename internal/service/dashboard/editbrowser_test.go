// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/chromium"
)

const (
	policyText    = "document.getElementById('traffic_policy')"
	findingsCount = "document.getElementById('findings-count').textContent"
	markedLines   = "[...document.querySelectorAll('.gutter .marked')].map((line) => line.textContent).join(' ')"
	numberOfLines = "document.querySelectorAll('.gutter span').length"
	onePolicy     = "on_http_request:\\n  - actions:\\n      - type: deny\\n"
	newSecrets    = "      - type: basic-auth\\n        config:\\n          credentials:\\n" +
		"          - user:planted\\n" +
		"          - 'a:planted'\\n          realm: x\\n      - {password: planted, realm: planted}\\n" +
		"        Private-Key: |\\n          planted\\n\\n          planted\\n        client_secret: planted\\n# the end"
	anotherPolicy  = "on_http_request:\\n  - actions:\\n      - type: denyy\\n"
	keptDraft      = "sessionStorage.getItem('draft')"
	pressOfAButton = "(document.querySelector('button[value=%s]:not(.unseen)').click(), true)"
)

// setPolicy puts a text into the editor as if it was pasted.
func setPolicy(b *chromium.Tab, text string) {
	b.T.Helper()
	chromium.Eval[bool](b,
		fmt.Sprintf("(%[1]s.value = \"%[2]s\", %[1]s.dispatchEvent(new InputEvent('input', {bubbles: true})), true)",
			policyText, text))
}

func testPolicyEditor(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	path := "/ui/endpoints/" + f.endpoints[4].ID
	b.Open(path + "/edit")
	if n := chromium.Eval[int](b, numberOfLines); n < 12 || chromium.Eval[int](b, policyText+".rows") != n {
		t.Errorf("%d numbers beside the lines", n)
	}
	setPolicy(b, anotherPolicy)
	b.WaitUntil("the finding", findingsCount+" === '1 mistake'")
	if got := chromium.Eval[string](b, markedLines); got != "3" {
		t.Errorf("marked lines: %s", got)
	}
	b.CheckThemes("the editor with a finding")
	b.Do(chromedp.Click(chromedp.CSS("#findings li a")))
	b.WaitUntil("the caret at the mistake", "document.activeElement === "+policyText+" && "+policyText+
		".value.slice("+policyText+".selectionStart).startsWith('denyy')")
	b.Press(kb.End + kb.Backspace)
	b.WaitUntil("that it is mended", findingsCount+" === 'No mistakes.' && "+markedLines+" === '' && !"+policyText+
		".hasAttribute('aria-invalid')")
	// Lines that are added get numbers, those that go lose theirs.
	setPolicy(b, strings.Repeat("# x\\n", 40))
	b.WaitUntil("42 lines", numberOfLines+" === 42 && "+policyText+".scrollHeight <= "+policyText+".clientHeight + 1")
	setPolicy(b, "# mine\\n"+onePolicy)
	b.WaitUntil("12 lines", numberOfLines+" === 12")
	align := "(() => { const box = (el) => el.getBoundingClientRect(); const style = getComputedStyle(" + policyText +
		"); return Math.abs(box(document.querySelector('.gutter span:nth-of-type(3)')).top - box(" + policyText +
		").top - parseFloat(style.paddingTop) - 2 * parseFloat(style.lineHeight)); })()"
	if off := chromium.Eval[float64](b, align); off > 4 {
		t.Errorf("the third number is %g pixels off its line", off)
	}
	chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
	b.WaitUntil("the difference", "document.querySelector('.diff ins')?.textContent.includes('# mine') && "+
		"document.querySelector('.diff del')?.textContent.includes('openid-connect')")
	b.CheckThemes("the review")
	chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, stepSave))
	b.WaitUntil("what was done",
		"document.querySelector('.notice')?.textContent.includes('saved') && location.pathname === '"+
			path+"'")
	if got := f.endpoints[4].TrafficPolicy; got != strings.ReplaceAll("# mine\\n"+onePolicy, "\\n", "\n") {
		t.Errorf("saved %q", got)
	}
}

func testEditorWithoutScripts(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.EnableScripts(false)
	path := "/ui/endpoints/" + f.endpoints[3].ID
	b.Open(path + "/edit")
	b.Do(chromedp.SendKeys(chromedp.CSS("#traffic_policy"), "inbound: []"),
		chromedp.Click(chromedp.CSS("button[value=check]")))
	b.WaitUntil("the finding", findingsCount+" === '1 mistake' && "+markedLines+" === '1' && "+policyText+
		".value === 'inbound: []'")
	f.patchAsOther(t, f.endpoints[3].ID, account.EndpointPatch{Metadata: new("Theirs")})
	b.Do(chromedp.SendKeys(chromedp.CSS("#traffic_policy"), kb.End+strings.Repeat(kb.Backspace, 11)),
		chromedp.SendKeys(chromedp.CSS("#description"), kb.End+" of mine"),
		chromedp.Click(chromedp.CSS(".buttons button[value=review]")))
	b.WaitUntil("the conflict", "document.querySelector('h1')?.textContent.startsWith('Another has saved')")
	b.Do(chromedp.Click(chromedp.CSS("button[value=save]")))
	b.WaitUntil("what was done", "document.querySelector('.notice')?.textContent.includes('saved')")
	if e := f.endpoints[3]; e.Description != "Shop with failover of mine" || e.Metadata != "Theirs" {
		t.Errorf("saved %+v", e)
	}
}

// testEditorByKeyboard makes a backend without a mouse, and leaves the text of a policy by the tab
// key.
func testEditorByKeyboard(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.Open("/ui/backends/new/static")
	b.Fill("address", "db.example.com:5432")
	b.Press(kb.Enter)
	b.WaitUntil("the new backend", "document.querySelector('.notice')?.textContent.includes('backend is made')")
	b.Open("/ui/endpoints/new")
	b.Fill("url", "http://keyboard.demo")
	chromium.Eval[bool](b, "("+policyText+".focus(), true)")
	for i, line := range []string{"on_http_request:", "- actions:", "- type: deny"} {
		if i > 0 {
			b.PressEnter()
		}
		b.Press(line)
	}
	got := chromium.Eval[string](b, policyText+".value")
	if got != "on_http_request:\n  - actions:\n      - type: deny" {
		t.Errorf("indented as %q", got)
	}
	b.WaitUntil("no mistake", findingsCount+" === 'No mistakes.'")
	b.Press(kb.Tab)
	if chromium.Eval[bool](b, "document.activeElement === "+policyText) {
		t.Error("the tab key does not leave the editor")
	}
	chromium.Eval[bool](b, "(document.getElementById('url').focus(), true)")
	b.Press(kb.Enter)
	b.WaitUntil("the new endpoint", "document.querySelector('.notice')?.textContent.includes('cloud endpoint is made')")
	if e := f.endpoints[len(f.endpoints)-1]; !strings.Contains(e.TrafficPolicy, "deny") {
		t.Errorf("made %+v", e)
	}
}

func testEditorOnPhone(t *testing.T, b *chromium.Tab, f *fake, srv *httptest.Server) {
	session := signedInAs(t, srv, "flk_admin")
	b.Resize(390, 844, "dark")
	path := "/ui/endpoints/" + f.endpoints[4].ID + "/edit"
	review := session.send(path, session.get(path).body, stepReview, url.Values{policyField: {
		"# " + strings.Repeat("a long line ", 40)}, "description": {strings.Repeat("Longname", 28)}})
	if !strings.Contains(review.body, "a long line") {
		t.Fatalf("no review: %d", review.status)
	}
	for _, p := range []string{path, "/ui/backends/" + f.backends[5].ID + "/edit",
		"/ui/backends/" + f.backends[3].ID + "/edit"} {
		b.Open(p)
		if p == path {
			setPolicy(b, "# "+strings.Repeat("a long line ", 40))
			chromium.Eval[bool](b, "(document.getElementById('description').value = 'x'.repeat(200), true)")
		}
		if wide := chromium.Eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("%s: %d pixels lie outside", p, wide)
		}
		if p != path {
			continue
		}
		chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
		b.WaitUntil("the review", "document.querySelector('.diff')")
		if wide := chromium.Eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("the review: %d pixels lie outside", wide)
		}
	}
}

// testEditorOverSignIn ends the sign-in while a person types: nothing is lost but new secrets, and
// nothing waits in the browser after it was saved, or after the person has signed out.
func testEditorOverSignIn(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	path := "/ui/endpoints/" + f.endpoints[4].ID
	signInAgain := func(step string) {
		chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, step))
		const signInPage = "document.querySelector('.kept:not([hidden])') && document.activeElement.id === 'key'"
		b.WaitUntil("the sign-in page", signInPage)
		b.CheckPage("the sign-in page")
		if draft := chromium.Eval[string](b, keptDraft); !strings.Contains(draft, "# mine") ||
			strings.Contains(draft, "planted") {
			t.Errorf("the browser keeps %s", draft)
		}
		b.Fill("key", "flk_wrong")
		b.Press(kb.Enter)
		b.WaitUntil("the refusal", "document.getElementById('problem') && "+signInPage)
		b.Fill("key", "flk_admin")
		b.Press(kb.Enter)
		b.WaitUntil("the form with what was typed", "location.pathname === '"+path+"/edit' && "+policyText+
			".value.startsWith('# mine') && document.querySelector('.notice').textContent.includes('signed in again')")
		text := chromium.Eval[string](b, policyText+".value")
		if !strings.HasSuffix(text, "client_secret:\n# the end") {
			t.Errorf("what was typed came back as %s", text)
		}
	}
	b.Open(path + "/edit")
	f.set(func() { clear(f.signIns) })
	setPolicy(b, "# mine\\n"+onePolicy+newSecrets)
	b.WaitUntil("that the sign-in has ended", findingsCount+".startsWith('You are signed out.')")
	signInAgain(stepReview)
	setPolicy(b, "# mine\\n"+onePolicy+"# client_secret: x\\n# the end")
	chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
	b.WaitUntil("the difference", "document.querySelector('.diff ins')?.textContent.includes('# mine')")
	f.set(func() { clear(f.signIns) })
	signInAgain(stepSave)
	chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
	b.WaitUntil("the difference", "document.querySelector('.diff ins')?.textContent.includes('# mine')")
	chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, stepSave))
	b.WaitUntil("what was done", "document.querySelector('.notice')?.textContent.includes('saved') && !"+keptDraft)
	b.Open(path + "/edit")
	chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
	b.WaitUntil("the review", "document.querySelector('button[value=edit]') && "+keptDraft)
	b.Do(chromedp.Click(chromedp.CSS(".menu-wide form button")))
	b.WaitUntil("the sign-in page", "document.querySelector('.kept[hidden]') && !"+keptDraft)
}

// testWithoutStorage checks that the page's script goes on where the browser blocks storage.
func testWithoutStorage(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	block := chromium.Call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: "Object.defineProperty(window, 'sessionStorage', {get() { throw new Error('blocked') }})"})
	t.Cleanup(func() {
		chromium.Call(b, page.RemoveScriptToEvaluateOnNewDocument,
			page.RemoveScriptToEvaluateOnNewDocumentParams(block))
	})
	path := "/ui/endpoints/" + f.endpoints[4].ID
	b.Open(path)
	b.WaitUntil("the buttons that copy", "document.querySelector('button[data-copy]:not([hidden])')")
	b.Open(path + "/edit")
	setPolicy(b, "# mine\\n"+onePolicy)
	chromium.Eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
	b.WaitUntil("the difference", "document.querySelector('.diff ins')?.textContent.includes('# mine')")
}

// testFocusInEditor goes through the form with the tab key: whatever has the focus shows it, the
// editor of the policy around its whole.
func testFocusInEditor(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.Open("/ui/endpoints/" + f.endpoints[4].ID + "/edit")
	chromium.Eval[bool](b, "(document.querySelector('.crumb a').focus(), true)")
	for range 3 {
		if b.Press(kb.Tab); chromium.Eval[string](b, "document.activeElement.id") == "description" {
			break
		}
	}
	var ids []string
	for range 7 {
		at := chromium.Eval[[]string](b,
			`(() => { const el = document.activeElement, s = getComputedStyle(el.closest(".editor") ?? el);
			return [el.id || el.textContent, s.outlineStyle, s.outlineWidth]; })()`)
		if ids = append(ids, at[0]); at[1] != "solid" || at[2] != "2px" {
			t.Errorf("the focus on %s cannot be seen: %s", at[0], at[1:])
		}
		b.Press(kb.Tab)
	}
	want := "description backend_id traffic_policy pooling_enabled metadata Cancel Review changes"
	if got := strings.Join(ids, " "); !strings.HasPrefix(got, want) {
		t.Errorf("the tab key leads along %q, want %q", got, want)
	}
}
