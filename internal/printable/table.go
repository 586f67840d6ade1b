// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"slices"
	"strings"
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
