// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "plain", "ü 漢", "\x1b[31mred", "a\nb\tc", "\xff\xfe", strings.Repeat("x", 50)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Escape(s, 20)
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q of %q", got, s)
			}
		}
		if EscapeInvisible(EscapeInvisible(s)) != EscapeInvisible(s) || utf8.ValidString(s) &&
			!utf8.ValidString(EscapeInvisible(s)) {
			t.Fatalf("Visible of %q: %q", s, EscapeInvisible(s))
		}
		if printable := EscapeInvisible(s) == s && !strings.ContainsFunc(s,
			func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }); printable &&
			len([]rune(s)) <= 20 && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

func TestEscape_ControlCharacters(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\x1b]0;title\a": `\x1b]0;title\a`,
		"a\r\nb":         `a\r\nb`,
		"caf\u00e9":      "café",
		"\u202ereversed": `\u202ereversed`,
		"\xff":           `\ufffd`,
	} {
		if got := Escape(in, 100); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := Escape("abcdef", 3); got != "abc…" {
		t.Errorf("cut: %q", got)
	}
}

// TestEscapeInvisible_HiddenCharacters checks that names that look alike, or that are displayed in
// another order than written, are distinguishable.
func TestEscapeInvisible_HiddenCharacters(t *testing.T) {
	t.Parallel()
	hidden := "\u200b\u200c\u200d\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\u00ad\u034f\u115f\u1160\u17b4\u180e\u2800\u3164\uffa0" +
		"\ufe0f\u2028\u2029\U000e0041\U000e0101\x00\x1b\x7f\u0085\u009b"
	for _, r := range hidden {
		name := "alice" + string(r) + "b"
		for what, got := range map[string]string{"Text": Escape(name, 100), "Visible": EscapeInvisible(name)} {
			if strings.ContainsRune(got, r) || !strings.HasPrefix(got, `alice\`) || !strings.HasSuffix(got, "b") {
				t.Errorf("%s of %+q is %q", what, name, got)
			}
		}
	}
	for _, seen := range []string{"", "<p>plain</p>\r\n\ttext", "Ödegård Łukasz Ωmega Иван", "עלי", "مريم\u200cزاده",
		"山田 太郎\u3000様", "a\u00a0b", "👩\u200d💻 ❤\ufe0f", "葛\U000e0100", "e\u0301"} {
		if got := EscapeInvisible(seen); got != seen {
			t.Errorf("Visible of %+q is %+q", seen, got)
		}
	}
	if got := EscapeInvisible("مريم" + "\u202e" + "x"); got != `مريم\u202ex` {
		t.Errorf("an override in Arabic text: %q", got)
	}
}
