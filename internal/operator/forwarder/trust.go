// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import "github.com/fairlead-dev/fairlead/internal/endpointtrust"

// TrustRules are the rules about whose agents may answer for endpoints; *trustrules.Watcher
// implements it.
type TrustRules interface {
	// Snapshot returns the current rules.
	Snapshot() *endpointtrust.Rules
	// Changed receives after the rules have changed.
	Changed() <-chan struct{}
}

// missing returns which rules are not known yet that the listeners need, or "".
func (s *sealing) missing(all []ListenerStatus) string {
	if s == nil {
		return ""
	}
	return unlisted("EndpointTrust", all, s.rules.Snapshot().Knows)
}

// TrustStatus is which EndpointTrust objects a forwarder enforces, as /status shows it.
type TrustStatus struct {
	Complete bool `json:"complete"` // Complete reports that all EndpointTrust objects were listed.
	// Policies has the digest of each namespace's EndpointTrust objects, of namespaces that have some;
	// see endpointaccess.Digest.
	Policies map[string]string `json:"policies,omitempty"`
}

// status returns nil for a nil sealing.
func (s *sealing) status() *TrustStatus {
	if s == nil {
		return nil
	}
	rules := s.rules.Snapshot()
	return &TrustStatus{Complete: rules.Complete(), Policies: rules.Digests()}
}
