// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	_ "embed"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead-dev/fairlead/test/support/chromium"
)

// drawings is a script that returns what is wrong with the drawings of a page.
//
//go:embed testdata/drawings.js
var drawings string

// testCharts looks at the drawings in both themes, on a wide screen and a phone.
func testCharts(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	f.addMany(200)
	for _, path := range []string{"/ui/traffic", "/ui/traffic?window=day",
		"/ui/endpoints/" + f.endpoints[0].ID + "/traffic",
		"/ui/endpoints/" + f.endpoints[1].ID + "/traffic", "/ui/endpoints/" + f.endpoints[6].ID + "/traffic",
		"/ui/map"} {
		for _, width := range []int64{1280, 390} {
			b.Resize(width, 844, "light")
			b.Open(path)
			for _, theme := range []string{"light", "dark"} {
				b.Resize(width, 844, theme)
				for _, complaint := range chromium.Eval[[]string](b, drawings) {
					t.Errorf("%s, %d pixels, %s: %s", path, width, theme, complaint)
				}
			}
			b.CheckWidth(fmt.Sprintf("%s at %d pixels", path, width))
		}
	}
	b.Resize(1280, 844, "light")
	b.Open("/ui/traffic")
	chromium.Eval[bool](b, "(document.querySelector('.values summary').click(), true)")
	b.CheckPage("traffic with a table open")
	b.CheckTree("traffic with a table open")
}

func testChartsLive(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.Resize(1280, 600, "light")
	b.Open("/ui/traffic")
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	chromium.Eval[bool](b, `(() => {
		window.same = true;
		const summary = document.querySelectorAll(".values summary")[1];
		summary.focus();
		summary.click();
		window.scrollTo(0, 200);
		window.path = document.querySelector(".plot .line");
		window.before = window.path.getAttribute("d");
		return true;
	})()`)
	f.change(func() { f.busy = 3 })
	b.WaitUntil("the new drawing", "window.path.isConnected && window.path.getAttribute('d') !== window.before")
	state := chromium.Eval[string](b, `(() => {
		const open = document.querySelectorAll(".values[open]");
		const at = document.activeElement.closest("section").querySelector("h2").textContent;
		const rows = open[0].querySelectorAll("tbody tr").length;
		return [window.same, window.scrollY > 0, at, open.length, rows > 10].join("|");
	})()`)
	if state != "true|true|Answers by status|1|true" {
		t.Errorf("same page, scrolled, focus, open tables, rows: %s", state)
	}
}

func testMap(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	f.addMany(200)
	b.Resize(1280, 844, "light")
	b.Open("/ui/map")
	state := chromium.Eval[string](b, `(() => {
		const rows = [...document.querySelectorAll(".map tbody tr")];
		const links = [...document.querySelectorAll(".arrow.broken a")].filter((a) => a.pathname.endsWith("/path"));
		const high = rows.filter((tr) => tr.offsetHeight > 120);
		return [rows.length, document.querySelectorAll(".arrow.broken").length, links.length, high.length].join("|");
	})()`)
	if high := chromium.Eval[int](b, "document.documentElement.scrollHeight"); high > 5000 {
		t.Errorf("the map of 207 endpoints is %d pixels high", high)
	}
	if state != "207|22|22|0" {
		t.Errorf("rows, broken hops, those with an explanation, rows that are high: %s", state)
	}
	chromium.Eval[bool](b, `(document.querySelector(".jump a[href='#in-team-7']").click(), true)`)
	b.WaitUntil("the group",
		"location.hash === '#in-team-7' && "+
			"Math.abs(document.getElementById('in-team-7').getBoundingClientRect().top) < 60")
	b.Open("/ui/map?state=broken&q=ledger")
	for range 60 {
		if chromium.Eval[bool](b, "document.activeElement.matches('.arrow.broken a')") {
			break
		}
		b.Press(kb.Tab)
	}
	b.Press(kb.Enter)
	b.WaitUntil("the explanation", "location.pathname.endsWith('/path') && "+
		"document.querySelector('#live').textContent.includes('No agent is connected for http://ledger.prod')")
	b.Resize(390, 844, "light")
	b.Open("/ui/map")
	order := chromium.Eval[string](b, `[...document.querySelector(".map tbody tr").children]
		.map((cell) => [cell.getBoundingClientRect().top, cell.localName])
		.sort((a, b) => a[0] - b[0]).map((at) => at[1]).join(" ")`)
	if !strings.HasPrefix(order, "th") {
		t.Errorf("on a phone a row begins with %s, want the endpoint", order)
	}
	if narrow := chromium.Eval[int](b, `[...document.querySelectorAll(".map tbody th")]
		.filter((th) => th.offsetHeight > 0 && th.offsetWidth < 300).length`); narrow > 0 {
		t.Errorf("on a phone the names of %d endpoints are wrapped to a part of its width", narrow)
	}
	// What was unfolded stays so while the page keeps itself up to date.
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	chromium.Eval[bool](b, "(document.querySelector('.quiet-rows summary').click(), true)")
	f.change(func() { f.busy = 3 })
	b.WaitUntil("the new rate", "document.querySelector('#live').textContent.includes('37.2/s') && "+
		"document.querySelectorAll('.quiet-rows[open] tbody tr').length > 0")
}

// testTextInDrawings fills every field with HTML and a script: nothing of it becomes an element.
func testTextInDrawings(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	f.addMany(3)
	f.set(func() { f.setTexts(`"></title></svg><script>ran = 1</script><img src=x onerror="ran = 1">`) })
	for _, path := range []string{"/ui/map", "/ui/traffic", "/ui/endpoints/" + f.endpoints[3].ID + "/traffic",
		"/ui/backends/" + f.backends[3].ID + "/traffic", "/ui/endpoints/" + f.endpoints[2].ID + "/path"} {
		for _, width := range []int64{1280, 390} {
			b.Resize(width, 844, "light")
			b.Open(path)
			if got := chromium.Eval[string](b,
				"[typeof ran, document.querySelectorAll('img, script:not([src]), [onerror]').length, "+
					"document.body.textContent.includes('onerror')].join(' ')"); got != "undefined 0 true" {
				t.Errorf("%s: type of what a script would set, elements, shown as text: %s", path, got)
			}
			b.CheckWidth(fmt.Sprintf("%s at %d pixels", path, width))
		}
	}
}

func testTrafficWithoutScripts(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	b.EnableScripts(false)
	b.Open("/ui/endpoints/" + f.endpoints[3].ID + "/traffic")
	if n := chromium.Eval[int](b,
		"[...document.querySelectorAll('svg.chart')].filter((svg) => svg.getBoundingClientRect().height > "+
			"150).length"); n != 5 {
		t.Errorf("%d charts are drawn, want 5", n)
	}
	b.Do(chromedp.Click(chromedp.CSS(".values summary")))
	b.WaitUntil("the table", "document.querySelector('.values[open] table').offsetHeight > 200")
	b.Do(chromedp.Click(chromedp.CSS("nav[aria-label='Which of them'] a:not([aria-current])")))
	b.WaitUntil("the failing requests", "location.search === '?requests=failing' && "+
		"document.querySelectorAll(\"tr[data-key^='rq-']\").length === 10")
	b.Do(chromedp.Click(chromedp.CSS("nav[aria-label='Span of time'] a:not([aria-current])")))
	b.WaitUntil("the day", "location.search === '?requests=failing&window=day'")
}
