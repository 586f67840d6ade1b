// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// A replica that drains is left by the client's session: its connections are retired, so that their
// streams finish, and the session continues on other replicas. When it was the only one, its
// connections stay until there is one with another replica; if none is found in half of the time
// that the replica has left, the session drains as a whole.

// handleReplicaDrain handles the message of the replica behind l that it stops within d.
func (g *clientLegs) handleReplicaDrain(l *link, d time.Duration) {
	g.session.mu.Lock()
	if !g.isDrainingLocked(l) {
		g.draining[l.replicaID] = time.Now().Add(d)
		g.session.markLinksDrainingLocked(l.replicaID)
	}
	retire := g.settleDrainsLocked()
	g.session.mu.Unlock()
	g.client.retire(retire)
	wake(g.connsChanged)
	g.notify()
}

// markLinksDrainingLocked tells the streams of the connections with a replica that it stops. Session.mu
// must be held.
func (s *Session) markLinksDrainingLocked(replicaID string) {
	for _, l := range s.links.all() {
		if l.replicaID == replicaID {
			l.setDraining()
		}
	}
}

// retire gives connections up in the background.
func (c *Client) retire(links []*link) {
	for _, l := range links {
		c.goroutines.Go(l.retire)
	}
}

// isDrainingLocked reports whether the replica behind l drains.
func (g *clientLegs) isDrainingLocked(l *link) bool {
	_, yes := g.draining[l.replicaID]
	return yes
}

// isLeavingLocked reports whether l is with a replica that drains, or a WebSocket of a session that
// is carried natively now.
func (g *clientLegs) isLeavingLocked(l *link) bool {
	return g.isDrainingLocked(l) || l.conn.ws != nil && g.session.carrier.Name == ALPN
}

// settleDrainsLocked removes connections that are leaving from the choice for new streams and returns
// them, for retirement, if there is another one. Else it sets the time when the session drains as a
// whole if replicas drain.
func (g *clientLegs) settleDrainsLocked() (retire []*link) {
	links := &g.session.links
	if slices.ContainsFunc(links.active, func(l *link) bool { return !g.isLeavingLocked(l) }) {
		g.onlyDraining = false
		if g.drainTimer != nil {
			g.drainTimer.Stop()
			g.drainTimer = nil
		}
		for _, l := range slices.Clone(links.active) {
			if g.isLeavingLocked(l) {
				links.detach(l)
				retire = append(retire, l)
			}
		}
		return retire
	}
	if g.onlyDraining || !slices.ContainsFunc(links.all(), g.isDrainingLocked) {
		return nil
	}
	g.onlyDraining = true
	deadline := slices.MaxFunc(slices.Collect(maps.Values(g.draining)), time.Time.Compare)
	g.drainTimer = time.AfterFunc(max(0, time.Until(deadline)/2), g.endSearch)
	return nil
}

// endSearch drains the session as a whole if it has only connections with replicas that drain.
func (g *clientLegs) endSearch() {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	if g.onlyDraining && !g.session.closing {
		g.session.setPeerDrainingLocked()
	}
}

func (g *clientLegs) isReplicaDraining(l *link) bool {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	return g.isDrainingLocked(l)
}

// linkRemovedLocked forgets the replicas that should have stopped and have no connections, and
// checks what the session needs without the one that was removed.
func (g *clientLegs) linkRemovedLocked() {
	for id, deadline := range g.draining {
		same := func(o *link) bool { return o.replicaID == id }
		if time.Since(deadline) > controlTimeout && !slices.ContainsFunc(g.session.links.all(), same) {
			delete(g.draining, id)
		}
	}
	g.updateReplicasLocked()
	g.settleDrainsLocked() // none is left to be retired
	wake(g.connsChanged)
}

// hasOther reports whether the session can continue without the replica behind l.
func (g *clientLegs) hasOther(l *link) bool {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	return !g.onlyDraining &&
		slices.ContainsFunc(g.session.links.active, func(o *link) bool { return o.replicaID != l.replicaID })
}

// A connection is retired without aborting a stream: the client opens no more streams on it and
// sends retire; the server opens no more either, and sends retired, its last message there, once it
// has no stream left; the client sends bye once it has none left itself.

var (
	errRetired           = errors.New("the connection is being given up")
	errUnexpectedRetired = errors.New("the server gives up a connection that it was not asked to give up")
)

// retire is the client's part.
func (l *link) retire() {
	if l.send(&message{Type: typeRetire}) != nil {
		return
	}
	select {
	case <-l.peerRetired:
	case <-l.ctx.Done():
		return
	}
	if l.awaitEmpty() {
		l.closeGracefully(&message{Type: typeBye}, errRetired)
	}
}

// finishRetiring is the server's part.
func (l *link) finishRetiring() {
	s := l.session
	s.mu.Lock()
	s.links.detach(l)
	s.mu.Unlock()
	if l.awaitEmpty() {
		_ = l.ctrl.sendLast(&message{Type: typeRetired})
	}
}

// awaitEmpty waits until the link, which accepts no new streams, has none left. It returns false
// when the link ended.
func (l *link) awaitEmpty() bool {
	// The multiplexer first: it counts every stream that came before the peer's message, also one
	// whose handler was not counted yet.
	for l.mux.NumStreams() > 1 || l.streams.Load() > 0 {
		select {
		case <-l.emptied:
		case <-l.ctx.Done():
			return false
		}
	}
	return true
}

// handleRetired handles the server's message that it has no streams left here.
func (l *link) handleRetired() error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.links.retiring, l) {
		return errUnexpectedRetired
	}
	select {
	case <-l.peerRetired:
	default:
		close(l.peerRetired)
	}
	return nil
}
