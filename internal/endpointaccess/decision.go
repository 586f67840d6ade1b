// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointaccess

import (
	"fmt"
	"slices"
	"strings"
)

// Reason is why a call is allowed or denied.
type Reason string

// Reasons. Those of denials are label values of a metric.
const (
	ReasonUnrestricted  Reason = "unrestricted"   // allowed: no policy selects the target
	ReasonPeer          Reason = "peer"           // allowed by a peer of a policy
	ReasonNoPeer        Reason = "no_peer"        // denied: policies select the target, no peer the caller
	ReasonDefault       Reason = "default"        // denied: no policy selects the target
	ReasonUnknownCaller Reason = "unknown_caller" // denied: policies select the target, the caller is unknown
)

// Decision is what the rules decide about a call, and why.
type Decision struct {
	Allowed bool
	// TrustsForwarding reports that a peer which selects the caller believes its forwarding headers.
	TrustsForwarding bool
	Reason           Reason
	Target           Target
	peer             string
	rules            []*rule
}

// Decide decides whether the caller may call the target. nil is a caller that was not identified.
func (r *Rules) Decide(t Target, c *Caller) Decision {
	rules := r.selecting(t)
	switch {
	case len(rules) == 0 && r.byDefault == Allow:
		return Decision{Allowed: true, Reason: ReasonUnrestricted, Target: t}
	case len(rules) == 0:
		return Decision{Reason: ReasonDefault, Target: t}
	case c == nil:
		return Decision{Reason: ReasonUnknownCaller, Target: t, rules: rules}
	}
	d := Decision{Reason: ReasonNoPeer, Target: t, rules: rules}
	for _, selected := range rules {
		if d.Allowed && !selected.trusted {
			continue
		}
		for i := range selected.peers {
			p := &selected.peers[i]
			if d.Allowed && !p.isTrusted() || !p.selects(selected.policy.Namespace, c) {
				continue
			}
			d = Decision{Allowed: true, TrustsForwarding: p.isTrusted(), Reason: ReasonPeer, Target: t, peer: p.name}
			if d.TrustsForwarding {
				return d
			}
			if !selected.trusted {
				break
			}
		}
	}
	return d
}

func (p *peer) selects(namespace string, c *Caller) bool {
	switch {
	case p.NamespaceSelector == nil && c.Namespace != namespace:
	case len(p.ServiceAccounts) > 0 && !slices.Contains(p.ServiceAccounts, c.ServiceAccount):
	case p.NamespaceSelector != nil && !p.NamespaceSelector.matches(c.NamespaceLabels):
	default:
		return p.PodSelector.matches(c.PodLabels)
	}
	return false
}

// Peer returns the name of the peer that allows the call, such as "EndpointAccess demo/api,
// from[0]"; empty if none decided.
func (d Decision) Peer() string { return d.peer }

// String returns a sentence that names the rules, for people who may read them.
func (d Decision) String() string {
	switch d.Reason {
	case ReasonUnrestricted:
		return fmt.Sprintf("allowed: no EndpointAccess of namespace %s selects it", d.Target.Namespace)
	case ReasonPeer:
		if d.TrustsForwarding {
			return "allowed by " + d.peer + "; its X-Forwarded headers are kept"
		}
		return "allowed by " + d.peer
	case ReasonDefault:
		return fmt.Sprintf("denied: no EndpointAccess of namespace %s selects it, and the installation denies "+
			"such calls", d.Target.Namespace)
	case ReasonUnknownCaller:
		return fmt.Sprintf("denied: %s allows known pods only, and which pod calls is not known", d.policies())
	}
	return fmt.Sprintf("denied: no rule of %s allows the caller", d.policies())
}

// policies names the policies that select the target.
func (d Decision) policies() string {
	const most = 5
	names := make([]string, 0, most)
	for _, r := range d.rules[:min(len(d.rules), most)] {
		names = append(names, r.policy.Name)
	}
	text := fmt.Sprintf("namespace %s's EndpointAccess %s", d.Target.Namespace, strings.Join(names, ", "))
	if more := len(d.rules) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
