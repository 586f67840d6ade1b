// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

const (
	columnGap = 3
	minColumn = 8 // what a column keeps of a wider text
)

// Table aligns rows of printable texts. Where they are wider than columns, the widest columns are
// truncated until they fit, except the first, which names the row, and those of at most eight.
// columns = 0: nothing is truncated.
func Table(rows [][]string, columns int) string {
	var widths []int
	for _, row := range rows {
		for i, text := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(text))
		}
	}
	if columns > 0 {
		shrink(widths, columns-columnGap*(len(widths)-1))
	}
	var b strings.Builder
	for _, row := range rows {
		for i, text := range row {
			if i == len(row)-1 {
				b.WriteString(Truncate(text, widths[i]))
				break
			}
			b.WriteString(Pad(text, widths[i]) + strings.Repeat(" ", columnGap))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// shrink reduces the widest but the first until the sum is most, or all are at the minimum.
func shrink(widths []int, most int) {
	for sum := sumOf(widths); sum > most && len(widths) > 1; sum-- {
		rest := widths[1:]
		widest := slices.Index(rest, slices.Max(rest))
		if rest[widest] <= minColumn {
			return
		}
		rest[widest]--
	}
}

func sumOf(all []int) (sum int) {
	for _, n := range all {
		sum += n
	}
	return sum
}

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

// Wrap breaks the paragraphs of a text between words into lines of at most columns; longer words
// are not broken. Lines that begin with a space stay as they are: they are examples and tables.
func Wrap(text string, columns int) string {
	var b strings.Builder
	room := 0 // columns left in the paragraph's line; 0 = no line is open
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == ' ' {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(line)
			room = 0
			continue
		}
		for j, word := range strings.Fields(line) {
			n := Width(word)
			switch {
			case room > n:
				b.WriteByte(' ')
				room -= n + 1
			default:
				if i > 0 || j > 0 {
					b.WriteByte('\n')
				}
				room = max(columns-n, 1)
			}
			b.WriteString(word)
		}
	}
	return b.String()
}
