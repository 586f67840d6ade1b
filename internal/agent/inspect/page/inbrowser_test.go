// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/test/support/chromium"
)

// hostile is text that would run, or change the page, if anything of it were not escaped.
const hostile = `"><script>window.pwned=1</script><img src=x onerror="window.pwned=1"></textarea></template></code>` +
	`<style>*{display:none}</style>{{.}}&#x3c;` + "\u202e"

// samples returns exchanges of every kind that a page shows.
func samples() []*inspect.Exchange {
	form := exchange("form", "POST", "/form", 200, "text/html", "<!doctype html><p>"+hostile)
	form.Request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	form.Request.Body = []byte("name=Ann&empty=&=nothing&text=%3Cb%3E")
	multi := exchange("multi", "POST", "/upload", 413, "application/octet-stream", "\x00\x01\x02binary")
	multi.Request.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	multi.Request.Body = []byte("--x\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhello\r\n--x\r\n" +
		"Content-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n" +
		string(pngOf(40, 20)) + "\r\n--x--\r\n")
	evil := exchange("evil", "GET", "/?q="+hostile, 500, hostile, hostile)
	evil.Request.Method, evil.EndpointURL, evil.Error, evil.ReplayOf = "G"+hostile, hostile, hostile, hostile
	evil.Caller = inspect.Caller{IP: hostile, Pod: hostile, Namespace: hostile, ServiceAccount: hostile,
		Cluster: hostile,
		Person:  hostile}
	evil.Request.Header = http.Header{hostile: {hostile}, "Content-Type": {"text/html"}, "Cookie": {hostile}}
	evil.Request.Body = []byte(hostile)
	evil.Response.Trailer = http.Header{hostile: {hostile}}
	evil.Frames = []inspect.Frame{{Kind: hostile, Data: []byte(hostile)},
		{Kind: inspect.FrameBinary, Data: []byte{0, 1}}}
	evil.Lost, evil.FramesDropped = 99, 7
	open := exchange("open", "GET", "/slow", 0, "", "")
	open.Response, open.Done, open.Duration = nil, false, 0
	return []*inspect.Exchange{secretExchange(), form, multi, exchange("png", "GET", "/a.png", 200, "image/png",
		string(pngOf(30, 30))), rawExchange(), open, evil}
}

func samplePaths() []string {
	paths := []string{"/", "/?status=404&text=none", "/none", "/requests/secret/edit", "/requests/secret/curl"}
	for _, e := range samples() {
		paths = append(paths, "/requests/"+e.ID)
	}
	return append(paths, "/requests/evil/edit", "/requests/evil/curl")
}

// TestInspector_InBrowser drives one real browser through everything that scripts, style and keys
// do.
func TestInspector_InBrowser(t *testing.T) {
	ctx := chromium.Start(t, false)
	for name, test := range map[string]func(*testing.T, *chromium.Tab, *site){
		"accessibility": testAccessibility, "hostile text": testHostileText, "live": testLive, "filters": testFilters,
		"keys": testKeys, "pause": testPause, "without scripts": testWithoutScripts, "reveal": testReveal,
		"replay": testReplay, "open request": testOpenRequest,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			b := &chromium.Tab{T: t, Ctx: ctx, Base: s.url}
			b.EnableScripts(true)
			b.Resize(1280, 720, "light")
			// ends what is still open, so that the server can close
			t.Cleanup(func() { _ = chromedp.Do(ctx, chromedp.Navigate("about:blank")) })
			test(t, b, s)
		})
	}
}

func testAccessibility(t *testing.T, b *chromium.Tab, s *site) {
	s.rec.add(samples()...)
	for _, path := range samplePaths() {
		b.Resize(1280, 720, "light")
		b.Open(path)
		b.CheckThemes(path)
		b.CheckWidths(path, 320, 390, 768, 2560)
		b.Resize(390, 844, "light")
		b.CheckTree(path + " at 390 pixels")
	}
}

func testLive(t *testing.T, b *chromium.Tab, s *site) {
	b.Open("/")
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	b.WaitUntil("the words for none",
		"document.getElementById('requests').hidden && !document.getElementById('empty').hidden")
	open := samples()[5]
	s.rec.add(open)
	b.WaitUntil("a request", `document.querySelector("[data-key=open] .status.open")?.textContent === "open"`)
	s.rec.set(exchange("open", "GET", "/slow", 502, "", ""))
	b.WaitUntil("its answer", `document.querySelector("[data-key=open] .status.failed")?.textContent === "502"`)
	for i := range 150 {
		s.rec.add(exchange(fmt.Sprintf("n-%d", i), "GET", "/n", 200, "text/plain", "x"))
	}
	b.WaitUntil("the newest 100", `document.querySelectorAll("#requests tbody tr").length === 100 &&
		document.querySelector("#requests tbody tr").dataset.key === "n-149" &&
		document.getElementById("count").textContent === "The newest 100 requests"`)
	b.Do(chromedp.Click(chromedp.CSS("form[action='/clear'] button")))
	b.WaitUntil("that the list is empty", `location.pathname === "/" && document.getElementById("requests").hidden`)
}

func testFilters(t *testing.T, b *chromium.Tab, s *site) {
	s.rec.add(exchange("a", "GET", "/apple", 200, "", ""), exchange("b", "GET", "/banana", 404, "", ""))
	b.Open("/")
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	chromium.Eval[bool](b, "window.same = true")
	chromium.Eval[bool](b, "(document.getElementById('path').focus(), true)")
	b.Press("bana")
	b.WaitUntil("one row",
		`location.search === "?path=bana" && document.querySelectorAll("#requests tbody tr").length === 1 &&
		document.querySelector("[data-har]").getAttribute("href") === "/har?path=bana"`)
	b.Press("zzz")
	b.WaitUntil("that nothing matches", "!document.getElementById('empty').hidden && "+
		"document.getElementById('empty').innerText.includes('No request matches')")
	if !chromium.Eval[bool](b, "window.same === true && document.activeElement.id === 'path'") {
		t.Error("a filter has left the page, or moved the focus")
	}
	b.Open("/?status=404")
	b.WaitUntil("those of a status", `document.querySelectorAll("#requests tbody tr").length === 1 &&
		document.getElementById("status").value === "404"`)
}

func testKeys(t *testing.T, b *chromium.Tab, s *site) {
	s.rec.add(exchange("a", "GET", "/a", 200, "", ""), exchange("b", "GET", "/b", 200, "", ""))
	b.Open("/")
	focused := func() string {
		return chromium.Eval[string](b, "document.activeElement.closest('tr')?.dataset.key ?? ''")
	}
	for _, step := range []struct{ key, want string }{{"j", "b"}, {"j", "a"}, {"j", "a"}, {"k", "b"}} {
		if b.Press(step.key); focused() != step.want {
			t.Errorf("%s leads to %q, want %q", step.key, focused(), step.want)
		}
	}
	s.rec.add(exchange("c", "GET", "/c", 200, "", ""))
	b.WaitUntil("a new row", `document.querySelector("[data-key=c]")`)
	if focused() != "b" {
		t.Errorf("a new row moves the focus to %q", focused())
	}
	b.Press(kb.Enter)
	b.WaitUntil("the request", "location.pathname === '/requests/b' && document.readyState === 'complete'")
	b.Press("e")
	b.WaitUntil("the form", "location.pathname === '/requests/b/edit' && document.readyState === 'complete'")
	b.Press("u")
	b.WaitUntil("the list", "location.pathname === '/' && document.readyState === 'complete'")
	b.Press("/")
	if got := chromium.Eval[string](b, "document.activeElement.id"); got != "text" {
		t.Errorf("/ leads to %q", got)
	}
	// The browser's protocol sends the slash, too.
	chromium.Eval[bool](b, "(document.getElementById('text').value = '', true)")
	b.Press("jp")
	if got := chromium.Eval[string](b, "document.getElementById('text').value"); got != "jp" {
		t.Errorf("in a field, letters are keys: %q", got)
	}
	b.Do(chromedp.Click(chromedp.CSS(".help summary")), chromedp.Click(chromedp.CSS("#keys")))
	chromium.Eval[bool](b, "(document.activeElement.blur(), true)")
	if b.Press("j"); focused() != "" {
		t.Error("keys that are turned off move the focus")
	}
	chromium.Eval[bool](b, "(localStorage.clear(), true)")
}

func testPause(_ *testing.T, b *chromium.Tab, s *site) {
	s.rec.add(exchange("a", "GET", "/a", 200, "", ""))
	b.Open("/")
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	b.Press("p")
	b.WaitUntil("the pause", "document.getElementById('pause').getAttribute('aria-pressed') === 'true'")
	s.rec.add(exchange("b", "GET", "/b", 200, "", ""))
	b.WaitUntil("what waits", "document.getElementById('waiting').textContent === 'Paused; 1 new' && "+
		"document.querySelectorAll('#requests tbody tr').length === 1")
	b.Press("p")
	b.WaitUntil("both", "document.querySelectorAll('#requests tbody tr').length === 2 && "+
		"document.getElementById('waiting').textContent === ''")
}

func testWithoutScripts(t *testing.T, b *chromium.Tab, s *site) {
	s.rec.add(samples()...)
	b.EnableScripts(false)
	b.Open("/")
	b.Do(chromedp.SendKeys(chromedp.CSS("#path"), "upload"+kb.Enter))
	b.WaitUntil("the filter",
		"location.search.includes('path=upload') && document.querySelectorAll('#requests tbody tr').length === 1")
	b.Do(chromedp.Click(chromedp.CSS("#requests tbody a")))
	b.WaitUntil("the request",
		"location.pathname === '/requests/multi' && document.querySelector('.parts img')?.naturalWidth === 40")
	b.Open("/requests/secret")
	b.Do(chromedp.Click(chromedp.CSS("button[value='all']")))
	b.WaitUntil("the secrets", fmt.Sprintf("document.body.innerText.includes(%q)", secretBearer))
	b.Open("/requests/form/edit")
	b.Do(chromedp.Click(chromedp.CSS("form.form button")))
	b.WaitUntil("the replay", "location.pathname === '/requests/replay-1'")
	if len(s.rec.replayed()) != 1 || s.rec.replayed()[0].Body != nil || s.rec.replayed()[0].Header != nil {
		t.Errorf("replays: %+v", s.rec.replayed())
	}
}

func testReveal(t *testing.T, b *chromium.Tab, s *site) {
	s.rec.add(secretExchange())
	b.Open("/requests/secret")
	if html := chromium.Eval[string](b, "document.documentElement.outerHTML"); strings.Contains(html, "planted") {
		t.Error("a secret is in the page before the click")
	}
	b.Do(chromedp.Click(chromedp.CSS("button[value='request/Authorization']")))
	b.WaitUntil("the value", fmt.Sprintf("document.body.innerText.includes(%q)", secretBearer))
	if html := chromium.Eval[string](b, "document.documentElement.outerHTML"); strings.Contains(html, secretCookie) {
		t.Error("a click shows another secret, too")
	}
}

func testReplay(t *testing.T, b *chromium.Tab, s *site) {
	s.rec.add(secretExchange())
	b.Open("/requests/secret")
	b.Do(chromedp.Click(chromedp.CSS("form[action$='/replay'] button")))
	b.WaitUntil("the replay", "location.pathname === '/requests/replay-1' && document.readyState === 'complete'")
	b.Open("/requests/secret/edit")
	chromium.Eval[bool](b, "(document.getElementById('target').value = '/changed?x=1', true)")
	b.Do(chromedp.Click(chromedp.CSS("form.form button.primary")))
	b.WaitUntil("the changed one", "location.pathname === '/requests/replay-2' && "+
		"document.querySelector('h1')?.innerText.includes('/changed?x=1')")
	if c := s.rec.replayed()[1]; c.Path != "/changed?x=1" || c.Header != nil || c.Body != nil || c.Method != "" {
		t.Errorf("%+v", c)
	}
}

func testOpenRequest(_ *testing.T, b *chromium.Tab, s *site) {
	s.rec.add(samples()[5])
	b.Open("/requests/open")
	b.WaitUntil("that it goes on", "document.body.innerText.includes('Still going on')")
	s.rec.set(exchange("open", "GET", "/slow", 200, "text/plain", "the answer"))
	b.WaitUntil("its answer, and what can be done with it", "document.body.innerText.includes('the answer') && "+
		"document.querySelector('form[action$=\"/replay\"]')")
}
