// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// replacement is a text in place of the bytes from from to to.
type replacement struct {
	from, to int
	text     string
}

// splice replaces scalars with values, and leaves every other byte as it is. ok is false when it
// does not find where a scalar begins or ends. It may be wrong: the caller compares the result's
// meaning.
func splice(text string, replace map[*yaml.Node]string) (out string, ok bool) {
	nodes := slices.SortedFunc(maps.Keys(replace), func(a, b *yaml.Node) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var all []replacement
	at := position{line: 1, column: 1}
	for _, n := range nodes {
		from, ok := at.seek(text, n)
		if !ok {
			return "", false
		}
		to, ok := scalarEnd(text, from, n)
		if !ok {
			return "", false
		}
		quoted, err := json.Marshal(replace[n]) // a JSON string is a YAML string, wherever it stands
		if err != nil {
			return "", false
		}
		with := string(quoted)
		if strings.HasSuffix(text[from:to], "\n") {
			with += "\n"
		}
		all = append(all, replacement{from, to, with})
	}
	var b strings.Builder
	done := 0
	for _, r := range all {
		if r.from < done {
			return "", false
		}
		b.WriteString(text[done:r.from])
		b.WriteString(r.text)
		done = r.to
	}
	b.WriteString(text[done:])
	return b.String(), true
}

// position is a byte's offset in a text, with its line and its column in characters, both from 1.
type position struct{ offset, line, column int }

// seek moves forward to where a node begins, and returns its offset.
func (p *position) seek(text string, n *yaml.Node) (int, bool) {
	for p.offset < len(text) && (p.line < n.Line || p.line == n.Line && p.column < n.Column) {
		_, size := utf8.DecodeRuneInString(text[p.offset:])
		p.column++
		if text[p.offset] == '\n' {
			p.line, p.column = p.line+1, 1
		}
		p.offset += size
	}
	return p.offset, p.offset < len(text) && p.line == n.Line && p.column == n.Column
}

// scalarEnd returns the offset after a scalar.
func scalarEnd(text string, from int, n *yaml.Node) (int, bool) {
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0 && text[from] == '"':
		for i := from + 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1, true
			}
		}
	case n.Style&yaml.SingleQuotedStyle != 0 && text[from] == '\'':
		for i := from + 1; i < len(text); i++ {
			switch {
			case text[i] == '\'' && strings.HasPrefix(text[i+1:], "'"):
				i++
			case text[i] == '\'':
				return i + 1, true
			}
		}
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 && (text[from] == '|' || text[from] == '>'):
		return blockEnd(text, from), true
	case strings.HasPrefix(text[from:], n.Value):
		return from + len(n.Value), true
	}
	return 0, false
}

// blockEnd returns the offset after a block scalar: after the lines that are indented at least as
// its first one.
func blockEnd(text string, from int) int {
	at := nextLine(text, from)
	indent, last := -1, at
	for at < len(text) {
		line := text[at:nextLine(text, at)]
		spaces := len(line) - len(strings.TrimLeft(line, " "))
		if strings.TrimSpace(line) != "" {
			if indent < 0 {
				indent = spaces
			}
			if spaces < indent || spaces == 0 {
				break
			}
			last = at + len(line)
		}
		at += len(line)
	}
	return last
}

func nextLine(text string, at int) int {
	if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(text)
}
