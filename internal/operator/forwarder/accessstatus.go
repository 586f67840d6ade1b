// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

// AccessStatus is which rules about callers a forwarder enforces, as /status shows it.
type AccessStatus struct {
	PodIdentity bool `json:"pod_identity"` // it knows pods; without it all callers are unknown
	// NetworkPolicies reports that it leaves the decision to NetworkPolicies, of namespaces whose
	// objects they are written for.
	NetworkPolicies bool   `json:"network_policies,omitempty"`
	Default         string `json:"default"`  // for endpoints that no EndpointAccess selects: allow or deny
	Complete        bool   `json:"complete"` // all EndpointAccess objects were listed
	// Policies has the digest of each namespace's EndpointAccess objects, of namespaces that have
	// some; see endpointaccess.Digest.
	Policies map[string]string `json:"policies,omitempty"`
}

// status returns nil for a nil accessControl.
func (a *accessControl) status() *AccessStatus {
	if a == nil {
		return nil
	}
	s := a.rules.Snapshot()
	return &AccessStatus{PodIdentity: a.pods != nil, NetworkPolicies: a.leavesToNetwork(),
		Default: string(s.Rules.Default()), Complete: s.Complete(), Policies: s.Rules.Digests()}
}

// latest returns the latest denials, none for a nil accessControl.
func (a *accessControl) latest() []Denial {
	if a == nil {
		return nil
	}
	return a.denials.list()
}
