// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointtrust

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// Reason is why connections to an endpoint are refused.
type Reason string

// The reasons.
const (
	ReasonConflict  Reason = "trust_conflict"   // policies that select the endpoint trust different agents
	ReasonInvalid   Reason = "trust_invalid"    // the policy's authorities or keys cannot be read
	ReasonNoAccount Reason = "trust_no_account" // a policy selects the endpoint, and the account is not configured
	ReasonUnknown   Reason = "trust_unknown"    // the namespace's objects were never listed
	ReasonNotPinned Reason = "trust_not_pinned" // the first key is to be trusted, and none was seen yet
)

// Default is what the installation says.
type Default struct {
	// Mode holds for endpoints that no policy selects; what one selects is sealed.
	Mode sealed.Mode
	// Account is the id of the installation's account. Without it nothing can be sealed.
	Account string
	// Authorities are trusted where a policy has neither authorities nor keys.
	Authorities []*x509.Certificate
}

// Decision is what holds for connections to an endpoint.
type Decision struct {
	// Refused is why none may be opened; empty: they are sealed as Trust says.
	Refused Reason
	// Trust decides whose certificate may answer. With Mode Off connections are not sealed.
	Trust sealed.TrustOptions
	// Generation identifies Trust: it is the same for the same options, and another one for others.
	Generation string
	// ByInstallation reports that all that is trusted are authorities of the Default.
	ByInstallation bool
	// FirstSight reports that the key is trusted that was seen first: pinned by the object Pinned.
	FirstSight bool
	Pinned     string // name of the object, without its namespace
	// Detail names the objects that Refused is about, for people who may read them.
	Detail string
}

// Rules are compiled policies. They do not change, so their methods are safe for concurrent use.
type Rules struct {
	// Digests has the endpointaccess.Digest of each namespace's policies that have not vanished, of
	// namespaces that have some.
	Digests map[string]string

	byDefault  Decision
	namespaces map[string][]*rule
	listed     endpointaccess.Listed
}

// rule is a compiled policy.
type rule struct {
	policy   *Policy
	decision Decision
	pinned   map[account.EndpointURL]Decision // pinned has URLs with pins, at first sight and with Mode Prefer.
	trusts   string                           // digest of what it trusts
}

// decide returns the decision about a URL that the policy selects.
func (r *rule) decide(u account.EndpointURL) Decision {
	if d, ok := r.pinned[u]; ok {
		return d
	}
	return r.decision
}

// pinsAnother reports whether both have a key of the URL that was seen first, and not the same.
func (r *rule) pinsAnother(u account.EndpointURL, o *rule) bool {
	a, b := r.pinned[u].Generation, o.pinned[u].Generation
	return a != "" && b != "" && a != b
}

// Compile compiles policies, which must not be changed afterwards, of the namespaces whose objects
// are listed. A policy that has vanished holds only for URLs that none of the others selects, and
// only if it vanished last of those that did.
func Compile(policies []Policy, byDefault Default, listed endpointaccess.Listed) *Rules {
	trust := sealed.TrustOptions{Mode: byDefault.Mode, Account: byDefault.Account, Authorities: byDefault.Authorities}
	r := &Rules{Digests: map[string]string{}, namespaces: map[string][]*rule{}, listed: listed,
		byDefault: Decision{Trust: trust, Generation: generation(&trust), ByInstallation: true}}
	if trust.Mode == sealed.Off {
		r.byDefault = Decision{Trust: sealed.TrustOptions{Mode: sealed.Off}}
	}
	for i := range policies {
		p := &policies[i]
		r.namespaces[p.Namespace] = append(r.namespaces[p.Namespace], compile(p, trust))
	}
	for namespace, rules := range r.namespaces {
		slices.SortFunc(rules, func(a, b *rule) int {
			return cmp.Or(cmp.Compare(b.held(), a.held()), cmp.Compare(a.policy.Name, b.policy.Name))
		})
		var current []*Policy
		for _, o := range rules {
			if o.policy.Vanished.IsZero() {
				current = append(current, o.policy)
			}
		}
		if len(current) > 0 {
			r.Digests[namespace] = endpointaccess.Digest(current)
		}
	}
	return r
}

// held returns until when the object was there; it is the same for all that are.
func (r *rule) held() int64 {
	if r.policy.Vanished.IsZero() {
		return math.MaxInt64
	}
	return r.policy.Vanished.UnixNano()
}

// compile compiles a policy; trust is the installation's.
func compile(p *Policy, trust sealed.TrustOptions) *rule {
	name := "EndpointTrust " + p.Namespace + "/" + p.Name
	installation := trust.Authorities
	ofNamespace := func(c *x509.Certificate) bool { return !slices.ContainsFunc(installation, c.Equal) }
	authorities, keys, err := p.Spec.parse()
	switch {
	case trust.Account == "":
		return &rule{policy: p, decision: Decision{Refused: ReasonNoAccount, Detail: name + " selects it, and " +
			"binding.sealAccount of the chart is not set"}}
	case err != nil:
		return &rule{policy: p, trusts: name, decision: Decision{Refused: ReasonInvalid,
			Detail: name + ": " + err.Error()}}
	case len(authorities)+len(keys) > 0:
		trust.Authorities, trust.Keys = authorities, keys
	case len(trust.Authorities) == 0 && p.Spec.Mode == sealed.Prefer:
		return &rule{policy: p, trusts: name, decision: Decision{Refused: ReasonInvalid,
			Detail: name + ": mode Prefer needs authorities or keys, or binding.sealAuthority of the chart"}}
	case len(trust.Authorities) == 0:
		return firstSight(p, trust)
	}
	prefer := p.Spec.Mode == sealed.Prefer && trust.Mode != sealed.Require
	trust.Mode = sealed.Require
	required := Decision{Trust: trust, Generation: generation(&trust),
		ByInstallation: len(trust.Keys) == 0 && !slices.ContainsFunc(trust.Authorities, ofNamespace)}
	r := &rule{policy: p, trusts: digest(&trust), decision: required}
	if prefer {
		trust.Mode = sealed.Prefer
		r.decision.Trust, r.decision.Generation = trust, generation(&trust)
		r.pinned = map[account.EndpointURL]Decision{}
		for text := range p.Pins {
			if u, err := account.ParseForwardedURL(text); err == nil {
				r.pinned[u] = required
			}
		}
	}
	return r
}

// firstSight compiles a policy that trusts the keys that were seen first: those that are pinned.
func firstSight(p *Policy, trust sealed.TrustOptions) *rule {
	trust.Mode = sealed.Require
	r := &rule{policy: p, trusts: "first sight", pinned: map[account.EndpointURL]Decision{}, decision: Decision{
		Refused: ReasonNotPinned, FirstSight: true, Pinned: p.Name, Detail: "EndpointTrust " + p.Namespace + "/" +
			p.Name + " trusts the key that is seen first, and none is pinned yet"}}
	for text, key := range p.Pins {
		u, err := account.ParseForwardedURL(text)
		_, keys, keyErr := (&Spec{Keys: []string{key}}).parse()
		if err != nil || keyErr != nil {
			continue
		}
		trust.Keys = keys
		r.pinned[u] = Decision{Trust: trust, Generation: generation(&trust), FirstSight: true, Pinned: p.Name}
	}
	return r
}

func generation(o *sealed.TrustOptions) string { return string(o.Mode) + "-" + digest(o) }

// Knows reports whether it is known what holds for endpoints of the namespace.
func (r *Rules) Knows(namespace string) bool { return r.listed.Knows(namespace) }

// Complete reports whether the objects of all watched namespaces were listed.
func (r *Rules) Complete() bool { return r.listed.Complete() }

// Decide decides about connections to the URL.
func (r *Rules) Decide(u account.EndpointURL) Decision {
	t := endpointaccess.TargetOf(u.Host, u.Port)
	if !r.listed.Knows(t.Namespace) {
		return Decision{Refused: ReasonUnknown, Detail: "the EndpointTrust objects were never listed"}
	}
	var decided *rule
	for _, candidate := range r.namespaces[t.Namespace] {
		switch {
		case !endpointaccess.Selects(candidate.policy.Spec.Endpoints, candidate.policy.Spec.Ports, t):
		case decided == nil:
			decided = candidate
		case decided.held() != candidate.held(): // only ones that hold no more follow
			return decided.decide(u)
		case candidate.trusts != decided.trusts || candidate.pinsAnother(u, decided):
			return Decision{Refused: ReasonConflict, Detail: fmt.Sprintf("EndpointTrust %s and %s of namespace %s "+
				"select it and trust different agents", decided.policy.Name, candidate.policy.Name, t.Namespace)}
		case decided.decide(u).Refused == ReasonNotPinned, decided.decide(u).Trust.Mode == sealed.Prefer:
			decided = candidate
		}
	}
	if decided == nil {
		return r.byDefault
	}
	return decided.decide(u)
}

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
