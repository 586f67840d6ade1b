// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lines are the lines of a document.
type lines []string

// position returns the line and column of a character of a scalar's value. Where that is unknown,
// it returns the position of the scalar.
func (l lines) position(n *yaml.Node, offset int) (line, column int) {
	if n.Line < 1 || n.Line > len(l) {
		return max(n.Line, 1), max(n.Column, 1)
	}
	if n.Style&yaml.LiteralStyle != 0 {
		return l.positionInBlock(n, offset)
	}
	source := []rune(strings.TrimSuffix(l[n.Line-1], "\r"))
	at := n.Column - 1
	quote := rune(0)
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 && at < len(source) {
		quote = source[at]
		at++
	}
	if n.Style&yaml.FoldedStyle != 0 || quote != 0 && quote != '"' && quote != '\'' {
		return n.Line, n.Column
	}
	for range offset {
		if at >= len(source) {
			return n.Line, n.Column // it goes on in the next line
		}
		at += escapeWidth(source[at:], quote)
	}
	if at > len(source) {
		return n.Line, n.Column
	}
	return n.Line, at + 1
}

// escapeWidth returns the number of characters in the source that stand for one of the value.
func escapeWidth(source []rune, quote rune) int {
	switch {
	case quote == '\'' && source[0] == '\'':
		return 2
	case quote != '"' || source[0] != '\\' || len(source) < 2:
		return 1
	}
	switch source[1] {
	case 'x':
		return 4
	case 'u':
		return 6
	case 'U':
		return 10
	}
	return 2
}

func (l lines) positionInBlock(n *yaml.Node, offset int) (line, column int) {
	runes := []rune(n.Value)
	before := string(runes[:min(offset, len(runes))])
	line = n.Line + 1 + strings.Count(before, "\n")
	column = 1 + len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
	for _, source := range l[n.Line:] {
		if text := strings.TrimLeft(source, " "); strings.TrimSpace(text) != "" {
			return line, column + len(source) - len(text)
		}
	}
	return line, column
}

// explainTab returns the problem of a line that is indented with a tab, near the one that the YAML
// parser names; else the parser's.
func (l lines) explainTab(p *Problem) *Problem {
	for line := max(p.Line-1, 1); line <= min(p.Line+1, len(l)); line++ {
		text := l[line-1]
		indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
		if i := strings.IndexByte(indent, '\t'); i >= 0 {
			return newProblem(line, i+1, "the line is indented with a tab: YAML takes spaces only")
		}
	}
	return p
}

// FieldAt returns the path of the field at a place of a document, such as
// on_http_request[0].actions[1].type; "" for the whole document, and for one that is not YAML.
func FieldAt(text string, line, column int) string {
	if len(text) > MaxBytes {
		return ""
	}
	root, problem := parse(fromJSON(text))
	if root == nil || problem != nil {
		return ""
	}
	return lastField(root, "", line, column)
}

// lastField returns the path of the last field below n that does not begin after a place, or n's own.
func lastField(n *yaml.Node, path string, line, column int) string {
	last := path
	for i, child := range n.Content {
		at, name := child, fmt.Sprintf("%s[%d]", path, i)
		if n.Kind == yaml.MappingNode {
			at, name = n.Content[i&^1], strings.TrimPrefix(path+"."+n.Content[i&^1].Value, ".")
		}
		if at.Line < line || at.Line == line && at.Column <= column {
			last = lastField(child, name, line, column)
		}
	}
	return last
}
