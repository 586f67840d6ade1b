// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
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
	ctx := chromium(t)
	for name, test := range map[string]func(*testing.T, *tab, *site){
		"accessibility": testAccessibility, "hostile text": testHostileText, "live": testLive, "filters": testFilters,
		"keys": testKeys, "pause": testPause, "without scripts": testWithoutScripts, "reveal": testReveal,
		"replay": testReplay, "open request": testOpenRequest,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			b := &tab{t, ctx, s.url}
			b.scripts(true)
			b.size(1280, 720, "light")
			// ends what is still open, so that the server can close
			t.Cleanup(func() { _ = chromedp.Do(ctx, chromedp.Navigate("about:blank")) })
			test(t, b, s)
		})
	}
}

func testAccessibility(t *testing.T, b *tab, s *site) {
	accessible, err := os.ReadFile("../../../service/dashboard/testdata/accessible.js")
	if err != nil {
		t.Fatal(err)
	}
	s.rec.add(samples()...)
	for _, path := range samplePaths() {
		b.size(1280, 720, "light")
		b.open(path)
		for _, theme := range []string{"light", "dark"} {
			b.size(1280, 720, theme)
			for _, complaint := range eval[[]string](b, string(accessible)) {
				t.Errorf("%s, %s: %s", path, theme, complaint)
			}
		}
		checkTree(t, b, path)
		for _, width := range []int64{320, 390, 768, 2560} {
			b.size(width, 720, "light")
			if is := eval[int64](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); is >
				0 {
				t.Errorf("%s at %d pixels: %d pixels lie outside", path, width, is)
			}
		}
		b.size(390, 844, "light")
		checkTree(t, b, path+" at 390 pixels")
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
		if n.Ignored {
			continue
		}
		role := value(n.Role)
		roles[role]++
		switch role {
		case "link", "button", "textbox", "searchbox", "combobox", "checkbox", "table", "navigation", "region", "image":
			if strings.TrimSpace(value(n.Name)) == "" {
				t.Errorf("%s: a %s has no name", page, role)
			}
		}
	}
	shown := eval[map[string]int](b, `(() => {
		const shown = (el) => !el.closest("[hidden]");
		const count = (selector) => [...document.querySelectorAll(selector)].filter(shown).length;
		return {table: count("table"), row: count("tr"), rowheader: count("tbody th"), columnheader: count("thead th")};
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

func testLive(t *testing.T, b *tab, s *site) {
	b.open("/")
	b.until("the stream", "'following' in document.body.dataset")
	b.until("the words for none",
		"document.getElementById('requests').hidden && !document.getElementById('empty').hidden")
	open := samples()[5]
	s.rec.add(open)
	b.until("a request", `document.querySelector("[data-key=open] .status.open")?.textContent === "open"`)
	s.rec.set(exchange("open", "GET", "/slow", 502, "", ""))
	b.until("its answer", `document.querySelector("[data-key=open] .status.failed")?.textContent === "502"`)
	for i := range 150 {
		s.rec.add(exchange(fmt.Sprintf("n-%d", i), "GET", "/n", 200, "text/plain", "x"))
	}
	b.until("the newest 100", `document.querySelectorAll("#requests tbody tr").length === 100 &&
		document.querySelector("#requests tbody tr").dataset.key === "n-149" &&
		document.getElementById("count").textContent === "The newest 100 requests"`)
	b.do(chromedp.Click(chromedp.CSS("form[action='/clear'] button")))
	b.until("that the list is empty", `location.pathname === "/" && document.getElementById("requests").hidden`)
}

func testFilters(t *testing.T, b *tab, s *site) {
	s.rec.add(exchange("a", "GET", "/apple", 200, "", ""), exchange("b", "GET", "/banana", 404, "", ""))
	b.open("/")
	b.until("the stream", "'following' in document.body.dataset")
	eval[bool](b, "window.same = true")
	eval[bool](b, "(document.getElementById('path').focus(), true)")
	b.press("bana")
	b.until("one row",
		`location.search === "?path=bana" && document.querySelectorAll("#requests tbody tr").length === 1 &&
		document.querySelector("[data-har]").getAttribute("href") === "/har?path=bana"`)
	b.press("zzz")
	b.until("that nothing matches", "!document.getElementById('empty').hidden && "+
		"document.getElementById('empty').innerText.includes('No request matches')")
	if !eval[bool](b, "window.same === true && document.activeElement.id === 'path'") {
		t.Error("a filter has left the page, or moved the focus")
	}
	b.open("/?status=404")
	b.until("those of a status", `document.querySelectorAll("#requests tbody tr").length === 1 &&
		document.getElementById("status").value === "404"`)
}

func testKeys(t *testing.T, b *tab, s *site) {
	s.rec.add(exchange("a", "GET", "/a", 200, "", ""), exchange("b", "GET", "/b", 200, "", ""))
	b.open("/")
	focused := func() string { return eval[string](b, "document.activeElement.closest('tr')?.dataset.key ?? ''") }
	for _, step := range []struct{ key, want string }{{"j", "b"}, {"j", "a"}, {"j", "a"}, {"k", "b"}} {
		if b.press(step.key); focused() != step.want {
			t.Errorf("%s leads to %q, want %q", step.key, focused(), step.want)
		}
	}
	s.rec.add(exchange("c", "GET", "/c", 200, "", ""))
	b.until("a new row", `document.querySelector("[data-key=c]")`)
	if focused() != "b" {
		t.Errorf("a new row moves the focus to %q", focused())
	}
	b.press(kb.Enter)
	b.until("the request", "location.pathname === '/requests/b' && document.readyState === 'complete'")
	b.press("e")
	b.until("the form", "location.pathname === '/requests/b/edit' && document.readyState === 'complete'")
	b.press("u")
	b.until("the list", "location.pathname === '/' && document.readyState === 'complete'")
	b.press("/")
	if got := eval[string](b, "document.activeElement.id"); got != "text" {
		t.Errorf("/ leads to %q", got)
	}
	eval[bool](b, "(document.getElementById('text').value = '', true)") // the browser's protocol sends the slash, too
	b.press("jp")
	if got := eval[string](b, "document.getElementById('text').value"); got != "jp" {
		t.Errorf("in a field, letters are keys: %q", got)
	}
	b.do(chromedp.Click(chromedp.CSS(".help summary")), chromedp.Click(chromedp.CSS("#keys")))
	eval[bool](b, "(document.activeElement.blur(), true)")
	if b.press("j"); focused() != "" {
		t.Error("keys that are turned off move the focus")
	}
	eval[bool](b, "(localStorage.clear(), true)")
}

func testPause(_ *testing.T, b *tab, s *site) {
	s.rec.add(exchange("a", "GET", "/a", 200, "", ""))
	b.open("/")
	b.until("the stream", "'following' in document.body.dataset")
	b.press("p")
	b.until("the pause", "document.getElementById('pause').getAttribute('aria-pressed') === 'true'")
	s.rec.add(exchange("b", "GET", "/b", 200, "", ""))
	b.until("what waits", "document.getElementById('waiting').textContent === 'Paused; 1 new' && "+
		"document.querySelectorAll('#requests tbody tr').length === 1")
	b.press("p")
	b.until("both", "document.querySelectorAll('#requests tbody tr').length === 2 && "+
		"document.getElementById('waiting').textContent === ''")
}

func testWithoutScripts(t *testing.T, b *tab, s *site) {
	s.rec.add(samples()...)
	b.scripts(false)
	b.open("/")
	b.do(chromedp.SendKeys(chromedp.CSS("#path"), "upload"+kb.Enter))
	b.until("the filter",
		"location.search.includes('path=upload') && document.querySelectorAll('#requests tbody tr').length === 1")
	b.do(chromedp.Click(chromedp.CSS("#requests tbody a")))
	b.until("the request",
		"location.pathname === '/requests/multi' && document.querySelector('.parts img')?.naturalWidth === 40")
	b.open("/requests/secret")
	b.do(chromedp.Click(chromedp.CSS("button[value='all']")))
	b.until("the secrets", fmt.Sprintf("document.body.innerText.includes(%q)", secretBearer))
	b.open("/requests/form/edit")
	b.do(chromedp.Click(chromedp.CSS("form.form button")))
	b.until("the replay", "location.pathname === '/requests/replay-1'")
	if len(s.rec.replayed()) != 1 || s.rec.replayed()[0].Body != nil || s.rec.replayed()[0].Header != nil {
		t.Errorf("replays: %+v", s.rec.replayed())
	}
}

func testReveal(t *testing.T, b *tab, s *site) {
	s.rec.add(secretExchange())
	b.open("/requests/secret")
	if html := eval[string](b, "document.documentElement.outerHTML"); strings.Contains(html, "planted") {
		t.Error("a secret is in the page before the click")
	}
	b.do(chromedp.Click(chromedp.CSS("button[value='request/Authorization']")))
	b.until("the value", fmt.Sprintf("document.body.innerText.includes(%q)", secretBearer))
	if html := eval[string](b, "document.documentElement.outerHTML"); strings.Contains(html, secretCookie) {
		t.Error("a click shows another secret, too")
	}
}

func testReplay(t *testing.T, b *tab, s *site) {
	s.rec.add(secretExchange())
	b.open("/requests/secret")
	b.do(chromedp.Click(chromedp.CSS("form[action$='/replay'] button")))
	b.until("the replay", "location.pathname === '/requests/replay-1' && document.readyState === 'complete'")
	b.open("/requests/secret/edit")
	eval[bool](b, "(document.getElementById('target').value = '/changed?x=1', true)")
	b.do(chromedp.Click(chromedp.CSS("form.form button.primary")))
	b.until("the changed one", "location.pathname === '/requests/replay-2' && "+
		"document.querySelector('h1')?.innerText.includes('/changed?x=1')")
	if c := s.rec.replayed()[1]; c.Path != "/changed?x=1" || c.Header != nil || c.Body != nil || c.Method != "" {
		t.Errorf("%+v", c)
	}
}

func testOpenRequest(_ *testing.T, b *tab, s *site) {
	s.rec.add(samples()[5])
	b.open("/requests/open")
	b.until("that it goes on", "document.body.innerText.includes('Still going on')")
	s.rec.set(exchange("open", "GET", "/slow", 200, "text/plain", "the answer"))
	b.until("its answer, and what can be done with it", "document.body.innerText.includes('the answer') && "+
		"document.querySelector('form[action$=\"/replay\"]')")
}
