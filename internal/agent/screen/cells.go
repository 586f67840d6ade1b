// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// span is a piece of a line in one colour; "" is the terminal's own.
type span struct{ color, text string }

// cells is how many columns a terminal takes for a printable text.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	if r < unicode.MaxLatin1 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut returns s if it fits into most columns, else as much of it as fits with an ellipsis.
func cut(s string, most int) string {
	if cells(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeCells(r); n > most-1 {
			return s[:i] + strings.Repeat("…", min(1, most))
		}
	}
	return s
}

// pad cuts s, or fills it with spaces, to exactly n columns.
func pad(s string, n int) string {
	s = cut(s, n)
	return s + strings.Repeat(" ", n-cells(s))
}

// fit joins spans to one line of at most most columns.
func fit(spans []span, most int, color bool) string {
	var b strings.Builder
	for _, s := range spans {
		piece := cut(s.text, most)
		most -= cells(piece)
		b.WriteString((&text{color: color}).paint(s.color, piece))
		if piece != s.text {
			break
		}
	}
	return b.String()
}
