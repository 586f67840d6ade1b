// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"sync"
	"sync/atomic"
)

// PairBudget bounds the raw connections of sealed streams, parked, in use and promised by tickets, to
// half of the descriptors that a process may have, and those of one account to half of that: a quarter
// for a client. It also counts the sealed streams. It is safe for concurrent use.
type PairBudget struct {
	limit   int
	streams map[Role]*SealedStreams // streams by the role of sessions' clients; the map does not change.
	inUse   atomic.Int64

	mu        sync.Mutex
	held      int
	byAccount map[string]int
}

// NewPairBudget returns a budget for this process.
func NewPairBudget() *PairBudget {
	limit := int(min(maxDescriptors()/2, 1<<30)) //nolint:gosec // bounded
	return &PairBudget{limit: limit, byAccount: make(map[string]int),
		streams: map[Role]*SealedStreams{RoleAgent: {}, RoleForwarder: {}}}
}

// Streams returns the counts of the sealed streams of sessions whose client has the role.
func (b *PairBudget) Streams(role Role) *SealedStreams {
	return cmp.Or(b.streams[role], &SealedStreams{})
}

// Connections returns how many raw connections carry a stream, and how many wait for one or are being
// made.
func (b *PairBudget) Connections() (inUse, parked int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	inUse = int(b.inUse.Load())
	return inUse, max(0, b.held-inUse)
}

// reserve takes a connection of an account into account, and reports whether there may be one more.
func (b *PairBudget) reserve(accountID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held >= b.limit || b.byAccount[accountID] >= b.limit/2 {
		return false
	}
	b.held++
	b.byAccount[accountID]++
	return true
}

// release gives up what reserve has taken.
func (b *PairBudget) release(accountID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held--
	if b.byAccount[accountID]--; b.byAccount[accountID] == 0 {
		delete(b.byAccount, accountID)
	}
}

// SealedStreams counts sealed streams by what carries their bytes.
type SealedStreams struct{ inPairs, inMux atomic.Int64 }

// Counts returns how many have run over connections of their own, and how many in the multiplexer.
func (s *SealedStreams) Counts() (inPairs, inMux int64) { return s.inPairs.Load(), s.inMux.Load() }

func (s *SealedStreams) add(hasPair bool) {
	if hasPair {
		s.inPairs.Add(1)
	} else {
		s.inMux.Add(1)
	}
}
