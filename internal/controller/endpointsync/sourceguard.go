// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import "cmp"

// SourceIdentity says which account, in which store, a list came from. An empty part is not known.
type SourceIdentity struct{ AccountID, StoreID string }

// sourceGuard freezes removals from the moment that lists come from another account, or another
// store, than the one recorded, until that one is accepted by its id. A list that does not say
// where it comes from changes nothing here.
type sourceGuard struct {
	accept           string
	recorded, listed SourceIdentity
	frozen           bool
}

// update compares a list's belonging with what was recorded first, and says whether a freeze has
// ended and whether anything is other than before.
func (b *sourceGuard) update(listed SourceIdentity) (thawed, changed bool) {
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

// SetRecordedSource tells what was recorded by an earlier manager. It comes before the first list.
func (s *Set) SetRecordedSource(recorded SourceIdentity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removals.source.recorded = recorded
}
