// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	policyText     = "document.getElementById('traffic_policy')"
	findingsCount  = "document.getElementById('findings-count').textContent"
	markedLines    = "[...document.querySelectorAll('.gutter .marked')].map((line) => line.textContent).join(' ')"
	numberOfLines  = "document.querySelectorAll('.gutter span').length"
	onePolicy      = "on_http_request:\\n  - actions:\\n      - type: deny\\n"
	anotherPolicy  = "on_http_request:\\n  - actions:\\n      - type: denyy\\n"
	pressOfAButton = "(document.querySelector('button[value=%s]:not(.unseen)').click(), true)"
)

// setPolicy puts a text into the editor as if it was pasted.
func (b *tab) setPolicy(text string) {
	b.t.Helper()
	eval[bool](b,
		fmt.Sprintf("(%[1]s.value = \"%[2]s\", %[1]s.dispatchEvent(new InputEvent('input', {bubbles: true})), true)",
			policyText, text))
}

// pressEnter presses the key as a keyboard does: a script that handles the key leaves no line break
// to the browser. Keys of chromedp are two events, and the browser takes both.
func (b *tab) pressEnter() {
	b.t.Helper()
	enter := input.DispatchKeyEventParams{Type: "keyDown", Key: "Enter", Code: "Enter", Text: "\r",
		WindowsVirtualKeyCode: 13, NativeVirtualKeyCode: 13}
	sendCommand(b, input.DispatchKeyEvent, enter)
	enter.Type, enter.Text = "keyUp", ""
	sendCommand(b, input.DispatchKeyEvent, enter)
}

func testPolicyEditor(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	path := "/ui/endpoints/" + f.endpoints[4].ID
	b.open(path + "/edit")
	if n := eval[int](b, numberOfLines); n < 12 || eval[int](b, policyText+".rows") != n {
		t.Errorf("%d numbers beside the lines", n)
	}
	b.setPolicy(anotherPolicy)
	b.until("the finding", findingsCount+" === '1 mistake'")
	if got := eval[string](b, markedLines); got != "3" {
		t.Errorf("marked lines: %s", got)
	}
	for _, theme := range []string{"light", "dark"} {
		b.size(1280, 720, theme)
		for _, complaint := range eval[[]string](b, accessible) {
			t.Errorf("%s: %s", theme, complaint)
		}
	}
	checkTree(t, b, "the editor with a finding")
	b.do(chromedp.Click(chromedp.CSS("#findings li a")))
	b.until("the caret at the mistake", "document.activeElement === "+policyText+" && "+policyText+
		".value.slice("+policyText+".selectionStart).startsWith('denyy')")
	b.press(kb.End + kb.Backspace)
	b.until("that it is mended", findingsCount+" === 'No mistakes.' && "+markedLines+" === '' && !"+policyText+
		".hasAttribute('aria-invalid')")
	// Lines that are added get numbers, those that go lose theirs.
	b.setPolicy(strings.Repeat("# x\\n", 40))
	b.until("42 lines", numberOfLines+" === 42 && "+policyText+".scrollHeight <= "+policyText+".clientHeight + 1")
	b.setPolicy("# mine\\n" + onePolicy)
	b.until("12 lines", numberOfLines+" === 12")
	align := "(() => { const box = (el) => el.getBoundingClientRect(); const style = getComputedStyle(" + policyText +
		"); return Math.abs(box(document.querySelector('.gutter span:nth-of-type(3)')).top - box(" + policyText +
		").top - parseFloat(style.paddingTop) - 2 * parseFloat(style.lineHeight)); })()"
	if off := eval[float64](b, align); off > 4 {
		t.Errorf("the third number is %g pixels off its line", off)
	}
	eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
	b.until("the difference", "document.querySelector('.diff ins')?.textContent.includes('# mine') && "+
		"document.querySelector('.diff del')?.textContent.includes('openid-connect')")
	for _, theme := range []string{"light", "dark"} {
		b.size(1280, 720, theme)
		for _, complaint := range eval[[]string](b, accessible) {
			t.Errorf("the review, %s: %s", theme, complaint)
		}
	}
	checkTree(t, b, "the review")
	eval[bool](b, fmt.Sprintf(pressOfAButton, stepSave))
	b.until("what was done",
		"document.querySelector('.notice')?.textContent.includes('saved') && location.pathname === '"+
			path+"'")
	if got := f.endpoints[4].TrafficPolicy; got != strings.ReplaceAll("# mine\\n"+onePolicy, "\\n", "\n") {
		t.Errorf("saved %q", got)
	}
}

func testEditorWithoutScripts(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	sendCommand(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	path := "/ui/endpoints/" + f.endpoints[3].ID
	b.open(path + "/edit")
	b.do(chromedp.SendKeys(chromedp.CSS("#traffic_policy"), "inbound: []"),
		chromedp.Click(chromedp.CSS("button[value=check]")))
	b.until("the finding", findingsCount+" === '1 mistake' && "+markedLines+" === '1' && "+policyText+
		".value === 'inbound: []'")
	f.patchAsOther(t, f.endpoints[3].ID, account.EndpointPatch{Metadata: new("Theirs")})
	b.do(chromedp.SendKeys(chromedp.CSS("#traffic_policy"), kb.End+strings.Repeat(kb.Backspace, 11)),
		chromedp.SendKeys(chromedp.CSS("#description"), kb.End+" of mine"),
		chromedp.Click(chromedp.CSS(".buttons button[value=review]")))
	b.until("the conflict", "document.querySelector('h1')?.textContent.startsWith('Another has saved')")
	b.do(chromedp.Click(chromedp.CSS("button[value=save]")))
	b.until("what was done", "document.querySelector('.notice')?.textContent.includes('saved')")
	if e := f.endpoints[3]; e.Description != "Shop with failover of mine" || e.Metadata != "Theirs" {
		t.Errorf("saved %+v", e)
	}
}

// testEditorByKeyboard makes a backend without a mouse, and leaves the text of a policy by the tab
// key.
func testEditorByKeyboard(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	b.open("/ui/backends/new/static")
	b.write("address", "db.example.com:5432")
	b.press(kb.Enter)
	b.until("the new backend", "document.querySelector('.notice')?.textContent.includes('backend is made')")
	b.open("/ui/endpoints/new")
	b.write("url", "http://keyboard.demo")
	eval[bool](b, "("+policyText+".focus(), true)")
	for i, line := range []string{"on_http_request:", "- actions:", "- type: deny"} {
		if i > 0 {
			b.pressEnter()
		}
		b.press(line)
	}
	if got := eval[string](b, policyText+".value"); got != "on_http_request:\n  - actions:\n      - type: deny" {
		t.Errorf("indented as %q", got)
	}
	b.until("no mistake", findingsCount+" === 'No mistakes.'")
	b.press(kb.Tab)
	if eval[bool](b, "document.activeElement === "+policyText) {
		t.Error("the tab key does not leave the editor")
	}
	eval[bool](b, "(document.getElementById('url').focus(), true)")
	b.press(kb.Enter)
	b.until("the new endpoint", "document.querySelector('.notice')?.textContent.includes('cloud endpoint is made')")
	if e := f.endpoints[len(f.endpoints)-1]; !strings.Contains(e.TrafficPolicy, "deny") {
		t.Errorf("made %+v", e)
	}
}

func testEditorOnPhone(t *testing.T, b *tab, f *fake, srv *httptest.Server) {
	session := signedInAs(t, srv, "flk_admin")
	b.size(390, 844, "dark")
	path := "/ui/endpoints/" + f.endpoints[4].ID + "/edit"
	review := session.send(path, session.get(path).body, stepReview, url.Values{policyField: {
		"# " + strings.Repeat("a long line ", 40)}, "description": {strings.Repeat("Longname", 28)}})
	if !strings.Contains(review.body, "a long line") {
		t.Fatalf("no review: %d", review.status)
	}
	for _, p := range []string{path, "/ui/backends/" + f.backends[5].ID + "/edit",
		"/ui/backends/" + f.backends[3].ID + "/edit"} {
		b.open(p)
		if p == path {
			b.setPolicy("# " + strings.Repeat("a long line ", 40))
			eval[bool](b, "(document.getElementById('description').value = 'x'.repeat(200), true)")
		}
		if wide := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("%s: %d pixels lie outside", p, wide)
		}
		if p != path {
			continue
		}
		eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
		b.until("the review", "document.querySelector('.diff')")
		if wide := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("the review: %d pixels lie outside", wide)
		}
	}
}

// testEditorOverSignIn ends the sign-in while a person types: nothing is lost.
func testEditorOverSignIn(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	path := "/ui/endpoints/" + f.endpoints[4].ID
	b.open(path + "/edit")
	f.set(func() { clear(f.signIns) })
	b.setPolicy("# mine\\n" + onePolicy)
	b.until("that the sign-in has ended", findingsCount+".startsWith('You are signed out.')")
	eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
	b.until("the sign-in page", "document.querySelector('.kept') && document.activeElement.id === 'key'")
	for _, complaint := range eval[[]string](b, accessible) {
		t.Error(complaint)
	}
	b.write("key", "flk_admin")
	b.press(kb.Enter)
	b.until("the form with what was typed", "location.pathname === '"+path+"/edit' && "+policyText+
		".value.startsWith('# mine') && document.querySelector('.notice').textContent.includes('signed in again')")
	eval[bool](b, fmt.Sprintf(pressOfAButton, stepReview))
	b.until("the difference", "document.querySelector('.diff ins')?.textContent.includes('# mine')")
	eval[bool](b, fmt.Sprintf(pressOfAButton, stepSave))
	b.until("what was done", "document.querySelector('.notice')?.textContent.includes('saved')")
}

// testFocusInEditor goes through the form with the tab key: whatever has the focus shows it, the
// editor of the policy around its whole.
func testFocusInEditor(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	b.open("/ui/endpoints/" + f.endpoints[4].ID + "/edit")
	eval[bool](b, "(document.querySelector('.crumb a').focus(), true)")
	for range 3 {
		if b.press(kb.Tab); eval[string](b, "document.activeElement.id") == "description" {
			break
		}
	}
	var ids []string
	for range 7 {
		at := eval[[]string](b,
			`(() => { const el = document.activeElement, s = getComputedStyle(el.closest(".editor") ?? el);
			return [el.id || el.textContent, s.outlineStyle, s.outlineWidth]; })()`)
		if ids = append(ids, at[0]); at[1] != "solid" || at[2] != "2px" {
			t.Errorf("the focus on %s cannot be seen: %s", at[0], at[1:])
		}
		b.press(kb.Tab)
	}
	want := "description backend_id traffic_policy pooling_enabled metadata Cancel Review changes"
	if got := strings.Join(ids, " "); !strings.HasPrefix(got, want) {
		t.Errorf("the tab key leads along %q, want %q", got, want)
	}
}
