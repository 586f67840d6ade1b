// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import "strings"

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
