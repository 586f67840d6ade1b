// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// position returns the line and column of a character of a scalar's value. Where that is unknown,
// it returns the position of the scalar.
func (c *compiler) position(n *yaml.Node, offset int) (line, column int) {
	if n.Line < 1 || n.Line > len(c.lines) {
		return max(n.Line, 1), max(n.Column, 1)
	}
	if n.Style&yaml.LiteralStyle != 0 {
		return c.positionInBlock(n, offset)
	}
	source := []rune(strings.TrimSuffix(c.lines[n.Line-1], "\r"))
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

func (c *compiler) positionInBlock(n *yaml.Node, offset int) (line, column int) {
	runes := []rune(n.Value)
	before := string(runes[:min(offset, len(runes))])
	line = n.Line + 1 + strings.Count(before, "\n")
	column = 1 + len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
	for _, source := range c.lines[n.Line:] {
		if text := strings.TrimLeft(source, " "); strings.TrimSpace(text) != "" {
			return line, column + len(source) - len(text)
		}
	}
	return line, column
}
