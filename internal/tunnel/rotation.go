// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

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
