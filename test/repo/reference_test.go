// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/reference"
)

func TestReference_ExplainsErrorCodes(t *testing.T) {
	t.Parallel()
	tables := map[string]string{}
	for _, info := range account.Codes() {
		if len(info.Cause) < 10 || len(info.Remedy) < 10 {
			t.Errorf("%s: cause %q, remedy %q", info.Code, info.Cause, info.Remedy)
		}
		tables[string(info.Code[:len("ERR_FL_1")])] += reference.Row(reference.Code(string(info.Code)),
			fmt.Sprint(info.Status), info.Cause, info.Remedy)
	}
	for prefix, name := range map[string]string{"ERR_FL_1": "api", "ERR_FL_2": "client", "ERR_FL_3": "edge"} {
		reference.Block(t, "../../docs/fix/errors.md", name,
			reference.Header("Code", "Status", "Cause", "Remedy")+tables[prefix])
	}
	for _, value := range constants(t, "internal/account/code.go") {
		if code := account.Code(value); strings.HasPrefix(value, "ERR_FL_") && code.Info().Code != code {
			t.Errorf("%s is not in account.Codes", code)
		}
	}
}

func TestReference_ExplainsConditions(t *testing.T) {
	t.Parallel()
	conditions, reasons, explained := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, e := range path.Explanations() {
		explained[e.Name] = true
		if e.Remedy == "" {
			conditions[e.Kind] += reference.Row(reference.Code(e.Name), e.Meaning)
		} else {
			reasons[e.Kind] += reference.Row(reference.Code(e.Name), e.Meaning, e.Remedy)
		}
	}
	for _, kind := range []string{"BoundEndpoint", "KubernetesOperator", "EndpointAccess", "EndpointTrust",
		"AgentEndpoint"} {
		reference.Block(t, "../../docs/fix/conditions.md", kind,
			reference.Header("Condition", "True while")+conditions[kind]+"\n"+
				reference.Header("Reason", "What it means", "What to do")+reasons[kind])
	}
	names := append(constants(t, "api/v1alpha1/conditions.go"), constants(t, "api/v1alpha1/exportconditions.go")...)
	if len(names) < 20 {
		t.Fatalf("found only %d constants", len(names))
	}
	for _, name := range names {
		if !explained[name] {
			t.Errorf("internal/path/explanation.go does not explain %s: what does it mean, and what is to be done?",
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
