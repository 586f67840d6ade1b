// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// celEnvironments are the expression languages of the phases, which differ in their variables.
type celEnvironments struct {
	envs [phases]*cel.Env
	err  error
}

func (l celEnvironments) forPhase(p phase) (*cel.Env, error) { return l.envs[p], l.err }

// celEnvironmentsOnce makes the environments once; they never change.
var celEnvironmentsOnce = sync.OnceValue(func() (l celEnvironments) {
	for p := range phases {
		options := []cel.EnvOption{cel.Macros(macros()...), cel.ParserRecursionLimit(maxNesting)}
		options = append(options, functions()...)
		groups := map[string]bool{}
		for _, v := range variables() {
			if !slices.Contains(v.phases, p) {
				continue
			}
			options = append(options, cel.Variable(v.name, v.typ), cel.Variable(presencePrefix+v.name, cel.BoolType))
			for name := v.name; ; {
				i := strings.LastIndexByte(name, '.')
				if i < 0 {
					break
				}
				name = name[:i]
				groups[name] = true
			}
		}
		for name := range groups {
			if variableNamed(name) == nil {
				options = append(options, cel.Variable(presencePrefix+name, cel.BoolType))
			}
		}
		if l.envs[p], l.err = cel.NewEnv(options...); l.err != nil {
			return l
		}
	}
	return l
})

// Bounds of nesting: CEL's type checker takes minutes for a hundred lists, maps or loops in each
// other.
const (
	maxNesting = 32 // levels of any kind; a chain of + counts, too
	maxLoops   = 4  // exists, all, map, filter in each other
	maxLists   = 8  // lists and maps in each other
)

// presencePrefix begins the name of the variable that has(…) reads for a variable; expressions
// cannot spell it.
const presencePrefix = "@has:"

// macros returns has(), which also takes a variable or a group of them, and the accessors of
// headers, query parameters and cookies.
func macros() []cel.Macro {
	all := []cel.Macro{cel.GlobalMacro("has", 1, expandHas)}
	// add adds has… and get…, which expand to calls with the variable and the key.
	add := func(suffix, variable string, get func(f cel.MacroExprFactory, variable, key celast.Expr) celast.Expr) {
		all = append(all,
			cel.GlobalMacro("has"+suffix, 1,
				func(f cel.MacroExprFactory, _ celast.Expr, args []celast.Expr) (celast.Expr, *cel.Error) {
					return f.NewCall(operators.In, args[0], f.NewIdent(variable)), nil
				}),
			cel.GlobalMacro("get"+suffix, 1,
				func(f cel.MacroExprFactory, _ celast.Expr, args []celast.Expr) (celast.Expr, *cel.Error) {
					return get(f, f.NewIdent(variable), args[0]), nil
				}))
	}
	values := func(f cel.MacroExprFactory, variable, key celast.Expr) celast.Expr {
		return f.NewCall(operators.Conditional, f.NewCall(operators.In, key, f.Copy(variable)),
			f.NewCall(operators.Index, variable, f.Copy(key)), f.NewList())
	}
	first := func(f cel.MacroExprFactory, variable, key celast.Expr) celast.Expr {
		return f.NewCall(operators.Index, f.NewCall(operators.Index, variable, key), f.NewLiteral(types.Int(0)))
	}
	add("ReqHeader", "req.headers", values)
	add("ResHeader", "res.headers", values)
	add("QueryParam", "req.url.query_params", values)
	add("ReqCookie", "req.cookies", first)
	add("ResCookie", "res.cookies", first)
	return all
}

// expandHas expands has(conn.pod.name) and has(conn.pod) to a look-up of presence; anything else is
// CEL's own has().
func expandHas(f cel.MacroExprFactory, _ celast.Expr, args []celast.Expr) (celast.Expr, *cel.Error) {
	if args[0].Kind() != celast.SelectKind {
		return nil, f.NewError(args[0].ID(), "has() takes a variable, such as has(conn.pod.name), or a key of a map")
	}
	name := ""
	e := args[0]
	for ; e.Kind() == celast.SelectKind; e = e.AsSelect().Operand() {
		name = "." + e.AsSelect().FieldName() + name
	}
	if e.Kind() == celast.IdentKind {
		if name = e.AsIdent() + name; variableNamed(name) != nil || isGroup(name) {
			return f.NewIdent(presencePrefix + name), nil
		}
	}
	s := args[0].AsSelect()
	return f.NewPresenceTest(s.Operand(), s.FieldName()), nil
}

// sizeEstimator tells CEL's cost estimate how large values of unknown size may be.
type sizeEstimator struct{ text, list, dict uint64 }

// usualSizes are those of a large but ordinary request, whose cost must be within the limit.
var usualSizes = sizeEstimator{text: 256, list: 4, dict: 64}

// EstimateSize implements checker.CostEstimator.
func (s sizeEstimator) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	most := uint64(1)
	switch n.Type().Kind() {
	case types.StringKind, types.BytesKind:
		most = s.text
	case types.ListKind:
		most = s.list
	case types.MapKind:
		most = s.dict
	}
	return &checker.SizeEstimate{Min: 0, Max: most}
}

// EstimateCallCost implements checker.CostEstimator.
func (s sizeEstimator) EstimateCallCost(
	_, overload string, _ *checker.AstNode, args []checker.AstNode,
) *checker.CallEstimate {
	switch {
	case overload == overloads.Matches || overload == overloads.MatchesString:
		pattern, _ := args[len(args)-1].Expr().AsLiteral().(types.String)
		most := s.text*uint64(len(programOf(string(pattern))))/10 + patternCost*uint64(len(pattern))
		return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: 1, Max: most}}
	case !strings.HasPrefix(overload, overloadPrefix):
		return nil
	}
	return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: 1,
		Max: uint64(len(args)+2) * (1 + s.text/10 + s.list)}}
}
