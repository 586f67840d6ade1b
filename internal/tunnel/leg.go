// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// defaultMaxLegs is how many replicas a session has connections with, unless MaxLegs says
// otherwise.
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
		legs[i].Draining = s.isDrainingLocked(l)
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

// legsChanged tells the client's owner that Legs or WantedLegs may return something else. mu must
// not be held.
func (s *Session) legsChanged() {
	if s.owner != nil && s.owner.cfg.OnLegs != nil {
		s.owner.cfg.OnLegs(s)
	}
}

// isReplicated reports whether the server is a replica.
func (s *Session) isReplicated() bool { return s.welcome.ReplicaID != "" }

// connNeeds compares a session's connections with those that it should have.
type connNeeds struct {
	links    int  // connections that take new streams
	minimum  int  // how many there should be without traffic
	want     int  // connections wanted for the traffic
	legs     int  // replicas that respond on one of the links
	replicas int  // how many there are
	leg      bool // a connection with another replica is missing

	spareReplicas bool // there are more than the session has legs
}

// connNeedsLocked returns what the session needs; nothing once it is ending. mu must be held.
func (s *Session) connNeedsLocked(now time.Time) connNeeds {
	if s.closing {
		return connNeeds{}
	}
	responds := make(map[string]bool) // by replica
	n := connNeeds{minimum: cmp.Or(s.fixed, defaultConnections), replicas: s.replicas}
	if !s.onlyDraining {
		n.links = len(s.links)
		for _, l := range s.links {
			_, unresponsive := l.mux.Unresponsive()
			responds[l.replicaID] = responds[l.replicaID] || !unresponsive
		}
	}
	for _, yes := range responds {
		if yes {
			n.legs++
		}
	}
	if s.isReplicated() {
		wanted := s.wantedLegsLocked()
		n.minimum = max(n.minimum, min(len(responds), wanted))
		// One that does not respond is replaced if there is another replica.
		n.leg = len(responds) == 0 || n.legs < wanted && len(responds) < s.replicas
		n.spareReplicas = s.replicas > wanted && !s.draining
	}
	n.want = n.minimum
	if s.fixed == 0 && slices.Contains(s.welcome.Features, FeatureConnections) { // else they could not be retired
		n.want = max(n.want, s.desired.current(now),
			min(s.peerDesired.current(now)*max(1, len(responds)), maxConnections))
	}
	return n
}

func (s *Session) connNeeds(now time.Time) connNeeds {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connNeedsLocked(now)
}

// addDialedLink adds a connection that the client has dialled, which the server answered with
// welcome. It reports whether it is the first one with its replica. The caller must serve l, and
// then retire the connections in retire: l itself if it is with a replica that drains or that has
// one already and the session needs no more, and those with replicas that drain.
func (s *Session) addDialedLink(l *link, welcome *Welcome) (isNewLeg bool, retire []*link, err error) {
	if welcome.SessionID != s.ID() || welcome.AccountID != s.welcome.AccountID {
		return false, nil, fmt.Errorf("the server took a connection of session %s for one of session %q of account %q",
			s.ID(), welcome.SessionID, welcome.AccountID)
	}
	l.replicaID, l.replicas = welcome.ReplicaID, welcome.Replicas
	l.server = serverSupport{welcome.ServerVersion, welcome.Features}
	l.addresses = boundedAddresses(welcome.ReplicaAddresses)
	defer s.legsChanged()
	s.mu.Lock()
	defer s.mu.Unlock()
	known := false
	for _, o := range s.links {
		if o.replicaID == l.replicaID { // o's may be from a later message than the welcome
			known, l.replicas, l.addresses = true, o.replicas, o.addresses
		}
	}
	needed := !s.isDrainingLocked(l) &&
		(!known || !s.isReplicated() || len(s.links) < s.connNeedsLocked(time.Now()).want)
	if err := s.addLinkLocked(l); err != nil {
		return false, nil, err
	}
	s.updateReplicasLocked()
	if !needed {
		s.detachLocked(l)
		return false, []*link{l}, nil
	}
	if !known && s.draining {
		m := &message{Type: typeDrain, Drain: &drain{DeadlineMS: time.Until(s.drainDeadline).Milliseconds()}}
		go func() { _ = l.send(m) }() // ends within controlTimeout
	}
	return !known, s.settleDrainsLocked(), nil
}

// detachLocked removes l from the choice for new streams. mu must be held.
func (s *Session) detachLocked(l *link) {
	if i := slices.Index(s.links, l); i >= 0 {
		s.links = slices.Delete(s.links, i, i+1)
		s.retiring = append(s.retiring, l)
	}
}

// handleReplicas handles the message of the replica behind l with the number of replicas and their
// addresses.
func (s *Session) handleReplicas(l *link, n int, addresses []ReplicaAddress) {
	addresses = boundedAddresses(addresses)
	s.mu.Lock()
	for _, o := range s.links {
		if o.replicaID == l.replicaID {
			o.replicas, o.addresses = n, addresses
		}
	}
	s.updateReplicasLocked()
	s.mu.Unlock()
	s.signalConnsChanged()
	s.legsChanged()
}

// updateReplicasLocked recomputes the number of replicas: the largest that one of them has sent, as
// one that is cut off from the others may know too few. mu must be held.
func (s *Session) updateReplicasLocked() {
	n := 0
	for _, l := range s.links {
		n = max(n, l.replicas)
	}
	if n > 0 {
		s.replicas = n
	}
}

// canLeaveLocked reports whether the session can do without l, one of links: another one is with
// its replica, or there are more legs than wanted. mu must be held.
func (s *Session) canLeaveLocked(l *link) bool {
	legs := make(map[string]int)
	for _, o := range s.links {
		legs[o.replicaID]++
	}
	return legs[l.replicaID] > 1 || len(legs) > s.wantedLegsLocked()
}

// avoidTime is how long new streams avoid a replica that has refused one because it drains: its
// DRAIN is on the way.
const avoidTime = time.Second

// avoidReplica makes new streams of the client prefer other replicas for avoidTime.
func (s *Session) avoidReplica(id string) {
	if id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.replicaID == id {
			l.avoidUntil = time.Now().Add(avoidTime)
		}
	}
}
