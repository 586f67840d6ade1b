// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// rule is a compiled rule. A rule without expressions matches everything.
type rule struct {
	name        string // the given name, else on_http_request[2]
	expressions []*expression
	actions     []ruleAction
}

// ruleAction is an action of a rule.
type ruleAction struct {
	actionType *actionType
	action     action
}

// matchResult is the result of a rule's expressions.
type matchResult int

const (
	notMatched   matchResult = iota
	matched                  // all are true
	undetermined             // one could not be evaluated, and none is false: only what protects applies
)

// match evaluates the expressions as if joined by &&: a false one decides, whatever the others are.
func (r *rule) match(x *exchange) matchResult {
	result := matched
	for _, e := range r.expressions {
		switch value, ok := e.holds(x); {
		case !ok:
			result = undetermined
		case !value:
			return notMatched
		}
	}
	return result
}

func (c *compiler) compileRule(n *yaml.Node) (rule, bool) {
	before := len(c.problems)
	o := c.mapping(n, "a rule")
	if o == nil {
		return rule{}, false
	}
	r := rule{name: c.phase.String() + "[" + strconv.Itoa(len(c.policy.rules[c.phase])) + "]"}
	if name := o.get("name"); name != nil && name.Tag != "!!null" {
		s, _ := c.stringValue(name, "name")
		if r.name = s; len(s) > 256 {
			c.problem(name, s, "a name has at most 256 bytes")
		}
	}
	if list := o.get("expressions"); list != nil && list.Tag != "!!null" &&
		c.isList(list, "expressions", "CEL expressions") {
		if len(list.Content) > maxPerRule {
			c.problem(list, "", "a rule has at most %d expressions", maxPerRule)
		}
		for _, item := range list.Content[:min(len(list.Content), maxPerRule)] {
			if _, ok := c.stringValue(item, "an expression"); ok {
				r.expressions = append(r.expressions, c.compileCondition(item))
			}
		}
	}
	if list := o.get("actions"); list == nil || list.Tag == "!!null" {
		c.problem(n, "", "a rule needs actions, a list of {type, config}")
	} else if c.isList(list, "actions", "{type, config}") {
		r.actions = c.compileActions(list)
	}
	o.reportUnknown(nil)
	return r, len(c.problems) == before
}

func (c *compiler) compileActions(list *yaml.Node) []ruleAction {
	if len(list.Content) == 0 || len(list.Content) > maxPerRule {
		c.problem(list, "", "a rule has between 1 and %d actions", maxPerRule)
		return nil
	}
	var steps []ruleAction
	for _, item := range list.Content {
		if s, ok := c.compileAction(item); ok {
			steps = append(steps, s)
		}
	}
	return steps
}

func (c *compiler) compileAction(n *yaml.Node) (ruleAction, bool) {
	o := c.mapping(n, "an action")
	if o == nil {
		return ruleAction{}, false
	}
	typ, conf := o.get("type"), o.get("config")
	o.reportUnknown(nil)
	if typ == nil {
		c.problem(n, "", "an action needs a type")
		return ruleAction{}, false
	}
	name, ok := c.stringValue(typ, "type")
	if !ok {
		return ruleAction{}, false
	}
	k := actionTypeNamed(name)
	if k == nil {
		c.problem(typ, name, "%s", unknownActionMessage(name))
		return ruleAction{}, false
	}
	if !slices.Contains(k.phases, c.phase) {
		c.problem(typ, name, "%s cannot run in %s; it can in %s", name, c.phase, k.phaseNames())
		return ruleAction{}, false
	}
	if c.policy.options.Sealing != nil && slices.Contains(serviceActions, name) {
		c.problem(typ, name, "%s needs the service, which reads nothing of a sealed endpoint: leave it out, or serve "+
			"the endpoint without a seal", name)
		return ruleAction{}, false
	}
	if conf == nil || conf.Tag == "!!null" {
		conf = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: typ.Line, Column: typ.Column}
	}
	fields := c.mapping(conf, "the config of "+name)
	if fields == nil {
		return ruleAction{}, false
	}
	a := k.make()
	a.provision(&config{mapping: fields, kind: k})
	var hints map[string]string
	if h, ok := a.(interface{ hints() map[string]string }); ok {
		hints = h.hints()
	}
	fields.reportUnknown(hints)
	return ruleAction{actionType: k, action: a}, true
}
