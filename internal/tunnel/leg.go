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
	ReplicaID            string // id of the replica; "" = a server that is alone
	Connections, Streams int
	Draining             bool // Draining reports that the replica is about to stop.
	Unresponsive         bool // Unresponsive reports that the replica answers on no connection.
}

// Legs returns the session's legs, sorted by ReplicaID.
func (s *Session) Legs() []Leg {
	s.mu.Lock()
	defer s.mu.Unlock()
	var legs []Leg
	for _, l := range s.links.all() {
		i := slices.IndexFunc(legs, func(leg Leg) bool { return leg.ReplicaID == l.replicaID })
		if i < 0 {
			i = len(legs)
			legs = append(legs, Leg{ReplicaID: l.replicaID, Unresponsive: true})
		}
		_, unresponsive := l.mux.Unresponsive()
		legs[i].Draining = s.legs != nil && s.legs.isDrainingLocked(l)
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
	if s.legs == nil {
		return 1
	}
	return s.legs.wantedLocked()
}

// clientLegs is the client's side of a session: the replicas of the server that it has connections
// with, and how many connections it needs. The session's mutex must be held for methods whose name
// ends in Locked, and not for the others.
type clientLegs struct {
	session      *Session
	client       *Client
	fixed        int           // fixed is the number of connections; 0: as the traffic asks.
	connsChanged chan struct{} // connsChanged gets a token when the actual or desired number changes.

	// The session's mutex guards what follows.
	replicas     int                  // replicas accept sessions; 0: the server is alone.
	peerDesired  desiredConns         // peerDesired is the wish of one of the servers, for itself.
	draining     map[string]time.Time // draining has the replicas that are about to stop, and when.
	onlyDraining bool                 // onlyDraining is set while no connection is with another replica.
	drainTimer   *time.Timer          // drainTimer calls endSearch.
}

// wantedLocked returns what Session.WantedLegs does.
func (g *clientLegs) wantedLocked() int { return max(1, min(g.replicas, g.client.cfg.MaxLegs)) }

// notify calls OnLegs: Legs or WantedLegs may return something else.
func (g *clientLegs) notify() {
	if f := g.client.cfg.OnLegs; f != nil {
		f(g.session)
	}
}

// isReplicated reports whether the server is a replica.
func (g *clientLegs) isReplicated() bool { return g.session.welcome.ReplicaID != "" }

// handleConnections handles the server's message with the desired number of connections. A replica
// asks for itself: it cannot be chosen, so that the session gets as many for each of them.
func (g *clientLegs) handleConnections(connections int) {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	if g.peerDesired.update(min(connections, maxConnections), time.Now()) {
		wake(g.connsChanged)
	}
}

// connNeeds compares a session's connections with those that it should have.
type connNeeds struct {
	links    int  // connections that take new streams
	minimum  int  // connections wanted without traffic
	want     int  // connections wanted for the traffic
	legs     int  // replicas that respond on one of the links
	replicas int  // replicas that accept sessions
	leg      bool // leg reports that the session needs a connection with another replica.

	spareReplicas bool // spareReplicas reports that there are more replicas than the session has legs.
}

// needsLocked returns what the session needs; nothing once it is ending.
func (g *clientLegs) needsLocked(now time.Time) connNeeds {
	s := g.session
	if s.closing {
		return connNeeds{}
	}
	var responds map[string]bool // by replica
	n := connNeeds{minimum: cmp.Or(g.fixed, defaultConnections), replicas: g.replicas}
	if !g.onlyDraining {
		n.links, responds = len(s.links.active), s.links.responding()
	}
	for _, yes := range responds {
		if yes {
			n.legs++
		}
	}
	if g.isReplicated() {
		wanted := g.wantedLocked()
		n.minimum = max(n.minimum, min(len(responds), wanted))
		// One that does not respond is replaced if there is another replica.
		n.leg = len(responds) == 0 || n.legs < wanted && len(responds) < g.replicas
		n.spareReplicas = g.replicas > wanted && !s.draining
	}
	n.want = n.minimum
	if g.fixed == 0 && slices.Contains(s.welcome.Features, FeatureConnections) { // else they could not be retired
		n.want = max(n.want, s.desired.current(now),
			min(g.peerDesired.current(now)*max(1, len(responds)), maxConnections))
	}
	return n
}

func (g *clientLegs) needs(now time.Time) connNeeds {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	return g.needsLocked(now)
}

// addLink adds a connection that the client has dialled, which the server answered with welcome. It
// reports whether it is the first one with its replica. The caller must serve l, and then retire
// the connections in retire: l itself if it is with a replica that drains or that has one already
// and the session needs no more, and those with replicas that drain.
func (g *clientLegs) addLink(l *link, welcome *Welcome) (isNewLeg bool, retire []*link, err error) {
	s := g.session
	if welcome.SessionID != s.ID() || welcome.AccountID != s.welcome.AccountID {
		return false, nil, fmt.Errorf("the server took a connection of session %s for one of session %q of account %q",
			s.ID(), welcome.SessionID, welcome.AccountID)
	}
	l.replicaID, l.replicas = welcome.ReplicaID, welcome.Replicas
	l.server = serverSupport{welcome.ServerVersion, welcome.Features}
	l.addresses = boundedAddresses(welcome.ReplicaAddresses)
	defer g.notify()
	s.mu.Lock()
	defer s.mu.Unlock()
	known, limit := s.links.byReplica()[l.replicaID], maxConnections
	if len(known) > 0 { // its own may be from a later message than the welcome
		l.replicas, l.addresses = known[0].replicas, known[0].addresses
	} else {
		limit += g.client.cfg.MaxLegs // a replica is found although there are that many with the others
	}
	movesToNative := l.conn.ws == nil && s.carrier.Name == CarrierWebSocket
	needed := !g.isLeavingLocked(l) && (movesToNative || len(known) == 0 || !g.isReplicated() ||
		len(s.links.active) < g.needsLocked(time.Now()).want)
	parking := g.parkingLocked(l)
	if err := s.addLinkLocked(l, limit); err != nil {
		return false, nil, err
	}
	if l.parking = parking; parking != nil {
		l.pairs = parking.pool
	}
	g.updateReplicasLocked()
	if !needed {
		s.links.detach(l)
		return false, []*link{l}, nil
	}
	if movesToNative {
		s.carrier = Carrier{Name: ALPN}
	}
	if len(known) == 0 && s.draining {
		m := &message{Type: typeDrain, Drain: &drain{DeadlineMS: time.Until(s.drainDeadline).Milliseconds()}}
		go func() { _ = l.send(m) }() // ends within controlTimeout
	}
	return len(known) == 0, g.settleDrainsLocked(), nil
}

// handleReplicas handles the message of the replica behind l with the number of replicas and their
// addresses.
func (g *clientLegs) handleReplicas(l *link, n int, addresses []ReplicaAddress) {
	addresses = boundedAddresses(addresses)
	g.session.mu.Lock()
	for _, o := range g.session.links.byReplica()[l.replicaID] {
		o.replicas, o.addresses = n, addresses
	}
	g.updateReplicasLocked()
	g.session.mu.Unlock()
	wake(g.connsChanged)
	g.notify()
}

// updateReplicasLocked recomputes the number of replicas: the largest that one of them has sent, as
// one that is cut off from the others may know too few.
func (g *clientLegs) updateReplicasLocked() {
	n := 0
	for _, l := range g.session.links.active {
		n = max(n, l.replicas)
	}
	if n > 0 {
		g.replicas = n
	}
}

// unreached returns the announced replicas that the session has no connection with and that do not
// drain.
func (g *clientLegs) unreached() []ReplicaAddress {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	connected := g.session.links.byReplica()
	var all []ReplicaAddress
	for _, l := range g.session.links.all() {
		for _, a := range l.addresses {
			if _, draining := g.draining[a.ID]; !draining && connected[a.ID] == nil && !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// renewable returns a connection with each replica that has FeatureRenew, by the replica's id:
// one that takes new streams if there is one, or else one that is being retired.
func (g *clientLegs) renewable() map[string]*link {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	links := make(map[string]*link)
	for _, l := range g.session.links.all() {
		if links[l.replicaID] == nil && l.ctx.Err() == nil && slices.Contains(l.server.features, FeatureRenew) {
			links[l.replicaID] = l
		}
	}
	return links
}

// detachSurplus removes a connection that the session does not need from the choice for new
// streams, and returns it: there are more than want, this one has had no stream for idleTime, and
// another one is with its replica or there are more legs than wanted. It is never the first one,
// which requests use. It returns nil if there is none.
func (g *clientLegs) detachSurplus(want int, now time.Time) *link {
	s := g.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.peerIsDraining || g.onlyDraining || len(s.links.active) <= max(want, 1) {
		return nil
	}
	legs := s.links.byReplica()
	for i, l := range slices.Backward(s.links.active) {
		if i > 0 && l.streams.Load() == 0 && now.Sub(time.Unix(0, l.idleSince.Load())) >= idleTime &&
			(len(legs[l.replicaID]) > 1 || len(legs) > g.wantedLocked()) {
			s.links.detach(l)
			return l
		}
	}
	return nil
}
