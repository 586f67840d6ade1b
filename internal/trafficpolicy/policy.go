// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of one document.
const (
	MaxBytes       = account.MaxTrafficPolicy
	maxRules       = 128 // in all phases
	maxPerRule     = 16  // expressions, and actions
	maxExpressions = 512 // with those inside of texts
	maxProblems    = 50  // problems that are reported
)

// Options configure the compilation of a policy.
type Options struct {
	Scheme  string           // the endpoint's: tcp, http or https; "" is http
	Binding string           // kubernetes, internal or public; "" is not known
	Clock   func() time.Time // nil is time.Now
	// Stored is set for a document in force: harmless mistakes that an earlier version accepted are
	// not reported.
	Stored bool
	// NoSecrets makes each secret of the document a mistake, with this text as the remedy: for a
	// document that is kept where people read it who may not know its secrets. "" allows secrets.
	NoSecrets string
	Sealing   *Sealing     // Sealing is set for a document that the agent of a sealed endpoint applies.
	Costs     CostObserver // Costs may be nil.
	// LoginHandler implements login actions; nil where the policy is only checked: they then deny
	// every request.
	LoginHandler LoginHandler
	// ValidateLogin checks the config of a login action as far as that takes knowledge of the
	// provider's protocol. Its error is an *account.Error that names fields. nil = not checked.
	ValidateLogin func(*LoginConfig) error
}

// CostObserver is told of a rule at which a request used up the work that the policy may take, at most
// once a minute.
type CostObserver interface{ CostExceeded(rule string) }

// Policy is a compiled document. It is safe for concurrent use. It holds the counters of its rate
// limits, so use one Policy per endpoint and text.
type Policy struct {
	rules   [phases][]rule
	facts   account.PolicyFacts
	summary Summary
	options Options

	costReportedAt atomic.Int64 // when, in nanoseconds
}

// Summary describes a document for people.
type Summary struct {
	Phases  []string // those that have rules, in the order in which they run
	Rules   int
	Actions []string // types, sorted, without repetitions
}

// Problem is one mistake in a document. Line and Column count from 1, in characters. Value is the
// text at fault where there is one; it is never a secret.
type Problem struct {
	Line, Column int
	Value, Msg   string
}

// String returns "line 3, column 5: …".
func (p Problem) String() string {
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Msg)
}

// Compile parses, type-checks and provisions a document in YAML or JSON. Errors are *account.Error
// CodeInvalid with one field error for every mistake: the field is "traffic_policy", the rule
// begins with line and column. A text without rules is a policy that does nothing.
func Compile(text string, o Options) (*Policy, error) {
	p, problems := Check(text, o)
	if len(problems) == 0 {
		return p, nil
	}
	fields := make([]account.FieldError, len(problems))
	for i, problem := range problems {
		value := cmp.Or(problem.Value, account.NotShown)
		fields[i] = account.FieldError{
			Field: "traffic_policy", Value: value, Rule: problem.String(), Line: problem.Line, Column: problem.Column,
		}
	}
	return nil, account.InvalidAll(fields)
}

// Check is Compile for callers that show mistakes in their own form: it returns them in the order
// of the document.
func Check(text string, o Options) (*Policy, []Problem) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	p := &Policy{options: o}
	c := &compiler{policy: p}
	if err := c.compileDocument(text); err != nil {
		c.problems = append(c.problems, *err)
	}
	if len(c.problems) > 0 {
		return nil, sortProblems(c.problems)
	}
	return c.policy, nil
}

// sortProblems sorts problems by position, and drops duplicates, which aliases cause.
func sortProblems(all []Problem) []Problem {
	slices.SortStableFunc(all, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	all = slices.Compact(all)
	if more := len(all) - maxProblems; more > 0 {
		all = all[:maxProblems]
		all[maxProblems-1].Value, all[maxProblems-1].Msg = "", fmt.Sprintf("%d more mistakes from here on", more+1)
	}
	return all
}

// Facts returns what the store keeps of the policy. The digest depends on the document's meaning:
// not on comments, order of keys, quotes or the choice of YAML or JSON.
func (p *Policy) Facts() account.PolicyFacts {
	return account.PolicyFacts{Digest: p.facts.Digest, Backends: slices.Clone(p.facts.Backends),
		InternalHosts: slices.Clone(p.facts.InternalHosts)}
}

// Summary returns a summary of the document.
func (p *Policy) Summary() Summary { return p.summary }

// reportCostExceeded reports that a request has used up its steps at a rule.
func (p *Policy) reportCostExceeded(rule string) {
	now, last, costs := p.options.Clock().UnixNano(), p.costReportedAt.Load(), p.options.Costs
	if costs != nil && (last == 0 || now-last >= int64(time.Minute)) && p.costReportedAt.CompareAndSwap(last, now) {
		costs.CostExceeded(rule)
	}
}
