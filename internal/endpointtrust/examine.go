// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointtrust

import (
	"slices"
	"strings"
)

// Examine returns the policy of an object that has not vanished, nil if there is none, and what
// holds for all URLs that it selects or, if some other policies select can be among them and trust
// different agents, that these are refused.
func (r *Rules) Examine(namespace, name string) (*Policy, Decision) {
	rules := r.namespaces[namespace]
	i := slices.IndexFunc(rules, func(o *rule) bool { return o.policy.Name == name && o.policy.Vanished.IsZero() })
	if i < 0 {
		return nil, Decision{}
	}
	examined := rules[i]
	if r := examined.decision.Refused; r != "" && r != ReasonNotPinned {
		return examined.policy, examined.decision
	}
	var others []string
	for _, o := range rules {
		if o.policy.Vanished.IsZero() && o.trusts != examined.trusts && overlap(&o.policy.Spec, &examined.policy.Spec) {
			others = append(others, o.policy.Name)
		}
	}
	if len(others) > 0 {
		return examined.policy, Decision{Refused: ReasonConflict, Detail: "endpoints that EndpointTrust " +
			strings.Join(others, ", ") + " selects, too, which trusts different agents"}
	}
	return examined.policy, examined.decision
}

// overlap reports whether there can be a URL that both select.
func overlap(a, b *Spec) bool {
	ports := len(a.Ports) == 0 || len(b.Ports) == 0 ||
		slices.ContainsFunc(a.Ports, func(port int32) bool { return slices.Contains(b.Ports, port) })
	return ports && slices.ContainsFunc(a.Endpoints, func(x string) bool {
		return slices.ContainsFunc(b.Endpoints, func(y string) bool { return patternsOverlap(x, y) })
	})
}

// patternsOverlap reports whether there is a label that both patterns match.
func patternsOverlap(a, b string) bool {
	star := func(pattern string, n int) bool { return n > 0 && pattern[n-1] == '*' }
	// row[j] reports whether there is a text that the first i characters of a and the first j of b match.
	row := make([]bool, len(b)+1)
	for i := range len(a) + 1 {
		before := slices.Clone(row) // the row of i-1
		for j := range row {
			skip := star(a, i) || star(b, j)
			row[j] = i+j == 0 || i > 0 && before[j] && skip || j > 0 && row[j-1] && skip ||
				i > 0 && j > 0 && before[j-1] && a[i-1] == b[j-1]
		}
	}
	return row[len(b)]
}
