// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointaccess decides which pods may call which endpoints.
//
// Inputs: the EndpointAccess objects of a cluster as Policies, what holds for endpoints that no
// policy selects, and for each decision a target and its caller. Output: whether the call is
// allowed, and the rule that decides. It watches nothing and knows no Kubernetes client: forwarders
// enforce the decisions, the manager reports problems and writes NetworkPolicies from the same
// policies, and fairlead doctor explains them.
//
// The semantics are those of NetworkPolicy: policies unite; a target that some policy selects is
// denied to every caller that no peer of any of them selects; a caller that is not known is
// selected by no peer. Policies of objects that were just deleted can be among the others: they hold
// for targets that no object selects any more.
package endpointaccess

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// Policy is an EndpointAccess object.
type Policy struct {
	Namespace, Name string
	UID             string
	Generation      int64
	Spec            Spec
	// Vanished is when the object was deleted, or got another generation; zero: it is as it was.
	Vanished time.Time
}

// Spec is the spec of an EndpointAccess object, as its JSON has it.
type Spec struct {
	// Endpoints are first labels of hostnames, in which * stands for any characters.
	Endpoints []string `json:"endpoints"`
	// Ports are those of URLs; empty selects all.
	Ports []int32 `json:"ports,omitempty"`
	// From are the peers of which one must select the caller.
	From []Peer `json:"from,omitempty"`
}

// Peer selects the pods to which all of its fields apply.
type Peer struct {
	NamespaceSelector *Selector `json:"namespaceSelector,omitempty"` // nil: the policy's namespace
	PodSelector       *Selector `json:"podSelector,omitempty"`       // nil: all pods
	ServiceAccounts   []string  `json:"serviceAccounts,omitempty"`   // empty: any

	// ForwardedHeaders is "Trust" where the pods' forwarding headers are believed; else "" or
	// "Replace".
	ForwardedHeaders string `json:"forwardedHeaders,omitempty"`
}

func (p *Peer) isTrusted() bool { return p.ForwardedHeaders == "Trust" }

// Validate returns an error that names the first peer whose selectors do not parse. Such a peer
// selects no pod.
func (s *Spec) Validate() error {
	for i, peer := range s.From {
		if err := peer.NamespaceSelector.Validate(); err != nil {
			return fmt.Errorf("spec.from[%d].namespaceSelector: %w", i, err)
		}
		if err := peer.PodSelector.Validate(); err != nil {
			return fmt.Errorf("spec.from[%d].podSelector: %w", i, err)
		}
	}
	return nil
}

// Version is an object of a namespace in one generation.
type Version struct {
	Name, UID  string
	Generation int64
	Vanished   time.Time // zero: it is as it was
}

// Version returns which object the policy is of, in which generation.
func (p Policy) Version() Version { return Version{p.Name, p.UID, p.Generation, p.Vanished} }

// VanishedAt returns the policy as one of an object that vanished then.
func (p Policy) VanishedAt(t time.Time) Policy { p.Vanished = t; return p }

// Digest returns a text that identifies a namespace's policies in their generations, in any order.
// Forwarders report it for the policies that they enforce.
func Digest[P interface{ Version() Version }](policies []P) string {
	lines := make([]string, len(policies))
	for i, p := range policies {
		v := p.Version()
		lines[i] = fmt.Sprintf("%s %s %d\n", v.Name, v.UID, v.Generation)
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		h.Write([]byte(line))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Listed has the namespaces whose objects are watched, and whether they were listed. Its key "" is
// all namespaces.
type Listed map[string]bool

// Knows reports whether the objects of the namespace are known.
func (l Listed) Knows(namespace string) bool { return l[""] || l[namespace] }

// Complete reports whether the objects of all watched namespaces are known.
func (l Listed) Complete() bool {
	for _, listed := range l {
		if !listed {
			return false
		}
	}
	return true
}
