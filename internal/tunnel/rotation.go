// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"math/rand/v2"
	"time"
)

// rotationInterval is the mean time between two rotations. Where there are more replicas than a
// session has legs, it replaces one at random: a replica that has been restarted gets its share.
const rotationInterval = 10 * time.Minute

// rotation replaces one leg after the other.
type rotation struct {
	due    <-chan time.Time // nil: the session has no reason to rotate, or does
	active bool             // a leg beyond those wanted is being looked for
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
	k.client.retire(k.session.detachRandomLeg(r.replicaID))
	k.session.legsChanged()
}

// detachRandomLeg removes the connections with one replica, not the one with the id keep, from the
// choice for new streams, and returns them for retirement. While a request waits for its answer, or
// without a leg too many, it removes none: detachSurplusLink does it later.
func (s *Session) detachRandomLeg(keep string) (retire []*link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	legs := make(map[string][]*link)
	for _, l := range s.links {
		legs[l.replicaID] = append(legs[l.replicaID], l)
	}
	if len(legs) <= s.wantedLegsLocked() || len(s.pending) > 0 || s.closing || s.draining || s.onlyDraining {
		return nil
	}
	delete(legs, keep)
	choice := rand.IntN(len(legs)) // the order of a map is not uniform
	for _, links := range legs {
		if choice == 0 {
			retire = links
			break
		}
		choice--
	}
	for _, l := range retire {
		s.detachLocked(l)
	}
	return retire
}
