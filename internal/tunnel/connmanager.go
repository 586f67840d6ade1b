// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// maxPendingDials is how many further connections a session dials at a time. After a failure it is
// one, until a dial succeeds.
const maxPendingDials = 4

// A replica is found by dialing: the balancer before the replicas decides which one answers. After
// legDials dials for each replica that brought no new one, the session pauses for legSearchPause. The
// first dial for each replica is made at once, and the others after growing pauses of up to
// maxLegPause: the balancer may take seconds to notice a replica that has just started. Of 10,000
// sessions that lack one of three replicas behind a balancer that chooses at random, a round of 27 s
// leaves one without it.
const (
	legDials       = 8
	minLegPause    = 100 * time.Millisecond
	maxLegPause    = 1500 * time.Millisecond
	legSearchPause = 2 * time.Minute
	maxLegBackoff  = time.Second // between failed dials of a session that no replica serves
)

// connManager adjusts the number of a session's connections, and of the replicas that they are
// with, to the desired one. It is for one goroutine.
type connManager struct {
	client  *Client
	session *Session

	pendingDials int
	results      chan dialResult // results of the pending dials
	failures     int             // consecutive failures of dials
	pause        <-chan time.Time

	legs, replicas int // numbers at the last comparison with what the session needs
	fruitless      int // consecutive dials that brought no new replica
	legPause       <-chan time.Time

	direct   directDial
	rotation rotation
}

// dialResult is the result of dialing a further connection.
type dialResult struct {
	replicaID string // the replica that answered; "" = none
	isNewLeg  bool
	err       error
}

// manageConnections dials and retires further connections of a live session until it ends.
func (c *Client) manageConnections(ctx context.Context, s *Session) {
	k := &connManager{client: c, session: s, results: make(chan dialResult, maxPendingDials),
		direct: directDial{results: make(chan dialResult, 1)}}
	for k.awaitDialNeeded(ctx) {
		k.pendingDials++
		c.goroutines.Go(func() {
			k.results <- c.dialFurther(ctx, s, c.cfg.Address)
		})
	}
}

// awaitDialNeeded waits until a connection is to be dialled by the service's name, and meanwhile
// dials replicas at their own addresses and retires surplus connections. It returns false when the
// session needs no more. It dials nothing for a session without connections, unless another replica
// may have it: the session is at its end, and the dial would be cut in its handshake, which costs a
// TLS ticket.
func (k *connManager) awaitDialNeeded(ctx context.Context) bool {
	s := k.session
	for {
		select {
		case <-s.peerDraining:
			return false
		case <-ctx.Done():
			return false
		default:
		}
		n := s.legs.needs(time.Now())
		k.updateRotation(&n)
		k.updateRound(n)
		if n.leg {
			k.startDirectDial(ctx)
		}
		if k.needsDial(n) {
			return true
		}
		var later <-chan time.Time
		if n.links > n.minimum {
			if l := s.legs.detachSurplus(n.want, time.Now()); l != nil {
				k.client.goroutines.Go(l.retire)
				continue
			}
			later = time.After(shrinkInterval)
		}
		select {
		case r := <-k.results:
			k.handleDialResult(r)
		case r := <-k.direct.results:
			k.handleDirectResult(r)
		case <-k.direct.headStart:
			k.direct.headStart = nil
		case <-k.rotation.due:
			k.rotation = rotation{active: true}
		case <-k.pause:
			k.pause = nil
		case <-k.legPause:
			k.legPause = nil
		case <-s.legs.connsChanged:
		case <-later:
		case <-s.peerDraining:
		case <-ctx.Done():
		}
	}
}

// needsDial reports whether a connection is to be dialled by the service's name now.
func (k *connManager) needsDial(n connNeeds) bool {
	coming := k.pendingDials
	if k.direct.headStart != nil {
		coming++
	}
	return n.links > 0 && n.links+coming < n.want && k.canDial() || n.leg && k.canSearch(n)
}

func (k *connManager) canDial() bool {
	return k.pause == nil && (k.pendingDials == 0 || k.failures == 0 && k.pendingDials < maxPendingDials)
}

// canSearch reports whether a connection with another replica may be dialled now: one at a time.
func (k *connManager) canSearch(n connNeeds) bool {
	return k.pause == nil && k.pendingDials == 0 &&
		(k.legPause == nil && k.direct.headStart == nil || n.legs == 0)
}

// updateRound begins the search for replicas anew, without a pause, when one was lost or their
// number has changed.
func (k *connManager) updateRound(n connNeeds) {
	isNew := n.legs < k.legs || n.replicas != k.replicas
	if isNew && k.session.legs.isReplicated() {
		k.failures, k.pause = 0, nil
	}
	if isNew || !n.leg {
		k.fruitless, k.legPause = 0, nil
	}
	k.legs, k.replicas = n.legs, n.replicas
}

// handleDialResult handles the result of a dial. Dials that were started together and fail together
// count as one failure.
func (k *connManager) handleDialResult(r dialResult) {
	k.pendingDials--
	replicas := max(1, k.replicas)
	switch k.fruitless++; {
	case r.isNewLeg:
		k.fruitless = 0
	case k.fruitless >= legDials*replicas:
		k.fruitless, k.legPause = 0, time.After(legSearchPause)
		k.rotation.active = false // there is none, or the balancer does not lead to it
	case k.fruitless >= replicas:
		k.legPause = time.After(min(maxLegPause, minLegPause<<min(k.fruitless-replicas, 10)))
	}
	k.finishRotation(r)
	if r.err == nil {
		k.failures = 0
		return
	}
	if refused, ok := errors.AsType[*Error](r.err); ok && refused.Code == CodeUnknownSession {
		k.session.legs.endSearch() // other replicas would refuse, too
	}
	log := k.client.cfg.Logger.With("session", k.session.ID(), "error", r.err)
	if k.pause != nil {
		log.Debug("dialing a further connection")
		return
	}
	maxWait := k.client.cfg.MaxBackoff
	if k.legs == 0 && k.session.legs.isReplicated() {
		maxWait = min(maxWait, maxLegBackoff)
	}
	wait := backoff(k.failures, maxWait)
	k.failures++
	k.pause = time.After(wait)
	log.Debug("dialing a further connection", "retry_in", wait)
}

// joinHello returns the first message of a further connection of s. Replicas get the whole hello, as
// one may not know the session.
func (c *Client) joinHello(s *Session) Hello {
	hello := Hello{Role: s.Role()}
	if s.legs.isReplicated() {
		hello = c.hello()
	}
	hello.SessionID, hello.JoinSecret = s.ID(), s.welcome.JoinSecret
	return hello
}

// dialFurther dials a further connection of s at an address and serves it in the background.
func (c *Client) dialFurther(ctx context.Context, s *Session, address string) dialResult {
	l, welcome, err := c.dial(ctx, address, c.joinHello(s))
	if err != nil {
		return dialResult{err: err}
	}
	isNewLeg, err := c.serveLink(s, l, welcome)
	return dialResult{replicaID: welcome.ReplicaID, isNewLeg: isNewLeg, err: err}
}

// rotationInterval is the mean time between two rotations. Where there are more replicas than a
// session has legs, it replaces one at random: a replica that has been restarted gets its share.
const rotationInterval = 10 * time.Minute

// rotation replaces one leg after the other.
type rotation struct {
	due    <-chan time.Time // start of the next rotation; nil while none is due or one is active
	active bool             // active is set while the session looks for a leg beyond those wanted.
}

// updateRotation makes the session look for a leg beyond those wanted while it rotates, and sets the
// time of the next rotation. A session that lacks a leg does not rotate.
func (k *connManager) updateRotation(n *connNeeds) {
	switch {
	case n.leg || !n.spareReplicas:
		k.rotation = rotation{}
	case k.rotation.active:
		n.leg = true
	case k.rotation.due == nil:
		k.rotation.due = time.After(rotationInterval*3/4 + rand.N(rotationInterval/2))
	}
}

// finishRotation retires another leg once the dial has found a new one.
func (k *connManager) finishRotation(r dialResult) {
	if !k.rotation.active || !r.isNewLeg {
		return
	}
	k.rotation = rotation{}
	k.client.retire(k.session.legs.detachRandom(r.replicaID))
	k.session.legs.notify()
}

// detachRandom removes the connections with one replica, not the one with the id keep, from the
// choice for new streams, and returns them for retirement. While a request waits for its answer, or
// without a leg too many, it removes none: detachSurplus does it later.
func (g *clientLegs) detachRandom(keep string) (retire []*link) {
	s := g.session
	s.mu.Lock()
	defer s.mu.Unlock()
	legs := s.links.byReplica()
	if len(legs) <= g.wantedLocked() || len(s.requests.pending) > 0 || s.closing || s.draining || g.onlyDraining {
		return nil
	}
	delete(legs, keep)
	ids := slices.Collect(maps.Keys(legs)) // their order is not uniform
	retire = legs[ids[rand.IntN(len(ids))]]
	for _, l := range retire {
		s.links.detach(l)
	}
	return retire
}
