// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Limits of a regular expression. Its program has one instruction for about every character, also
// of the repetitions that such as {100} stand for.
const (
	maxPattern = 1024 // bytes
	maxProgram = 2000 // instructions
)

// patternCost is the cost of compiling a byte of a pattern when the document is set, in units of
// the document's cost: a class such as \pL takes long.
const patternCost = 25

// compileSteps is the cost of compiling a byte of a pattern that a request makes.
const compileSteps = 600

// pattern is a regular expression. A search takes time at most proportional to its program and the
// text.
type pattern struct {
	*regexp.Regexp
	size      int  // instructions of the program
	quadratic bool // a search may read far beyond the match that it finds
}

// compilePattern compiles a regular expression in RE2 syntax.
func compilePattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("a regular expression has at most %d bytes, this one has %d", maxPattern, len(text))
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, patternError(err)
	}
	p := &pattern{quadratic: isQuadratic(tree)}
	if patternNodes(tree, maxProgram) <= maxProgram { // a few characters can stand for a large program
		p.size = len(programOf(text))
	}
	if p.size == 0 || p.size > maxProgram {
		return nil, fmt.Errorf("the regular expression is too large: "+
			"it has more than %d instructions with its repetitions written out", maxProgram)
	}
	if p.Regexp, err = regexp.Compile(text); err != nil {
		return nil, patternError(err)
	}
	return p, nil
}

// pattern compiles a regular expression of the document. It returns nil when it has a mistake,
// which it reports.
func (c *config) pattern(n *yaml.Node, text string) *pattern {
	if c.c.cost > documentCost {
		c.c.problem(n, text, "the expressions and patterns up to here may cost too much together (at most %d)",
			documentCost)
		return nil
	}
	p, err := compilePattern(text)
	if err != nil {
		c.c.problem(n, text, "%v", err)
		return nil
	}
	c.c.cost += usualSizes.text*uint64(p.size)/10 + patternCost*uint64(len(text))
	return p
}

// programOf returns the instructions of a regular expression; nil for an invalid one.
func programOf(text string) []syntax.Inst {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil
	}
	return program.Inst
}

func patternError(err error) error {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("the regular expression is wrong: %s: %q", e.Code, truncate(e.Expr))
	}
	return fmt.Errorf("the regular expression is wrong: %w", err)
}

// patternNodes estimates the instructions of a pattern, and stops counting past most.
func patternNodes(re *syntax.Regexp, most int) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n += patternNodes(sub, most); n > most {
			return n
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

// isQuadratic reports whether finding all matches may take the square of the text's length: `.*z|a`
// reads all of a text without a z for each a. Where only a last repetition is of unbounded length,
// a search ends shortly after its match.
func isQuadratic(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpConcat:
		last := len(re.Sub) - 1
		return slices.ContainsFunc(re.Sub[:last], unbounded) || isQuadratic(re.Sub[last])
	case syntax.OpAlternate, syntax.OpCapture, syntax.OpQuest:
		return slices.ContainsFunc(re.Sub, isQuadratic)
	case syntax.OpStar, syntax.OpPlus:
		return unbounded(re.Sub[0])
	}
	return unbounded(re)
}

func unbounded(re *syntax.Regexp) bool {
	return re.Op == syntax.OpStar || re.Op == syntax.OpPlus || re.Op == syntax.OpRepeat && re.Max < 0 ||
		slices.ContainsFunc(re.Sub, unbounded)
}

// replaceAll is like ReplaceAllString, and charges the exchange beforehand.
func (p *pattern) replaceAll(x *exchange, s, to string) (string, error) {
	most, searches := len(s)+2, 2
	if p.quadratic {
		most = 2
	}
	for {
		if !x.spend(searches * p.size * (len(s) + 1)) {
			return "", errCost
		}
		if matches := p.FindAllStringSubmatchIndex(s, most); len(matches) < most {
			return p.expandAll(x, s, to, matches)
		}
		most *= 2
		searches = most
	}
}

// expandAll replaces the matches in s.
func (p *pattern) expandAll(x *exchange, s, to string, matches [][]int) (string, error) {
	var out []byte
	end := 0
	for _, m := range matches {
		out = p.ExpandString(append(out, s[end:m[0]]...), to, s, m)
		end = m[1]
		switch {
		case !x.spend(itemSteps + len(to)):
			return "", errCost
		case len(out) > maxText:
			return "", fmt.Errorf("replacing matches: a text has at most %d bytes", maxText)
		}
	}
	return string(append(out, s[end:]...)), nil
}
