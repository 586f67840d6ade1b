// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accesspolicy converts EndpointAccess and EndpointTrust objects, as the API server has them,
// to policies of packages endpointaccess and endpointtrust, which know no Kubernetes. Forwarders and
// the manager use it.
package accesspolicy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// Of returns the object's policy. It shares the object's slices and maps.
func Of(o *v1alpha1.EndpointAccess) endpointaccess.Policy {
	return endpointaccess.Policy{
		Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Generation: o.Generation,
		Spec: endpointaccess.Spec{Endpoints: o.Spec.Endpoints, Ports: o.Spec.Ports, From: peers(o.Spec.From)},
	}
}

// OfTrust returns the object's policy. It shares the object's slices.
func OfTrust(o *v1alpha1.EndpointTrust) endpointtrust.Policy {
	return endpointtrust.Policy{
		Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Generation: o.Generation,
		Spec: endpointtrust.Spec{Endpoints: o.Spec.Endpoints, Ports: o.Spec.Ports,
			Authorities: o.Spec.Authorities, Keys: o.Spec.Keys, Mode: sealed.Mode(o.Spec.Mode)},
		Pins: o.Status.Pins,
	}
}

// TrustReason returns the reason of conditions for that of a refusal.
func TrustReason(r endpointtrust.Reason) string {
	switch r {
	case endpointtrust.ReasonConflict:
		return v1alpha1.ReasonConflict
	case endpointtrust.ReasonNoAccount:
		return v1alpha1.ReasonAccountMissing
	}
	return v1alpha1.ReasonInvalidAuthority
}

func peers(from []v1alpha1.EndpointAccessPeer) []endpointaccess.Peer {
	result := make([]endpointaccess.Peer, len(from))
	for i, p := range from {
		result[i] = endpointaccess.Peer{NamespaceSelector: selector(p.NamespaceSelector),
			PodSelector: selector(p.PodSelector), ServiceAccounts: p.ServiceAccounts,
			ForwardedHeaders: p.ForwardedHeaders}
	}
	return result
}

func selector(s *metav1.LabelSelector) *endpointaccess.Selector {
	if s == nil {
		return nil
	}
	result := &endpointaccess.Selector{MatchLabels: s.MatchLabels}
	for _, r := range s.MatchExpressions {
		result.MatchExpressions = append(result.MatchExpressions,
			endpointaccess.Requirement{Key: r.Key, Operator: string(r.Operator), Values: r.Values})
	}
	return result
}
