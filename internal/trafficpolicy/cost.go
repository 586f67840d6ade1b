// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"errors"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// A step is about 10 ns of CPU. Work is charged before it is done, because a regular expression
// that runs cannot be interrupted.
const (
	maxSteps   = 1_000_000 // steps of a policy for one request with its response, or for one connection
	nodeSteps  = 5         // an operation on values of fixed size
	itemSteps  = 10        // looking at an element of a list
	entrySteps = 50        // comparing an entry of a map
	parseSteps = 4         // making a variable of a byte of the request
	scanBytes  = 1         // bytes that a step reads where a function works through a text
	keyBytes   = 4         // bytes of keys that a step looks up
	copyBytes  = 32        // bytes that a step compares or copies
)

// errCost is the error of a request that has used up its steps.
var errCost = errors.New("the traffic policy takes too much work for this request")

// spend charges steps. It reports whether there were any left.
func (x *exchange) spend(steps int) bool {
	*x.budget -= steps
	return *x.budget >= 0
}

// exhausted reports whether the request has used up its steps.
func (x *exchange) exhausted() bool { return *x.budget < 0 }

// charge is the cost of evaluating a node of an expression.
type charge struct {
	steps int // every time
	bytes int // bytes of its value that a step handles; 0: its value is not looked at
	times int // what the bytes are multiplied with: the size of a regular expression's program
	items bool
}

// costVisitor finds the nodes of a checked expression whose cost depends on the request: arguments
// of functions that read them whole, and bodies of loops. The other nodes are charged together by
// their number.
type costVisitor struct {
	ast     *celast.AST
	charges map[int64]charge
}

// nodeCharges returns the charges by node, and the steps of the other nodes, for one evaluation.
func nodeCharges(a *celast.AST) (charges map[int64]charge, steps int) {
	m := &costVisitor{ast: a, charges: map[int64]charge{}}
	m.visit(a.Expr(), &steps)
	return m.charges, steps
}

// visit adds the steps of an expression to those of the loop body, or whole expression, that
// contains it.
func (v *costVisitor) visit(e celast.Expr, steps *int) {
	*steps += nodeSteps
	if v.ast.ReferenceMap()[e.ID()] != nil && e.Kind() == celast.SelectKind {
		return // a variable such as req.url.path
	}
	switch e.Kind() {
	case celast.SelectKind:
		v.visit(e.AsSelect().Operand(), steps)
	case celast.ListKind:
		for _, item := range e.AsList().Elements() {
			v.visit(item, steps)
		}
	case celast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			v.visit(entry.AsMapEntry().Key(), steps)
			v.chargeValue(entry.AsMapEntry().Key(), charge{bytes: keyBytes})
			v.visit(entry.AsMapEntry().Value(), steps)
		}
	case celast.ComprehensionKind:
		loop, body := e.AsComprehension(), 0
		for _, once := range []celast.Expr{loop.IterRange(), loop.AccuInit(), loop.Result()} {
			v.visit(once, steps)
		}
		v.chargeValue(loop.IterRange(), charge{items: true})
		v.visit(loop.LoopCondition(), &body)
		v.visit(loop.LoopStep(), &body)
		v.addCharge(loop.LoopStep(), charge{steps: body})
	case celast.CallKind:
		v.visitCall(e.AsCall(), steps)
	}
}

func (v *costVisitor) visitCall(c celast.CallExpr, steps *int) {
	args := c.Args()
	if c.IsMemberFunction() {
		args = append([]celast.Expr{c.Target()}, args...)
	}
	for _, a := range args {
		v.visit(a, steps)
	}
	switch c.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional,
		operators.NotStrictlyFalse:
	case operators.Index:
		v.chargeValue(args[1], charge{bytes: keyBytes})
	case operators.In:
		v.chargeValue(args[0], charge{bytes: keyBytes})
		if v.ast.GetType(args[1].ID()).Kind() != types.MapKind {
			v.chargeValue(args[1], charge{bytes: copyBytes})
		}
	case operators.Equals, operators.NotEquals:
		if v.boundedBy(args[0], args[1]) || v.boundedBy(args[1], args[0]) {
			return
		}
		fallthrough
	case operators.Add, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		v.chargeValues(args, charge{bytes: copyBytes})
	case overloads.StartsWith, overloads.EndsWith:
		v.chargeValue(args[1], charge{bytes: copyBytes})
	case overloads.Matches:
		v.chargeMatches(args, steps)
	default:
		v.chargeValues(args, charge{bytes: scanBytes})
	}
}

// boundedBy reports whether a literal bounds the cost of a comparison with the other operand.
func (v *costVisitor) boundedBy(literal, other celast.Expr) bool {
	return isLiteral(literal) && v.ast.GetType(other.ID()).Kind() != types.MapKind
}

func isLiteral(e celast.Expr) bool {
	if e.Kind() != celast.ListKind {
		return e.Kind() == celast.LiteralKind
	}
	for _, item := range e.AsList().Elements() {
		if !isLiteral(item) {
			return false
		}
	}
	return true
}

// chargeMatches charges a regular expression by the size of its program times that of the text.
func (v *costVisitor) chargeMatches(args []celast.Expr, steps *int) {
	program := 1
	if pattern, ok := args[1].AsLiteral().(types.String); ok {
		program = len(programOf(string(pattern)))
	}
	if text, ok := args[0].AsLiteral().(types.String); ok {
		*steps += program * (len(text) + 1)
	}
	v.chargeValue(args[0], charge{steps: program, bytes: 1, times: program})
}

func (v *costVisitor) chargeValues(args []celast.Expr, c charge) {
	for _, a := range args {
		v.chargeValue(a, c)
	}
}

// chargeValue charges for the value of e, unless its size is fixed.
func (v *costVisitor) chargeValue(e celast.Expr, c charge) {
	switch v.ast.GetType(e.ID()).Kind() {
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.TimestampKind, types.DurationKind,
		types.NullTypeKind, types.TypeKind:
		return
	}
	if !isLiteral(e) {
		v.addCharge(e, c)
	}
}

// addCharge charges for e at the node that the planned program has: elements and fields have the id
// of their operand.
func (v *costVisitor) addCharge(e celast.Expr, c charge) {
	for v.ast.ReferenceMap()[e.ID()] == nil || e.Kind() == celast.CallKind {
		if e.Kind() == celast.SelectKind {
			e = e.AsSelect().Operand()
		} else if e.Kind() == celast.CallKind && e.AsCall().FunctionName() == operators.Index {
			e = e.AsCall().Args()[0]
		} else {
			break
		}
	}
	v.charges[e.ID()] = c
}

// stepsFor returns the steps that a value costs.
func (c charge) stepsFor(v ref.Val, left int) int {
	steps := c.steps
	if c.items {
		if n, ok := v.(traits.Sizer); ok {
			size, _ := n.Size().(types.Int)
			steps += int(size) * nodeSteps
		}
	}
	if c.bytes > 0 {
		steps += valueSteps(v, c.bytes, left) * max(c.times, 1)
	}
	return steps
}

// valueSteps returns the steps of reading a whole value. It stops counting when there are more than
// left.
func valueSteps(v ref.Val, bytes, left int) int {
	switch v := v.(type) {
	case types.String:
		return len(v) / bytes
	case types.Bytes:
		return len(v) / bytes
	case *headerMap:
		return v.valueSteps(bytes)
	case traits.Mapper:
		steps := itemSteps
		for it := v.Iterator(); steps <= left && it.HasNext() == types.True; {
			key := it.Next()
			steps += entrySteps + valueSteps(key, bytes, left-steps)
			if value, ok := v.Find(key); ok {
				steps += valueSteps(value, bytes, left-steps)
			}
		}
		return steps
	case traits.Lister:
		steps := itemSteps
		for it := v.Iterator(); steps <= left && it.HasNext() == types.True; {
			steps += itemSteps + valueSteps(it.Next(), bytes, left-steps)
		}
		return steps
	}
	return 0
}

// exchangeName is the variable by which a metered node finds its exchange; expressions cannot spell
// it.
const exchangeName = "@exchange"

// apply charges for the value of a node; it ends the evaluation when no steps are left.
func (c *charge) apply(vars interpreter.Activation, v ref.Val) {
	found, _ := vars.ResolveName(exchangeName)
	x, ok := found.(*exchange)
	if ok && !x.spend(c.stepsFor(v, *x.budget)) {
		panic(interpreter.EvalCancelledError{Message: errCost.Error(), Cause: interpreter.CostLimitExceeded})
	}
}

// metered is a node that is charged for.
type metered struct {
	interpreter.InterpretableV2
	charge charge
}

// Exec implements interpreter.InterpretableV2.
func (n *metered) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := n.InterpretableV2.Exec(frame)
	n.charge.apply(frame, v)
	return v
}

// Eval implements interpreter.Interpretable.
func (n *metered) Eval(vars interpreter.Activation) ref.Val { return n.Exec(interpreter.AsFrame(vars)) }

// meteredAttribute is a variable, element or field that is charged for.
type meteredAttribute struct {
	interpreter.InterpretableAttribute
	charge charge
}

// Exec implements interpreter.InterpretableV2.
func (n *meteredAttribute) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := n.InterpretableAttribute.Exec(frame)
	n.charge.apply(frame, v)
	return v
}

// Eval implements interpreter.Interpretable.
func (n *meteredAttribute) Eval(vars interpreter.Activation) ref.Val {
	return n.Exec(interpreter.AsFrame(vars))
}

// Qualify looks the attribute's value up in obj.
func (n *meteredAttribute) Qualify(vars interpreter.Activation, obj any) (any, error) {
	n.chargeKey(vars)
	return n.InterpretableAttribute.Qualify(vars, obj)
}

// QualifyIfPresent looks the attribute's value up in obj, where it may be missing.
func (n *meteredAttribute) QualifyIfPresent(vars interpreter.Activation, obj any, presence bool) (any, bool, error) {
	n.chargeKey(vars)
	return n.InterpretableAttribute.QualifyIfPresent(vars, obj, presence)
}

func (n *meteredAttribute) chargeKey(vars interpreter.Activation) {
	if key, err := n.Resolve(vars); err == nil {
		n.charge.apply(vars, n.Adapter().NativeToValue(key))
	}
}

// chargeDecorator returns a decorator that adds the charges to the nodes of a program.
func chargeDecorator(charges map[int64]charge) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		c, ok := charges[i.ID()]
		if !ok {
			return i, nil
		}
		switch i := i.(type) {
		case interpreter.InterpretableConst, *metered, *meteredAttribute:
		case interpreter.InterpretableAttribute:
			return &meteredAttribute{i, c}, nil
		default:
			return &metered{i, c}, nil
		}
		return i, nil
	}
}
