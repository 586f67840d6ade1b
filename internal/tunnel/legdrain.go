// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"slices"
	"time"
)

// A replica that drains is left by the client's session: its connections are retired, so that their
// streams finish, and the session continues on other replicas. When it was the only one, its
// connections stay until there is one with another replica; if none is found in half of the time
// that the replica has left, the session drains as a whole.

// handleReplicaDrain handles the message of the replica behind l that it stops within d.
func (s *Session) handleReplicaDrain(l *link, d time.Duration) {
	s.mu.Lock()
	if !s.isDrainingLocked(l) {
		if s.drainingReplicas == nil {
			s.drainingReplicas = make(map[string]time.Time)
		}
		s.drainingReplicas[l.replicaID] = time.Now().Add(d)
	}
	retire := s.settleDrainsLocked()
	s.mu.Unlock()
	s.owner.retire(retire)
	s.signalConnsChanged()
	s.legsChanged()
}

// retire gives connections up in the background.
func (c *Client) retire(links []*link) {
	for _, l := range links {
		c.goroutines.Go(l.retire)
	}
}

// isDrainingLocked reports, on the client's side, whether the replica behind l drains. mu must be
// held.
func (s *Session) isDrainingLocked(l *link) bool {
	_, yes := s.drainingReplicas[l.replicaID]
	return yes
}

// settleDrainsLocked removes connections with replicas that drain from the choice for new streams
// and returns them, for retirement, if there is one with another replica. Else it sets the time
// when the session drains as a whole. mu must be held.
func (s *Session) settleDrainsLocked() (retire []*link) {
	if len(s.drainingReplicas) == 0 && !s.onlyDraining {
		return nil
	}
	if slices.ContainsFunc(s.links, func(l *link) bool { return !s.isDrainingLocked(l) }) {
		s.onlyDraining = false
		if s.drainTimer != nil {
			s.drainTimer.Stop()
			s.drainTimer = nil
		}
		for _, l := range slices.Clone(s.links) {
			if s.isDrainingLocked(l) {
				s.detachLocked(l)
				retire = append(retire, l)
			}
		}
		return retire
	}
	if s.onlyDraining || !slices.ContainsFunc(slices.Concat(s.links, s.retiring), s.isDrainingLocked) {
		return nil
	}
	s.onlyDraining = true
	var deadline time.Time
	for _, at := range s.drainingReplicas {
		if at.After(deadline) {
			deadline = at
		}
	}
	s.drainTimer = time.AfterFunc(max(0, time.Until(deadline)/2), s.endLegSearch)
	return nil
}

// endLegSearch drains the session as a whole if it has only connections with replicas that drain.
func (s *Session) endLegSearch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onlyDraining && !s.closing {
		s.setPeerDrainingLocked()
	}
}

// setPeerDrainingLocked records that no stream can be opened towards the peer any more. mu must be
// held.
func (s *Session) setPeerDrainingLocked() {
	if !s.peerIsDraining {
		s.peerIsDraining = true
		close(s.peerDraining)
	}
}

func (s *Session) isReplicaDraining(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isDrainingLocked(l)
}

// forgetReplicasLocked removes the replicas that should have stopped and have no connections. mu
// must be held.
func (s *Session) forgetReplicasLocked() {
	for id, deadline := range s.drainingReplicas {
		same := func(o *link) bool { return o.replicaID == id }
		if time.Since(deadline) > controlTimeout &&
			!slices.ContainsFunc(s.links, same) && !slices.ContainsFunc(s.retiring, same) {
			delete(s.drainingReplicas, id)
		}
	}
}

// hasOtherLeg reports, on the client's side, whether the session can continue without the replica
// behind l.
func (s *Session) hasOtherLeg(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.onlyDraining && slices.ContainsFunc(s.links, func(o *link) bool { return o.replicaID != l.replicaID })
}
