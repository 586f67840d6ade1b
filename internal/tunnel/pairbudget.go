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

// reserve counts one more connection of an account, and reports whether there may be one.
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

// SealedPaths are what carries the sealed streams of a process.
type SealedPaths struct {
	Raw    int64 `json:"raw"`    // Raw counts the streams so far that had a connection of their own.
	Mux    int64 `json:"mux"`    // Mux counts the streams so far that ran in the multiplexer.
	InUse  int   `json:"in_use"` // InUse counts the raw connections of streams.
	Parked int   `json:"parked"` // Parked counts those that wait for a stream, or are being made.
	// Paused counts the replicas of the server at which nothing is parked, by the reason.
	Paused map[PairPause]int `json:"paused,omitempty"`
}

// SealedPaths returns what carries the sealed streams, and why nothing is parked for those of a client's
// session, which may be nil.
func (b *PairBudget) SealedPaths(s *Session) SealedPaths {
	var p SealedPaths
	for _, streams := range b.streams {
		raw, mux := streams.Counts()
		p.Raw, p.Mux = p.Raw+raw, p.Mux+mux
	}
	p.InUse, p.Parked = b.Connections()
	if s == nil {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, links := range s.links.byReplica() {
		if why := links[len(links)-1].pairPauseLocked(); why != "" {
			if p.Paused == nil {
				p.Paused = make(map[PairPause]int)
			}
			p.Paused[why]++
		}
	}
	return p
}
