// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Width returns the number of columns of a printable text in a terminal.
func Width(s string) int {
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

// Truncate returns s if it fits into most columns, else as much of it as fits with an ellipsis.
func Truncate(s string, most int) string {
	if Width(s) <= most {
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

// Pad truncates s, or fills it with spaces, to exactly n columns.
func Pad(s string, n int) string {
	s = Truncate(s, n)
	return s + strings.Repeat(" ", n-Width(s))
}
