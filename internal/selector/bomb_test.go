// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/selector"
)

// TestCompile_BoundsNesting checks that nested expressions are refused before their types are
// checked, which takes seconds at a depth of 200, and that ordinary ones are far from the limit.
func TestCompile_BoundsNesting(t *testing.T) {
	t.Parallel()
	nested := func(open, inner, end string, times int) string {
		return strings.Repeat(open, times) + inner + strings.Repeat(end, times)
	}
	for name, expression := range map[string]string{
		"lists":  nested("[", "1", "]", 200) + " == []",
		"maps":   nested("{1:", "1", "}", 200) + " == {}",
		"parens": nested("(", "true", ")", 240),
		"loops":  nested("[1].all(x, ", "true", ")", 200),
		"nots":   nested("!(", "true", ")", 200),
		"sums":   "'' == " + strings.Repeat("'a' + ", 300) + "'b'",
	} {
		_, err := selector.Compile(expression)
		var problem *selector.Error
		if !errors.As(err, &problem) || !strings.Contains(problem.Msg, "nested too deeply") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, expression := range map[string]string{
		"a long list":  "ep.name in [" + strings.TrimSuffix(strings.Repeat("'a-name', ", 700), ", ") + "]",
		"many choices": strings.Repeat("ep.name == 'a' || ", 400) + "true",
	} {
		if _, err := selector.Compile(expression); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
