// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printable prepares texts from a network for display: from the service, a cluster or a
// request. Such texts may hold control sequences for a terminal, and characters that are invisible
// or reorder others, so that one name looks like another. It also measures, wraps and aligns texts
// in columns. The agent's screen, the commands, `fairlead doctor` and the dashboard use it.
package printable

import (
	"strconv"
	"strings"
	"unicode"
)

// Escape returns s for a terminal: unprintable and invisible characters are escaped as Go does it,
// and after most characters the rest is an ellipsis.
func Escape(s string, most int) string {
	var b strings.Builder
	n, last := 0, ' '
	for _, r := range s {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if unicode.IsPrint(r) && r != unicode.ReplacementChar && !hidden(last, r) {
			b.WriteRune(r)
		} else {
			escape(&b, r)
		}
		last = r
	}
	return b.String()
}

// Count returns the number with the noun that fits it.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// EscapeInvisible returns s for a web page: characters that are invisible or reorder others are
// escaped as Go does it (bidirectional controls, fillers, tags, joiners that join nothing). Spaces,
// line breaks and right-to-left text stay.
func EscapeInvisible(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	last := ' '
	for _, r := range s {
		if unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) || hidden(last, r) {
			escape(&b, r)
		} else {
			b.WriteRune(r)
		}
		last = r
	}
	return b.String()
}

const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
	blank     = '\u2800' // a Braille cell without dots
	// firstJoined is the first character after those of Latin, Greek, Cyrillic and Armenian text.
	// In the scripts behind it, and in emoji, joiners and variation selectors belong to what is
	// written.
	firstJoined = '\u0590'
)

// hidden reports whether r, which follows the character last, is not seen, or reorders the
// characters beside it.
func hidden(last, r rune) bool {
	switch {
	case r < 0x80:
		return false
	case r == joiner || r == nonJoiner || unicode.Is(unicode.Variation_Selector, r):
		return last < firstJoined
	case unicode.Is(unicode.Prepended_Concatenation_Mark, r): // marks of Arabic numbers, which are seen
		return false
	}
	return r == blank || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

func escape(b *strings.Builder, r rune) {
	quoted := strconv.QuoteRuneToASCII(r)
	b.WriteString(quoted[1 : len(quoted)-1])
}
