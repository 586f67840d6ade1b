// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"cmp"
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
)

// Source reads the account's kubernetes-bound endpoints, and what clusters export.
type Source interface {
	// List returns all of them, or an error: a Snapshot is complete.
	List(ctx context.Context) (Snapshot, error)
	// Watch streams the events after the version. The error has account.CodeGone if the version is
	// no longer available, and is apiclient.ErrWatchUnsupported if the server has no watches.
	Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error)
}

// Snapshot is a complete list.
type Snapshot struct {
	Endpoints          []account.Endpoint
	Version            account.ResourceVersion
	AccountID, StoreID string
	// WithoutClusterset reports that the server does not know account.BindingClusterset: what
	// clusters export is not in the list.
	WithoutClusterset bool
}

// Admitter is the endpoint selector (internal/selector).
type Admitter interface {
	Matches(e *account.Endpoint, u account.EndpointURL) (bool, error)
}

// SourceIdentity identifies the account and the store that a list came from. An empty part is
// unknown.
type SourceIdentity struct{ AccountID, StoreID string }

// sourceGuard freezes removals while lists come from another account or store than the recorded
// one, until the new one is accepted by its id. A list without an identity changes nothing.
type sourceGuard struct {
	accept           string
	recorded, listed SourceIdentity
	frozen           bool
}

// update compares a list's identity with the recorded one. It reports whether a freeze has ended
// and whether the guard changed.
func (b *sourceGuard) update(listed SourceIdentity) (freezeEnded, changed bool) {
	before := *b
	b.listed = listed
	switch {
	case differs(b.recorded.AccountID, listed.AccountID):
		b.frozen = b.accept != listed.AccountID
	case differs(b.recorded.StoreID, listed.StoreID):
		b.frozen = b.accept != listed.StoreID
	default:
		b.frozen = false
	}
	if !b.frozen {
		b.recorded = SourceIdentity{AccountID: cmp.Or(listed.AccountID, b.recorded.AccountID),
			StoreID: cmp.Or(listed.StoreID, b.recorded.StoreID)}
	}
	return before.frozen && !b.frozen, before != *b
}

func differs(recorded, listed string) bool {
	return recorded != "" && listed != "" && recorded != listed
}

// SetRecordedSource sets the identity that an earlier manager recorded. Call it before the first
// list.
func (s *Set) SetRecordedSource(recorded SourceIdentity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removals.source.recorded = recorded
}
