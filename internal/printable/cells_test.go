// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import "testing"

func TestWidth_CountsTerminalColumns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "abc": 3, "日本": 4, "é": 1, "e\u0301": 1, "ｆ": 2, "🚢": 2, "–": 1} {
		if got := Width(text); got != want {
			t.Errorf("%q: %d columns, want %d", text, got, want)
		}
	}
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"abc", 1, "…"}, {"abc", 0, ""},
		{"", 0, ""}} {
		if got := Truncate(c.text, c.most); got != c.want || Width(got) > c.most {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.most, got, c.want)
		}
		if got := Pad(c.text, c.most); Width(got) != c.most {
			t.Errorf("%q padded to %d columns: %q", c.text, c.most, got)
		}
	}
}
