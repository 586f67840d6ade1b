// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

// maxPattern is the most bytes of a regular expression.
const maxPattern = 1024

// compilePattern compiles a regular expression in RE2 syntax.
func compilePattern(text string) (*regexp.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("a regular expression has at most %d bytes, this one has %d", maxPattern, len(text))
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, patternError(err)
	}
	if most := 8*len(text) + 256; patternNodes(tree, most) > most {
		return nil, fmt.Errorf("the regular expression is too large with its repetitions written out (more than %d steps)", most)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, patternError(err)
	}
	return re, nil
}

func patternError(err error) error {
	var e *syntax.Error
	if errors.As(err, &e) {
		return fmt.Errorf("the regular expression is wrong: %s: %q", e.Code, shorten(e.Expr))
	}
	return fmt.Errorf("the regular expression is wrong: %w", err)
}

// patternNodes counts what the program of a pattern will have, roughly, and stops counting past most. Go's regular expressions take time in
// proportion to text and program; the program is what a few characters can blow up.
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
