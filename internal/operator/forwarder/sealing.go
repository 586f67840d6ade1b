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

// maxTrusts bounds the settings of trust whose TLS sessions are kept to be resumed.
const maxTrusts = 1024

// sealing decides which connections are sealed, and by what they trust. A nil sealing seals none. Its
// methods are safe for concurrent use.
type sealing struct {
	rules   TrustRules
	updated broadcaster  // updated is woken when the rules have changed.
	changed *broadcaster // changed is woken when the status has changed.

	mu     sync.Mutex
	trusts map[string]*sealed.Trust // by Decision.Generation
}

// newSealing returns nil without rules.
func newSealing(rules TrustRules, changed *broadcaster) *sealing {
	if rules == nil {
		return nil
	}
	return &sealing{rules: rules, changed: changed, trusts: map[string]*sealed.Trust{}}
}

// run wakes what waits for changes of the rules or of the status, until ctx is done.
func (s *sealing) run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	for {
		select {
		case <-s.rules.Changed():
			s.updated.broadcast()
			s.changed.broadcast()
		case <-ctx.Done():
			return nil
		}
	}
}

// trustOf returns what a connection with the endpoint trusts; nil: it is not sealed. Until the
// deadline it waits for rules that are not known yet.
func (s *sealing) trustOf(
	ctx context.Context, u account.EndpointURL, deadline time.Time,
) (*sealed.Trust, *forward.Failure) {
	if s == nil {
		return nil, nil
	}
	d := s.decide(ctx, u, deadline)
	switch {
	case d.Refused != "":
		return nil, untrusted(u, d.Detail)
	case d.Trust.Mode == sealed.Off:
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.trusts[d.Generation]; t != nil {
		return t, nil
	}
	t, err := sealed.NewTrust(d.Trust)
	if err != nil {
		return nil, untrusted(u, err.Error())
	}
	if len(s.trusts) >= maxTrusts {
		clear(s.trusts)
	}
	s.trusts[d.Generation] = t
	return t, nil
}

func (s *sealing) decide(ctx context.Context, u account.EndpointURL, deadline time.Time) endpointtrust.Decision {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		updated := s.updated.next()
		d := s.rules.Snapshot().Decide(u)
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
