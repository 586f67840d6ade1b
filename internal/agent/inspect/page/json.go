// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import "strings"

// maxIndent is the nesting from which JSON is no longer indented further: ten thousand brackets
// would make a page of their own size squared.
const maxIndent = 40

// indentJSON indents valid JSON by two spaces and stops after limit bytes. Numbers, the order of
// members, and duplicates stay as they are.
func indentJSON(text string, limit int) string {
	var b strings.Builder
	depth := 0
	newline := func() {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat("  ", min(depth, maxIndent)))
	}
	for i := 0; i < len(text) && b.Len() < limit; i++ {
		switch ch := text[i]; ch {
		case ' ', '\t', '\r', '\n':
		case '"':
			end := endOfString(text, i)
			b.WriteString(text[i:min(end, i+limit)])
			i = end - 1
		case '{', '[':
			b.WriteByte(ch)
			next := i + 1 + leadingSpace(text[i+1:])
			if next < len(text) && (text[next] == '}' || text[next] == ']') {
				b.WriteByte(text[next])
				i = next
				continue
			}
			depth++
			newline()
		case '}', ']':
			depth--
			newline()
			b.WriteByte(ch)
		case ',':
			b.WriteByte(ch)
			newline()
		case ':':
			b.WriteString(": ")
		default:
			b.WriteByte(ch)
		}
	}
	return b.String()
}

// endOfString returns the index behind the string literal that begins at start.
func endOfString(text string, start int) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func leadingSpace(text string) int { return len(text) - len(strings.TrimLeft(text, " \t\r\n")) }
