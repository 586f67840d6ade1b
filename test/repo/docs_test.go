// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Every condition and every reason that kubectl can show has a row of its own in the operator's
// guide.
func TestConditions_AreDocumented(t *testing.T) {
	t.Parallel()
	rows := map[string]bool{}
	for line := range strings.Lines(string(read(t, "docs/fix/conditions.md"))) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for _, name := range strings.Split(cells[1], ",") {
				rows[strings.TrimSpace(name)] = true
			}
		}
	}
	names := append(constants(t, "api/v1alpha1/conditions.go"), constants(t, "api/v1alpha1/exportconditions.go")...)
	if len(names) < 20 {
		t.Fatalf("found only %d constants", len(names))
	}
	for _, name := range names {
		if !rows["`"+name+"`"] {
			t.Errorf("docs/fix/conditions.md: no row begins with `%s`: what does it mean, and what is to be done?",
				name)
		}
	}
}

// constants returns the values of a file's string constants.
func constants(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), 0)
	must.Succeed(t, err)
	var values []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, v := range spec.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					must.Succeed(t, err)
					values = append(values, text)
				}
			}
		}
		return true
	})
	return values
}
