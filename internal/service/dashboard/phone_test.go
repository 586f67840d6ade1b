// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/test/support/chromium"
)

// testPhone looks at what a narrow screen and a finger change: the layout of rows and menu, and
// times without a title to hover over.
func testPhone(t *testing.T, b *chromium.Tab, f *fake, _ *httptest.Server) {
	f.set(func() { f.users[3].Name = strings.Repeat("Longname ", 28) })
	b.Resize(1280, 720, "light")
	b.Open(identitiesPath)
	if width := chromium.Eval[float64](b,
		"document.querySelector('td[data-label=Provider]').getBoundingClientRect().width"); width < 140 {
		t.Errorf("a long name leaves the provider %g pixels", width)
	}
	exact := "getComputedStyle(document.querySelector('tbody time'), '::after').content"
	if got := chromium.Eval[string](b, exact); got != "none" {
		t.Errorf("with a mouse the exact time stands beside the relative one: %s", got)
	}
	b.Resize(390, 844, "light")
	chromium.Call(b, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true})
	defer chromium.Call(b, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{})
	b.Open(identitiesPath)
	title := chromium.Eval[string](b, "document.querySelector('tbody time').title")
	if got := chromium.Eval[string](b, exact); !strings.Contains(got, title) || !strings.HasSuffix(title, "UTC") {
		t.Errorf("a finger gets %s, want %s", got, title)
	}
	// Every value of a row begins where the others do. A text without an element has a box of its
	// own by a range.
	starts := chromium.Eval[[]float64](b,
		`[...document.querySelectorAll("tbody tr:first-child td[data-label]")].map((td) => {
		const range = document.createRange();
		range.selectNodeContents(td);
		return Math.round(range.getBoundingClientRect().left);
	})`)
	for _, at := range starts {
		if at != starts[0] {
			t.Errorf("the values of a row begin at %v", starts)
			break
		}
	}
	closed := chromium.Eval[float64](b, "document.querySelector('.menu summary').getBoundingClientRect().top")
	b.Do(chromedp.Click(chromedp.CSS(".menu summary")))
	b.WaitUntil("the menu",
		"document.querySelector('.menu').open && document.querySelector('.menu "+
			"nav').getBoundingClientRect().height > 100")
	open := chromium.Eval[float64](b, "document.querySelector('.menu summary').getBoundingClientRect().top")
	if open != closed {
		t.Errorf("opening the menu moves its control from %g to %g", closed, open)
	}
	if gap := chromium.Eval[float64](b,
		"document.querySelector('.menu nav').getBoundingClientRect().top - "+
			"document.querySelector('.brand').getBoundingClientRect().bottom"); gap < 0 || gap > 24 {
		t.Errorf("the menu begins %g pixels below the brand", gap)
	}
}

func testFiltersWithoutScripts(_ *testing.T, b *chromium.Tab, _ *fake, _ *httptest.Server) {
	b.EnableScripts(false)
	b.Open(identitiesPath)
	b.Do(chromedp.Click(chromedp.CSS(".more summary")), chromedp.SendKeys(chromedp.CSS("#ip"), "2001:db8:\r"))
	b.WaitUntil("who has a session from there",
		"location.search.includes('ip=2001') && document.querySelectorAll('tbody tr').length === 2 && "+
			"document.querySelector('.more').open")
}
