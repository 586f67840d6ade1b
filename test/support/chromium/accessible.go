// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chromium

import (
	_ "embed" // for accessible.js
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
)

//go:embed accessible.js
var accessible string

// CheckPage reports what an automatic check finds wrong with the page for people with disabilities:
// contrast, sizes, names, order. page names it in reports.
func (b *Tab) CheckPage(page string) {
	b.T.Helper()
	for _, complaint := range Eval[[]string](b, accessible) {
		b.T.Errorf("%s: %s", page, complaint)
	}
}

// CheckThemes does CheckPage in both themes at 1280 pixels, and CheckTree.
func (b *Tab) CheckThemes(page string) {
	b.T.Helper()
	for _, theme := range []string{"light", "dark"} {
		b.Resize(1280, 720, theme)
		b.CheckPage(page + ", " + theme)
	}
	b.CheckTree(page)
}

// CheckWidth reports if the page is wider than the screen.
func (b *Tab) CheckWidth(page string) {
	b.T.Helper()
	outside := Eval[int64](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth")
	if outside > 0 {
		b.T.Errorf("%s: %d pixels lie outside", page, outside)
	}
}

// CheckWidths does CheckWidth at each of the widths in pixels.
func (b *Tab) CheckWidths(page string, widths ...int64) {
	b.T.Helper()
	for _, width := range widths {
		b.Resize(width, 720, "light")
		b.CheckWidth(fmt.Sprintf("%s at %d pixels", page, width))
	}
}

// CheckTree reports what the browser does not tell screen readers: names of controls, tables that
// the page shows, its one main landmark. Behind a dialog they are told nothing.
func (b *Tab) CheckTree(page string) {
	b.T.Helper()
	value := func(v *accessibility.Value) string {
		if v == nil {
			return ""
		}
		return strings.Trim(string(v.Value), `"`)
	}
	roles := map[string]int{}
	for _, n := range Call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if n.Ignored {
			continue
		}
		role := value(n.Role)
		roles[role]++
		switch role {
		case "link", "button", "textbox", "searchbox", "combobox", "checkbox", "dialog", "table", "navigation",
			"region", "image":
			if strings.TrimSpace(value(n.Name)) == "" {
				b.T.Errorf("%s: a %s has no name", page, role)
			}
		}
	}
	if roles["dialog"] > 0 {
		return
	}
	shown := Eval[map[string]int](b, `(() => {
		const shown = (el) => !el.closest("[hidden], details:not([open])");
		const count = (selector) => [...document.querySelectorAll(selector)].filter(shown).length;
		return {table: count("table"), row: count("tr"), rowheader: count("tbody th"), columnheader: count("thead th")};
	})()`)
	for role, n := range shown {
		if roles[role] != n {
			b.T.Errorf("%s: screen readers hear of %d of the role %s, and there are %d", page, roles[role], role, n)
		}
	}
	if roles["main"] != 1 {
		b.T.Errorf("%s: %d main landmarks", page, roles["main"])
	}
}
