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

// span is a part of a text, and what comes in its place.
type span struct {
	from, to int
	with     string
}

// splice puts values in the place of scalars, and leaves every other byte as it is. placed is false
// when it cannot tell where a scalar ends; the caller compares the result with what it should mean
// in any case.
func splice(text string, replace map[*yaml.Node]string) (out string, placed bool) {
	nodes := slices.SortedFunc(maps.Keys(replace), func(a, b *yaml.Node) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var spans []span
	at := place{line: 1, column: 1}
	for _, n := range nodes {
		from, ok := at.forward(text, n)
		if !ok {
			return "", false
		}
		to, ok := end(text, from, n)
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
		spans = append(spans, span{from, to, with})
	}
	var b strings.Builder
	done := 0
	for _, s := range spans {
		if s.from < done {
			return "", false
		}
		b.WriteString(text[done:s.from])
		b.WriteString(s.with)
		done = s.to
	}
	b.WriteString(text[done:])
	return b.String(), true
}

// place is a byte of a text by its line and its column in characters, both from 1.
type place struct{ at, line, column int }

// forward moves on to where a node begins and returns that byte.
func (p *place) forward(text string, n *yaml.Node) (int, bool) {
	for p.at < len(text) && (p.line < n.Line || p.line == n.Line && p.column < n.Column) {
		_, size := utf8.DecodeRuneInString(text[p.at:])
		p.column++
		if text[p.at] == '\n' {
			p.line, p.column = p.line+1, 1
		}
		p.at += size
	}
	return p.at, p.at < len(text) && p.line == n.Line && p.column == n.Column
}

// end finds the byte after a scalar.
func end(text string, from int, n *yaml.Node) (int, bool) {
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

// blockEnd finds the end of a block scalar: of the lines that are indented at least as its first
// one.
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
