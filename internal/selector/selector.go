// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selector owns the language of binding.endpointSelector: one CEL expression over a typed
// `ep`, also named `endpoint`, as selectors written for the public API name it. Text from the
// release's values comes in and is compiled once, at start; a Selector goes out to endpointsync,
// which asks it about every endpoint of the account.
package selector

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	// MaxLength of an expression, in bytes.
	MaxLength = 8192
	// costLimit bounds the work of one evaluation, in CEL's cost units (about one per operation and
	// per ten bytes of text scanned).
	costLimit = 100_000
	// maxNesting is how many levels of anything are in each other; a chain of + counts, too. What
	// is nested deeper takes seconds to check.
	maxNesting = 64
)

// Endpoint is what an expression sees as `ep` or `endpoint`.
type Endpoint struct {
	ID          string `cel:"id"`
	URL         string `cel:"url"` // normal form: http://a.b, tcp://a.b:5432
	PublicURL   string `cel:"public_url"`
	Scheme      string `cel:"scheme"` // http or tcp
	Proto       string `cel:"proto"`
	Hostname    string `cel:"hostname"` // a.b
	Host        string `cel:"host"`
	HostPort    string `cel:"hostport"`  // a.b:80
	Service     string `cel:"service"`   // a
	Namespace   string `cel:"namespace"` // b
	Port        int    `cel:"port"`
	Type        string `cel:"type"` // agent or cloud
	Name        string `cel:"name"`
	Description string `cel:"description"`
	Metadata    string `cel:"metadata"`
	Status      string `cel:"status"` // online or offline
}

// Selector is a compiled expression. It is safe for concurrent use.
type Selector struct {
	program cel.Program // nil admits everything
}

// Error is the position and reason of a mistake in an expression. Line and Column count from 1.
type Error struct {
	Line, Column int
	Msg          string
}

// Error returns "line 1, column 4: …".
func (e *Error) Error() string { return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Msg) }

// Compile type-checks an expression that has to yield a bool. The empty expression, or one of
// spaces only, admits every endpoint. Errors of the expression are *Error.
func Compile(expression string) (*Selector, error) {
	if strings.TrimSpace(expression) == "" {
		return &Selector{}, nil
	}
	if len(expression) > MaxLength {
		return nil, &Error{Line: 1, Column: 1,
			Msg: fmt.Sprintf("the expression has %d bytes, at most %d are allowed", len(expression), MaxLength)}
	}
	epType := reflect.TypeFor[Endpoint]()
	env, err := cel.NewEnv(
		ext.NativeTypes(epType, ext.ParseStructTags(true)),
		ext.Strings(),
		cel.ParserRecursionLimit(maxNesting),
		cel.Variable("ep", cel.ObjectType(epType.String())),
		cel.Variable("endpoint", cel.ObjectType(epType.String())),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing the selector language: %w", err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		if strings.Contains(first.Message, "recursion") {
			return nil, &Error{Line: 1, Column: 1,
				Msg: fmt.Sprintf(
					"the expression is nested too deeply, or a chain of operators in it is too long: at most %d levels",
					maxNesting)}
		}
		return nil, &Error{Line: first.Location.Line(), Column: first.Location.Column() + 1, Msg: first.Message}
	}
	if ast.OutputType().String() != cel.BoolType.String() {
		return nil, &Error{Line: 1, Column: 1,
			Msg: fmt.Sprintf("the expression yields %s; it must yield a bool, such as ep.hostname.endsWith('.prod')",
				ast.OutputType())}
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(costLimit))
	if err != nil {
		return nil, fmt.Errorf("planning the selector: %w", err)
	}
	return &Selector{program: program}, nil
}

// Matches reports whether the expression matches the endpoint, whose URL in normal form is u. An
// error means that the expression could not be evaluated for it, for instance because it exceeded
// the cost limit; the endpoint then does not match.
func (s *Selector) Matches(e *account.Endpoint, u account.EndpointURL) (bool, error) {
	if s.program == nil {
		return true, nil
	}
	ep := &Endpoint{
		ID: e.ID, URL: u.String(), PublicURL: u.String(), Scheme: u.Scheme, Proto: u.Scheme, Hostname: u.Host,
		Host:     u.Host,
		HostPort: u.HostPort(), Service: u.Service(), Namespace: u.Namespace(), Port: u.Port,
		Type: e.Type, Name: e.Name, Description: e.Description, Metadata: e.Metadata, Status: e.Status,
	}
	out, _, err := s.program.Eval(map[string]any{"ep": ep, "endpoint": ep})
	if err != nil {
		return false, fmt.Errorf("evaluating the endpoint selector: %w", err)
	}
	admitted, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("evaluating the endpoint selector: the result is not a bool")
	}
	return admitted, nil
}
