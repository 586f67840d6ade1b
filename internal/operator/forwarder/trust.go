// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
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

	mu     sync.Mutex
	trusts map[string]*sealed.Trust // settings that connections use, by endpointtrust.Decision.Generation
}

// newTrustControl returns nil without rules.
func newTrustControl(o *Options, changed *broadcaster) *trustControl {
	if o.Trust == nil {
		return nil
	}
	return &trustControl{rules: o.Trust, changed: changed, trusts: map[string]*sealed.Trust{}}
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

// maxTrusts bounds the settings of trust whose TLS sessions are kept to be resumed.
const maxTrusts = 1024

// trustOf returns what a connection with the endpoint trusts; nil: it is not sealed. Until the
// deadline it waits for rules that are not known yet.
func (t *trustControl) trustOf(
	ctx context.Context, u account.EndpointURL, deadline time.Time,
) (*sealed.Trust, *forward.Failure) {
	if t == nil {
		return nil, nil
	}
	d := t.decide(ctx, u, deadline)
	switch {
	case d.Refused != "":
		return nil, untrusted(u, d.Detail)
	case d.Trust.Mode == sealed.Off:
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if made := t.trusts[d.Generation]; made != nil {
		return made, nil
	}
	made, err := sealed.NewTrust(d.Trust)
	if err != nil {
		return nil, untrusted(u, err.Error())
	}
	if len(t.trusts) >= maxTrusts {
		clear(t.trusts)
	}
	t.trusts[d.Generation] = made
	return made, nil
}

func (t *trustControl) decide(ctx context.Context, u account.EndpointURL, deadline time.Time) endpointtrust.Decision {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		updated := t.updated.next()
		d := t.rules.Snapshot().Decide(u)
		if d.Refused != endpointtrust.ReasonUnknown {
			return d
		}
		select {
		case <-updated:
		case <-ctx.Done():
			return d
		}
	}
}

func untrusted(u account.EndpointURL, detail string) *forward.Failure {
	f := forward.NewFailure(trafficerror.Untrusted(), u)
	f.Msg += ": " + detail + "."
	return f
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
