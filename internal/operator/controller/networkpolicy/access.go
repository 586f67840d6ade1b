// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
)

// Access is what the EndpointAccess objects of the cluster allow, at one moment.
type Access struct {
	rules       *endpointaccess.Rules
	generations map[types.UID]int64
	known       Namespaces // nil: every namespace is known
}

// Namespaces are those whose objects were listed; *accessrules.Snapshot implements it.
type Namespaces interface{ Knows(namespace string) bool }

// NewAccess evaluates the objects. byDefault holds for what none of them selects.
func NewAccess(objects []v1alpha1.EndpointAccess, byDefault endpointaccess.Default) Access {
	policies := make([]endpointaccess.Policy, len(objects))
	for i := range objects {
		policies[i] = accesspolicy.Of(&objects[i])
	}
	return NewPartialAccess(endpointaccess.Compile(policies, byDefault), policies, nil)
}

// NewPartialAccess returns what rules allow that were compiled from the policies. Endpoints of
// namespaces whose policies are not known are closed; nil: all are known.
func NewPartialAccess(
	rules *endpointaccess.Rules, policies []endpointaccess.Policy, known Namespaces,
) Access {
	generations := make(map[types.UID]int64, len(policies))
	for i := range policies {
		generations[types.UID(policies[i].UID)] = policies[i].Generation
	}
	return Access{rules, generations, known}
}

// peers reports whether only peers may call a port of a hostname, and returns them. Each has a
// namespaceSelector: without one it would select pods of the operator's namespace. NetworkPolicies
// know no ServiceAccounts, so a peer with some is all pods that its selectors select.
func (a Access) peers(
	namespace, service string, port int32,
) (restricted bool, peers []networkingv1.NetworkPolicyPeer) {
	if a.known != nil && !a.known.Knows(namespace) {
		return true, nil
	}
	target := endpointaccess.Target{Namespace: namespace, Endpoint: service, Port: int(port)}
	for _, p := range a.rules.Selecting(target) {
		for i := range p.Spec.From {
			from := &p.Spec.From[i]
			if from.NamespaceSelector.Validate() != nil || from.PodSelector.Validate() != nil {
				continue
			}
			peer := networkingv1.NetworkPolicyPeer{NamespaceSelector: labelSelector(from.NamespaceSelector),
				PodSelector: labelSelector(from.PodSelector)}
			if peer.NamespaceSelector == nil {
				peer.NamespaceSelector = &metav1.LabelSelector{
					MatchLabels: map[string]string{corev1.LabelMetadataName: p.Namespace}}
			}
			peers = append(peers, peer)
		}
	}
	return a.rules.Restricted(target), peers
}

// labelSelector converts a selector; nil stays nil. It shares nothing with the selector, which may be
// of a cached object: the API server's answer to a write is decoded into what was written.
func labelSelector(s *endpointaccess.Selector) *metav1.LabelSelector {
	if s == nil {
		return nil
	}
	converted := &metav1.LabelSelector{MatchLabels: maps.Clone(s.MatchLabels)}
	for _, r := range s.MatchExpressions {
		converted.MatchExpressions = append(converted.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator), Values: slices.Clone(r.Values)})
	}
	return converted
}
