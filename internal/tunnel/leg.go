// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"slices"
)

// defaultMaxLegs is how many replicas a session has connections with, unless MaxLegs says otherwise.
const defaultMaxLegs = 3

// Leg is a session's presence on one replica: its connections there.
type Leg struct {
	ReplicaID            string // "" = a server that is alone
	Connections, Streams int
	Draining             bool // the replica is about to stop
	Unresponsive         bool // the replica answers on none of the connections
}

// Legs returns the session's legs, sorted by ReplicaID.
func (s *Session) Legs() []Leg {
	s.mu.Lock()
	defer s.mu.Unlock()
	var legs []Leg
	for _, l := range slices.Concat(s.links, s.retiring) {
		i := slices.IndexFunc(legs, func(leg Leg) bool { return leg.ReplicaID == l.replicaID })
		if i < 0 {
			i = len(legs)
			legs = append(legs, Leg{ReplicaID: l.replicaID, Unresponsive: true})
		}
		_, unresponsive := l.mux.Unresponsive()
		legs[i].Connections++
		legs[i].Streams += int(l.streams.Load())
		legs[i].Unresponsive = legs[i].Unresponsive && unresponsive
	}
	slices.SortFunc(legs, func(a, b Leg) int { return cmp.Compare(a.ReplicaID, b.ReplicaID) })
	return legs
}

// WantedLegs returns with how many replicas the session should have connections, at least 1.
func (s *Session) WantedLegs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wantedLegsLocked()
}

func (s *Session) wantedLegsLocked() int {
	if s.owner == nil {
		return 1
	}
	return max(1, min(s.replicas, s.owner.cfg.MaxLegs))
}
