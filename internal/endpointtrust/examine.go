// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointtrust

import (
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
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
	if examined.decision.Refused != "" {
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
	if !strings.Contains(a, "*") {
		return endpointaccess.Selects([]string{b}, nil, endpointaccess.Target{Endpoint: a})
	}
	// row[j] reports whether there is a text that the first i characters of a and the first j of b match.
	row := make([]bool, len(b)+1)
	for i := range len(a) + 1 {
		before := slices.Clone(row) // the row of i-1
		for j := range row {
			switch {
			case i == 0 && j == 0:
				row[j] = true
			case i > 0 && a[i-1] == '*':
				row[j] = before[j] || j > 0 && row[j-1]
			case j > 0 && b[j-1] == '*':
				row[j] = row[j-1] || i > 0 && before[j]
			default:
				row[j] = i > 0 && j > 0 && a[i-1] == b[j-1] && before[j-1]
			}
		}
	}
	return row[len(b)]
}
