// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"strings"
	"testing"
	"unicode"
)

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "ü 漢", "\x1b[31mred", "a\nb\tc", "\xff\xfe", strings.Repeat("x", 50)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s, 20)
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q of %q", got, s)
			}
		}
		if printable := !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }); printable && len([]rune(s)) <= 20 && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

func TestWhatATerminalWouldActOnIsEscaped(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\x1b]0;title\a": `\x1b]0;title\a`,
		"a\r\nb":         `a\r\nb`,
		"caf\u00e9":      "café",
		"\u202ereversed": `\u202ereversed`,
		"\xff":           `\ufffd`,
	} {
		if got := Text(in, 100); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := Text("abcdef", 3); got != "abc…" {
		t.Errorf("cut: %q", got)
	}
}
