// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"
)

// template is a text with ${expressions}; $${ stands for ${ itself.
type template struct{ parts []part }

// part is a fixed text or an expression.
type part struct {
	text string
	e    *expression
}

// compileTemplate compiles the value of a scalar.
func (c *compiler) compileTemplate(n *yaml.Node) *template {
	t := &template{}
	rest, offset := n.Value, 0
	fixed := func(s string) {
		if s != "" {
			t.parts = append(t.parts, part{text: s})
		}
	}
	for {
		i := strings.Index(rest, "${")
		if i < 0 {
			fixed(rest)
			return t
		}
		if i > 0 && rest[i-1] == '$' {
			fixed(rest[:i-1] + "${")
			offset += utf8.RuneCountInString(rest[:i+2])
			rest = rest[i+2:]
			continue
		}
		fixed(rest[:i])
		offset += utf8.RuneCountInString(rest[:i+2])
		rest = rest[i+2:]
		end := expressionEnd(rest)
		if end < 0 {
			c.problemAt(n, offset-2, "", "${ is not closed by }; write $${ for the characters themselves")
			return t
		}
		if e := c.compileExpression(n, offset, rest[:end]); e != nil {
			c.checkResult(n, offset, rest[:end], e)
			t.parts = append(t.parts, part{e: e})
		}
		offset += utf8.RuneCountInString(rest[:end+1])
		rest = rest[end+1:]
	}
}

// checkResult accepts types that have one obvious form as text.
func (c *compiler) checkResult(n *yaml.Node, offset int, text string, e *expression) {
	switch e.result.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind,
		types.DurationKind:
		return
	}
	c.problemAt(n, offset, text,
		"the expression yields %s, which has no obvious form as text; take one element, or join them", e.result)
}

// expressionEnd returns the index of the } that closes an expression, skipping text literals and
// maps; -1 without one.
func expressionEnd(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
		}
	}
	return -1
}

// fixed returns the text of a template without expressions.
func (t *template) fixed() (string, bool) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.e != nil {
			return "", false
		}
		b.WriteString(p.text)
	}
	return b.String(), true
}

var errTemplate = errors.New("an expression in the text has no value")

// render evaluates the template. Fixed ones cost nothing. escape makes a value of an expression fit
// for its surroundings; nil leaves it.
func (t *template) render(x *exchange, escape func(string) string) (string, error) {
	switch {
	case t == nil || len(t.parts) == 0:
		return "", nil
	case len(t.parts) == 1 && t.parts[0].e == nil:
		x.spend(len(t.parts[0].text) / copyBytes)
		return t.parts[0].text, nil
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.e == nil {
			b.WriteString(p.text)
			continue
		}
		v, err := p.e.eval(x)
		if err != nil {
			return "", fmt.Errorf("evaluating ${…}: %w", errors.Join(errTemplate, err))
		}
		s, err := asText(v)
		if err != nil {
			return "", err
		}
		if !x.spend(len(s) * scanBytes) {
			return "", errCost
		}
		if escape != nil {
			s = escape(s)
		}
		if b.WriteString(s); b.Len() > maxText {
			return "", fmt.Errorf("evaluating ${…}: a text has at most %d bytes", maxText)
		}
	}
	return b.String(), nil
}

func asText(v interface{ Value() any }) (string, error) {
	switch v := v.Value().(type) {
	case string:
		return v, nil
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), nil
	case time.Duration, int64, uint64, float64, bool:
		return fmt.Sprint(v), nil
	default:
		return "", fmt.Errorf("evaluating ${…}: %T has no form as text", v)
	}
}
