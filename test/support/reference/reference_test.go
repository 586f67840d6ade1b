// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import "testing"

func TestRow_EscapesOutsideCode(t *testing.T) {
	t.Parallel()
	got := Row(Code("a|b"), "any *\nname of <HOST>, or `*.x`")
	if want := "| `a\\|b` | any \\* name of \\<HOST>, or `*.x` |\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLinkDocs_LinksPages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"See docs/use/access.md.":                  "See [docs/use/access.md](../use/access.md).",
		"does not respond (docs/fix/call.md#a-b).": "does not [respond](call.md#a-b).",
		"https://example.com/docs/fix/runbooks":    "https://example.com/docs/fix/runbooks",
	} {
		if got := linkDocs("../../docs/fix/errors.md", text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestProse_FencesIndentedLines(t *testing.T) {
	t.Parallel()
	got := Prose("Codes:\n  0  done\n  1  not\nand more text", 8)
	if want := "Codes:\n\n```\n0  done\n1  not\n```\n\nand more\ntext\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
