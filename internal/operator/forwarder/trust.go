// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
)

// TrustRules are the rules about whose agents may answer for endpoints; *trustrules.Watcher
// implements it.
type TrustRules interface {
	// Snapshot returns the current rules.
	Snapshot() *endpointtrust.Rules
	// Changed receives after the rules have changed.
	Changed() <-chan struct{}
}

// trustControl follows the rules about whose agents may answer. A nil trustControl has none: nothing
// is sealed. Its methods are safe for concurrent use.
type trustControl struct {
	rules   TrustRules
	updated broadcaster  // updated is woken when the rules have changed.
	changed *broadcaster // changed is woken when the status has changed.
}

// newTrustControl returns nil without rules.
func newTrustControl(o *Options, changed *broadcaster) *trustControl {
	if o.Trust == nil {
		return nil
	}
	return &trustControl{rules: o.Trust, changed: changed}
}

// follow wakes what waits for a change of the rules, until ctx is done.
func (t *trustControl) follow(ctx context.Context) error {
	if t == nil {
		return nil
	}
	for {
		select {
		case <-t.rules.Changed():
			t.updated.broadcast()
			t.changed.broadcast()
		case <-ctx.Done():
			return nil
		}
	}
}

// missing returns which rules are not known yet that the listeners need, or "".
func (t *trustControl) missing(all []ListenerStatus) string {
	if t == nil {
		return ""
	}
	return unlisted("EndpointTrust", all, t.rules.Snapshot().Knows)
}

// TrustStatus is which EndpointTrust objects a forwarder enforces, as /status shows it.
type TrustStatus struct {
	Complete bool `json:"complete"` // Complete reports that all EndpointTrust objects were listed.
	// Policies has the digest of each namespace's EndpointTrust objects, of namespaces that have some;
	// see endpointaccess.Digest.
	Policies map[string]string `json:"policies,omitempty"`
}

// status returns nil for a nil trustControl.
func (t *trustControl) status() *TrustStatus {
	if t == nil {
		return nil
	}
	rules := t.rules.Snapshot()
	return &TrustStatus{Complete: rules.Complete(), Policies: rules.Digests()}
}
