// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"go.yaml.in/yaml/v3"
)

// Limits of expressions. Cost is estimated in CEL's units: about one for an operation and for ten
// bytes of text that are looked at.
const (
	maxExpression   = 4096 // bytes
	costLimit       = 100_000
	documentCost    = 2_500_000
	maxIssuesPerOne = 3
)

// expression is a compiled CEL expression.
type expression struct {
	program cel.Program
	result  *cel.Type
	steps   int // steps of an evaluation, beside those that depend on the request
}

// holds evaluates a condition. ok is false when it has no value: it reads something absent, or
// fails otherwise.
func (e *expression) holds(x *exchange) (value, ok bool) {
	out, err := e.eval(x)
	if err != nil {
		return false, false
	}
	value, ok = out.Value().(bool)
	return value, ok
}

func (e *expression) eval(x *exchange) (ref.Val, error) {
	if !x.spend(e.steps) {
		return nil, errCost
	}
	out, _, err := e.program.Eval(x)
	if x.exhausted() {
		return nil, errCost
	}
	return out, err
}

// compileCondition compiles a whole text as an expression that yields a bool.
func (c *compiler) compileCondition(n *yaml.Node) *expression {
	e := c.compileExpression(n, 0, n.Value)
	if e != nil && e.result.String() != cel.BoolType.String() {
		c.problem(n, n.Value, "the expression yields %s; it must yield a bool, such as conn.client_ip == '192.0.2.1'",
			e.result)
	}
	return e
}

// compileExpression compiles text, which begins at the character offset of n's value. It returns
// nil when the text has mistakes, which it reports.
func (c *compiler) compileExpression(n *yaml.Node, offset int, text string) *expression {
	switch c.expressions++; {
	case c.expressions > maxExpressions:
		if c.expressions == maxExpressions+1 {
			c.problemAt(n, offset, "", "a policy has at most %d expressions, with those inside of ${…}",
				maxExpressions)
		}
		return nil
	case c.cost > documentCost: // which is reported
		return nil
	case len(text) > maxExpression:
		c.problemAt(n, offset, text, "an expression has at most %d bytes, this one has %d", maxExpression, len(text))
		return nil
	}
	env, err := celEnvironmentsOnce().forPhase(c.phase)
	if err != nil {
		c.problemAt(n, offset, "", "the expression language could not be set up: %v", err)
		return nil
	}
	ast, issues := env.Parse(text)
	if issues.Err() == nil {
		if position, err := checkNesting(ast); err != nil {
			c.problemAt(n, offset+runeOffset(text, position.line, position.column), text, "%v", err)
			return nil
		}
		ast, issues = env.Check(ast)
	}
	if issues.Err() != nil {
		c.phase.explainIssues(issues.Errors(), text, func(msg string, position int) {
			c.problemAt(n, offset+position, text, "%s", msg)
		})
		return nil
	}
	if position, err := checkPatterns(ast); err != nil {
		c.problemAt(n, offset+runeOffset(text, position.line, position.column), text, "%v", err)
		return nil
	}
	c.reads.record(c.lines, n, offset, text, ast.NativeRep())
	c.checkVariables(n, offset, text, ast.NativeRep())
	estimate, err := env.EstimateCost(ast, usualSizes)
	if err != nil || estimate.Max > costLimit {
		c.problemAt(n, offset, text,
			"the expression may cost too much to evaluate (%d, at most %d): make it look at less", estimate.Max,
			costLimit)
		return nil
	}
	if c.cost += estimate.Max; c.cost > documentCost {
		c.problemAt(n, offset, text, "the expressions up to here may cost too much together (%d, at most %d)", c.cost,
			documentCost)
		return nil
	}
	charges, steps := nodeCharges(ast.NativeRep())
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CustomDecoratorV2(chargeDecorator(charges)))
	if err != nil {
		c.problemAt(n, offset, text, "the expression cannot be planned: %v", err)
		return nil
	}
	return &expression{program: program, result: ast.OutputType(), steps: steps}
}

// checkVariables reports the variables of an expression that the agent of a sealed endpoint does not
// know. Its text begins at the character offset of n's value.
func (c *compiler) checkVariables(n *yaml.Node, offset int, text string, a *celast.AST) {
	for id, read := range a.ReferenceMap() {
		name := strings.TrimPrefix(read.Name, presencePrefix)
		if why := c.policy.options.Sealing.unknown(name); why != "" {
			start := a.SourceInfo().GetStartLocation(id)
			c.problemAt(n, offset+runeOffset(text, start.Line(), start.Column()), name, "%s is never known: %s", name,
				why)
		}
	}
}

type location struct{ line, column int }

// checkNesting checks the nesting depth before the type check, which takes long for deep nesting.
func checkNesting(a *cel.Ast) (location, error) {
	for _, limit := range []struct {
		kinds []celast.ExprKind
		most  int
		what  string
	}{
		{[]celast.ExprKind{celast.ComprehensionKind}, maxLoops, "loops (exists, all, map, filter)"},
		{[]celast.ExprKind{celast.ListKind, celast.MapKind}, maxLists, "lists and maps"},
	} {
		is := func(e celast.NavigableExpr) bool { return slices.Contains(limit.kinds, e.Kind()) }
		for _, e := range celast.MatchDescendants(celast.NavigateAST(a.NativeRep()), is) {
			depth := 1
			for up, ok := e.Parent(); ok; up, ok = up.Parent() {
				if is(up) {
					depth++
				}
			}
			if depth > limit.most {
				start := a.NativeRep().SourceInfo().GetStartLocation(e.ID())
				return location{start.Line(), start.Column()},
					fmt.Errorf("%s are nested in each other more than %d times", limit.what, limit.most)
			}
		}
	}
	return location{}, nil
}

// checkPatterns checks the regular expressions: they must be literals, so that their cost is known
// at compile time.
func checkPatterns(a *cel.Ast) (location, error) {
	native := a.NativeRep()
	var where location
	var err error
	celast.PreOrderVisit(native.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if err != nil || e.Kind() != celast.CallKind || e.AsCall().FunctionName() != "matches" {
			return
		}
		args := e.AsCall().Args()
		pattern := args[len(args)-1]
		start := native.SourceInfo().GetStartLocation(pattern.ID())
		where = location{start.Line(), start.Column()}
		if pattern.Kind() != celast.LiteralKind {
			err = fmt.Errorf("the pattern of matches must be a literal text")
			return
		}
		if s, ok := pattern.AsLiteral().(types.String); ok {
			_, err = compilePattern(string(s))
		}
	}))
	return where, err
}

// runeOffset converts CEL's line (from 1) and column (from 0) to the number of characters before
// them.
func runeOffset(text string, line, column int) int {
	offset := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(text, '\n')
		if i < 0 {
			break
		}
		offset += utf8.RuneCountInString(text[:i]) + 1
		text = text[i+1:]
	}
	return offset + min(max(column, 0), utf8.RuneCountInString(text))
}
