// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointaccess

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Default is what holds for endpoints that no policy selects.
type Default string

// Defaults.
const (
	Allow Default = "allow"
	Deny  Default = "deny"
)

// Valid reports whether it is one of the above.
func (d Default) Valid() bool { return d == Allow || d == Deny }

// Target is what a connection is for.
type Target struct {
	Namespace string // the hostname's namespace
	Endpoint  string // the first label of the hostname
	Port      int    // the URL's port
}

// TargetOf returns the target of a URL's hostname, which has two labels or, for a Service that
// another cluster exports, three.
func TargetOf(hostname string, port int) Target {
	endpoint, rest, _ := strings.Cut(hostname, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	return Target{Namespace: namespace, Endpoint: endpoint, Port: port}
}

// Caller is a pod that is known.
type Caller struct {
	Namespace       string
	NamespaceLabels Labels
	PodLabels       Labels
	ServiceAccount  string
}

// Rules are compiled policies. They do not change, so their methods are safe for concurrent use.
type Rules struct {
	byDefault  Default
	namespaces map[string]*namespaceRules
}

// namespaceRules are the policies of one namespace.
type namespaceRules struct {
	byEndpoint map[string][]*rule // without wildcards
	wildcards  []wildcard
	digest     string // empty if all have vanished
}

// rule is a compiled policy.
type rule struct {
	policy  *Policy
	peers   []peer
	trusted bool // trusted reports that there is a peer whose forwarding headers are believed.
}

// peer is a valid element of a policy's from.
type peer struct {
	*Peer
	name string // "EndpointAccess NAMESPACE/NAME, from[INDEX]"
}

type wildcard struct {
	pattern string
	rule    *rule
}

// Compile compiles policies, which must not be changed afterwards. Peers that are not valid select
// no pod. A policy that has vanished holds only for targets that none of the others selects, and
// only if it vanished last of those that did.
func Compile(policies []Policy, byDefault Default) *Rules {
	r := &Rules{byDefault: byDefault, namespaces: map[string]*namespaceRules{}}
	byNamespace := map[string][]*Policy{}
	for i := range policies {
		byNamespace[policies[i].Namespace] = append(byNamespace[policies[i].Namespace], &policies[i])
	}
	for namespace, list := range byNamespace {
		slices.SortFunc(list, func(a, b *Policy) int { return cmp.Compare(a.Name, b.Name) })
		r.namespaces[namespace] = compileNamespace(list)
	}
	return r
}

func compileNamespace(policies []*Policy) *namespaceRules {
	n := &namespaceRules{byEndpoint: map[string][]*rule{}}
	current := slices.DeleteFunc(slices.Clone(policies), func(p *Policy) bool { return !p.Vanished.IsZero() })
	if len(current) > 0 {
		n.digest = Digest(current)
	}
	for _, p := range policies {
		compiled := compilePolicy(p)
		for _, endpoint := range p.Spec.Endpoints {
			if strings.Contains(endpoint, "*") {
				n.wildcards = append(n.wildcards, wildcard{endpoint, compiled})
			} else {
				n.byEndpoint[endpoint] = append(n.byEndpoint[endpoint], compiled)
			}
		}
	}
	return n
}

func compilePolicy(p *Policy) *rule {
	r := &rule{policy: p}
	for i := range p.Spec.From {
		from := &p.Spec.From[i]
		if from.NamespaceSelector.Validate() != nil || from.PodSelector.Validate() != nil {
			continue
		}
		r.trusted = r.trusted || from.isTrusted()
		r.peers = append(r.peers, peer{from, fmt.Sprintf("EndpointAccess %s/%s, from[%d]", p.Namespace, p.Name, i)})
	}
	return r
}

// Default returns what holds for endpoints that no policy selects.
func (r *Rules) Default() Default { return r.byDefault }

// Digests returns the Digest of each namespace's policies that have not vanished, of namespaces that
// have some.
func (r *Rules) Digests() map[string]string {
	digests := make(map[string]string, len(r.namespaces))
	for namespace, n := range r.namespaces {
		if n.digest != "" {
			digests[namespace] = n.digest
		}
	}
	return digests
}

// Digest returns the Digest of a namespace's policies that have not vanished; empty if it has none.
func (r *Rules) Digest(namespace string) string {
	if n := r.namespaces[namespace]; n != nil {
		return n.digest
	}
	return ""
}

// Restricted reports whether calls of the target depend on the caller, or are denied.
func (r *Rules) Restricted(t Target) bool { return r.byDefault != Allow || len(r.selecting(t)) > 0 }

// Current reports whether a policy that has not vanished selects the target.
func (r *Rules) Current(t Target) bool {
	rules := r.selecting(t)
	return len(rules) > 0 && rules[0].policy.Vanished.IsZero()
}

// Selecting returns the policies that select the target, by name. They must not be modified.
func (r *Rules) Selecting(t Target) []*Policy {
	rules := r.selecting(t)
	policies := make([]*Policy, len(rules))
	for i, selected := range rules {
		policies[i] = selected.policy
	}
	return policies
}

// selecting returns the rules of the policies that select the target and hold, by name, each once.
func (r *Rules) selecting(t Target) []*rule {
	n := r.namespaces[t.Namespace]
	if n == nil {
		return nil
	}
	selected := n.byEndpoint[t.Endpoint]
	if len(n.wildcards) == 0 && !slices.ContainsFunc(selected, func(r *rule) bool {
		return !r.hasPort(t.Port) || !r.policy.Vanished.IsZero()
	}) {
		return selected
	}
	selected = slices.DeleteFunc(slices.Clone(selected), func(r *rule) bool { return !r.hasPort(t.Port) })
	for _, w := range n.wildcards {
		if matches(w.pattern, t) && w.rule.hasPort(t.Port) {
			selected = append(selected, w.rule)
		}
	}
	selected = dropVanished(selected)
	slices.SortFunc(selected, func(a, b *rule) int { return cmp.Compare(a.policy.Name, b.policy.Name) })
	return slices.Compact(selected)
}

// dropVanished removes the rules of policies that have vanished or, if all have, of those that did
// not vanish last.
func dropVanished(rules []*rule) []*rule {
	var last time.Time
	for _, r := range rules {
		if r.policy.Vanished.IsZero() {
			last = time.Time{}
			break
		}
		if r.policy.Vanished.After(last) {
			last = r.policy.Vanished
		}
	}
	return slices.DeleteFunc(rules, func(r *rule) bool { return !r.policy.Vanished.Equal(last) })
}

func (r *rule) hasPort(port int) bool { return hasPort(r.policy.Spec.Ports, port) }

func hasPort(ports []int32, port int) bool {
	return len(ports) == 0 || slices.Contains(ports, int32(port))
}

// Selects reports whether endpoints and ports, as specs have them, select the target in its
// namespace.
func Selects(endpoints []string, ports []int32, t Target) bool {
	return hasPort(ports, t.Port) && slices.ContainsFunc(endpoints, func(e string) bool { return matches(e, t) })
}

func matches(endpoint string, t Target) bool {
	ok, err := path.Match(endpoint, t.Endpoint)
	return ok && err == nil
}
