// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// testPhone looks at what a narrow screen and a finger change: the layout of rows and menu, and
// times without a title to hover over.
func testPhone(t *testing.T, b *tab, f *fake, _ *httptest.Server) {
	f.set(func() { f.users[3].Name = strings.Repeat("Longname ", 28) })
	b.size(1280, 720, "light")
	b.open(identitiesPath)
	if width := eval[float64](b,
		"document.querySelector('td[data-label=Provider]').getBoundingClientRect().width"); width < 140 {
		t.Errorf("a long name leaves the provider %g pixels", width)
	}
	exact := "getComputedStyle(document.querySelector('tbody time'), '::after').content"
	if got := eval[string](b, exact); got != "none" {
		t.Errorf("with a mouse the exact time stands beside the relative one: %s", got)
	}
	b.size(390, 844, "light")
	sendCommand(b, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true})
	defer sendCommand(b, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{})
	b.open(identitiesPath)
	title := eval[string](b, "document.querySelector('tbody time').title")
	if got := eval[string](b, exact); !strings.Contains(got, title) || !strings.HasSuffix(title, "UTC") {
		t.Errorf("a finger gets %s, want %s", got, title)
	}
	// Every value of a row begins where the others do. A text without an element has a box of its
	// own by a range.
	starts := eval[[]float64](b, `[...document.querySelectorAll("tbody tr:first-child td[data-label]")].map((td) => {
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
	closed := eval[float64](b, "document.querySelector('.menu summary').getBoundingClientRect().top")
	b.do(chromedp.Click(chromedp.CSS(".menu summary")))
	b.until("the menu",
		"document.querySelector('.menu').open && document.querySelector('.menu "+
			"nav').getBoundingClientRect().height > 100")
	if open := eval[float64](b, "document.querySelector('.menu summary').getBoundingClientRect().top"); open != closed {
		t.Errorf("opening the menu moves its control from %g to %g", closed, open)
	}
	if gap := eval[float64](b,
		"document.querySelector('.menu nav').getBoundingClientRect().top - "+
			"document.querySelector('.brand').getBoundingClientRect().bottom"); gap < 0 || gap > 24 {
		t.Errorf("the menu begins %g pixels below the brand", gap)
	}
}

func testFiltersWithoutScripts(_ *testing.T, b *tab, _ *fake, _ *httptest.Server) {
	sendCommand(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open(identitiesPath)
	b.do(chromedp.Click(chromedp.CSS(".more summary")), chromedp.SendKeys(chromedp.CSS("#ip"), "2001:db8:\r"))
	b.until("who has a session from there",
		"location.search.includes('ip=2001') && document.querySelectorAll('tbody tr').length === 2 && "+
			"document.querySelector('.more').open")
}
