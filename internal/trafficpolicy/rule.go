// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// rule is a compiled rule. No expressions match everything.
type rule struct {
	name        string // as given, else on_http_request[2]
	expressions []*expression
	actions     []step
}

// step is an action at its place in a rule.
type step struct {
	kind   *kind
	action action
}

// outcome is what a rule's expressions came to.
type outcome int

const (
	skipped   outcome = iota
	matched           // all are true
	uncertain         // one could not be evaluated, and none is false: only what protects applies
)

// match evaluates the expressions like one with && between them: a false one decides, whatever the
// others are.
func (r *rule) match(x *exchange) outcome {
	result := matched
	for _, e := range r.expressions {
		switch value, ok := e.holds(x); {
		case !ok:
			result = uncertain
		case !value:
			return skipped
		}
	}
	return result
}

func (c *compiler) rule(n *yaml.Node) (rule, bool) {
	before := len(c.problems)
	o := c.object(n, "a rule")
	if o == nil {
		return rule{}, false
	}
	r := rule{name: c.phase.String() + "[" + strconv.Itoa(len(c.policy.rules[c.phase])) + "]"}
	if name := o.take("name"); name != nil && name.Tag != "!!null" {
		s, _ := c.text(name, "name")
		if r.name = s; len(s) > 256 {
			c.problem(name, s, "a name has at most 256 bytes")
		}
	}
	if list := o.take("expressions"); list != nil && list.Tag != "!!null" &&
		c.list(list, "expressions", "CEL expressions") {
		if len(list.Content) > maxPerRule {
			c.problem(list, "", "a rule has at most %d expressions", maxPerRule)
		}
		for _, item := range list.Content[:min(len(list.Content), maxPerRule)] {
			if _, ok := c.text(item, "an expression"); ok {
				r.expressions = append(r.expressions, c.condition(item))
			}
		}
	}
	if list := o.take("actions"); list == nil || list.Tag == "!!null" {
		c.problem(n, "", "a rule needs actions, a list of {type, config}")
	} else if c.list(list, "actions", "{type, config}") {
		r.actions = c.actions(list)
	}
	o.finish(nil)
	return r, len(c.problems) == before
}

func (c *compiler) actions(list *yaml.Node) []step {
	if len(list.Content) == 0 || len(list.Content) > maxPerRule {
		c.problem(list, "", "a rule has between 1 and %d actions", maxPerRule)
		return nil
	}
	var steps []step
	for _, item := range list.Content {
		if s, ok := c.action(item); ok {
			steps = append(steps, s)
		}
	}
	return steps
}

func (c *compiler) action(n *yaml.Node) (step, bool) {
	o := c.object(n, "an action")
	if o == nil {
		return step{}, false
	}
	typ, conf := o.take("type"), o.take("config")
	o.finish(nil)
	if typ == nil {
		c.problem(n, "", "an action needs a type")
		return step{}, false
	}
	name, ok := c.text(typ, "type")
	if !ok {
		return step{}, false
	}
	k := kindOf(name)
	if k == nil {
		c.problem(typ, name, "%s", unknownAction(name))
		return step{}, false
	}
	if !slices.Contains(k.phases, c.phase) {
		c.problem(typ, name, "%s cannot run in %s; it can in %s", name, c.phase, k.where())
		return step{}, false
	}
	if conf == nil || conf.Tag == "!!null" {
		conf = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: typ.Line, Column: typ.Column}
	}
	fields := c.object(conf, "the config of "+name)
	if fields == nil {
		return step{}, false
	}
	a := k.make()
	a.provision(&config{object: fields, kind: k})
	var hints map[string]string
	if h, ok := a.(interface{ hints() map[string]string }); ok {
		hints = h.hints()
	}
	fields.finish(hints)
	return step{kind: k, action: a}, true
}
