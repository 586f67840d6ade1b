// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/google/cel-go/cel"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Target is where a connection or request is forwarded to. The zero Target is the endpoint's own
// agent, pool or backend_id.
type Target struct {
	InternalURL string // the URL of an endpoint with the internal binding, in normal form
	BackendID   string
}

// Verdict is the result of the rules of on_tcp_connect for a connection.
type Verdict struct {
	Deny   bool
	Target Target
	Rule   string // the name of the rule that denied or chose the target, else its place: on_tcp_connect[0]
}

// exchange is one run of one phase: of a connection, a request or a response. Expressions read it,
// and actions act on it.
type exchange struct {
	policy    *Policy
	conn      *Conn
	w         http.ResponseWriter // nil while connecting
	r         *http.Request       // nil while connecting
	startedAt time.Time           // when the request began
	status    int                 // the response's status
	cloned    bool                // r is a copy that may be changed
	cache     map[string]any      // values that are dear to make
	steps     int                 // steps that are left
	budget    *int                // steps of the exchange, or those of the request that a response belongs to
	results   map[string]any      // what actions have found out, for later rules

	rules                  []rule
	ruleIndex, actionIndex int // the next action
	undetermined           bool
	ruleName               string // the rule that runs

	verdict   Verdict
	forwarder Forwarder       // nil while connecting
	response  *responseWriter // the writer of the response whose rules run; nil in the other phases
}

// Parent implements CEL's Activation.
func (x *exchange) Parent() cel.Activation { return nil }

// next runs the next action that applies, or ends the phase.
func (x *exchange) next() {
	for ; x.ruleIndex < len(x.rules) && !x.exhausted(); x.ruleIndex, x.actionIndex = x.ruleIndex+1, 0 {
		r := &x.rules[x.ruleIndex]
		if x.actionIndex == 0 {
			m := r.match(x)
			if m == notMatched && r.matchesAlternatePath(x) {
				m = undetermined
			}
			if x.exhausted() {
				x.ruleName = r.name
				break
			}
			if m == notMatched {
				if a := r.reservedPathAction(x); a != nil {
					x.actionIndex, x.ruleName = len(r.actions), r.name
					a.serve(x)
					return
				}
				continue
			}
			x.undetermined = m == undetermined
		}
		for x.actionIndex < len(r.actions) {
			s := &r.actions[x.actionIndex]
			x.actionIndex++
			if x.undetermined && !s.actionType.failClosed {
				continue
			}
			x.ruleName = r.name
			s.action.serve(x)
			return
		}
	}
	if x.exhausted() {
		x.fail()
		return
	}
	x.finish(Target{})
}

// finish ends the phase and forwards the connection, request or response.
func (x *exchange) finish(t Target) {
	switch {
	case x.r == nil:
		x.verdict.Target = t
		if t != (Target{}) {
			x.verdict.Rule = x.ruleName
		}
	case x.response != nil:
		x.w.WriteHeader(x.status)
	case len(x.policy.rules[onHTTPResponse]) > 0:
		(&responseWriter{ResponseWriter: x.w, request: x}).forward(x.r, t)
	default:
		x.forwarder.Forward(x.w, x.r, t)
	}
}

// refuse ends the phase: it closes a connection, and answers a request with a page.
func (x *exchange) refuse(status int, code account.Code, msg string) {
	if x.r == nil {
		x.verdict = Verdict{Deny: true, Rule: x.ruleName}
		return
	}
	x.replace(func() { x.forwarder.WritePage(x.w, x.r, status, code, msg) })
}

// respond answers with a response of the policy, in the place of what would come.
func (x *exchange) respond(status int, header http.Header, body string) {
	x.replace(func() { writeAnswer(x.w, status, header, body) })
}

// replace answers with write.
func (x *exchange) replace(write func()) {
	if x.response != nil {
		x.response.replace(write)
		return
	}
	write()
}

// fail ends the phase because an action that decides about access cannot be run: it refuses.
func (x *exchange) fail() {
	if x.exhausted() {
		x.policy.reportCostExceeded(x.ruleName)
		x.refuse(account.CodePolicyCost.Status(), account.CodePolicyCost,
			"The traffic policy of this endpoint takes too much work for this request. "+
				"A shorter URL or fewer headers may help.")
		return
	}
	x.refuse(account.CodePolicyFailed.Status(), account.CodePolicyFailed,
		"The traffic policy of this endpoint could not be carried out for this request: an expression in it has no "+
			"value, or an unusable one.")
}

// mutableRequest returns the request for changes. It copies it first, so that the caller's stays as
// it came.
func (x *exchange) mutableRequest() *http.Request {
	if !x.cloned {
		r := x.r.WithContext(x.r.Context())
		r.Header = maps.Clone(r.Header)
		u := *r.URL
		r.URL = &u
		x.r, x.cloned = r, true
	}
	clear(x.cache)
	return x.r
}

// cached returns a value that get makes once in a phase, or until the request is changed: an
// expression may read it many times. bytes is the size of what it is made of.
func (x *exchange) cached(key string, bytes int, get func() any) any {
	if v, ok := x.cache[key]; ok {
		return v
	}
	x.spend(parseSteps * bytes)
	if x.cache == nil {
		x.cache = map[string]any{}
	}
	v := get()
	x.cache[key] = v
	return v
}

// setResult keeps a result of an action for later rules.
func (x *exchange) setResult(name string, value any) {
	if x.results == nil {
		x.results = map[string]any{}
	}
	x.results[name] = value
}

func (x *exchange) scheme() string {
	if x.conn.TLS {
		return "https"
	}
	return "http"
}

// Connect runs the rules of on_tcp_connect, once for a connection to an endpoint of any scheme.
func (p *Policy) Connect(_ context.Context, c *Conn) Verdict {
	if len(p.rules[onTCPConnect]) == 0 {
		return Verdict{}
	}
	x := exchange{policy: p, conn: c, rules: p.rules[onTCPConnect], steps: maxSteps}
	x.budget = &x.steps
	x.next()
	return x.verdict
}

// PageWriter answers requests that are refused.
type PageWriter interface {
	WritePage(w http.ResponseWriter, r *http.Request, status int, code account.Code, msg string)
}

// Forwarder serves the requests that a policy admits, and answers those that it refuses.
type Forwarder interface {
	PageWriter
	Forward(w http.ResponseWriter, r *http.Request, t Target)
}

// ServeHTTP runs the rules of on_http_request for one request: it answers, or calls Forward once with
// the request as changed. The writer that Forward gets runs the rules of on_http_response before the
// header of a response is written.
func (p *Policy) ServeHTTP(w http.ResponseWriter, r *http.Request, c *Conn, f Forwarder) {
	if len(p.rules[onHTTPRequest]) == 0 && len(p.rules[onHTTPResponse]) == 0 {
		f.Forward(w, r, Target{})
		return
	}
	x := exchange{
		policy: p, conn: c, w: w, r: r, startedAt: p.options.Clock(), steps: maxSteps, rules: p.rules[onHTTPRequest],
		forwarder: f,
	}
	x.budget = &x.steps
	x.next()
}
