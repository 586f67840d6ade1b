// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package legs follows the replicas of the service that a client's tunnel session is connected to:
// which were found and lost, and since when some are missing.
package legs

import (
	"maps"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Change is the difference between two states of a session's legs.
type Change struct {
	Serving int // legs that take streams, at most Wanted
	Wanted  int // legs that the session should have
	// Found, Draining and Lost have the ids of replicas that began to serve the session, that are
	// about to stop, and that ceased to serve it without announcing it.
	Found, Draining, Lost []string
}

// state is the state of one leg.
type state int

const (
	serving state = iota
	draining
	unresponsive
)

// Tracker follows the legs of one session. The zero value is ready. It is not safe for concurrent
// use.
type Tracker struct {
	legs         map[string]state // by id of the replica
	draining     map[string]bool  // replicas that have announced that they stop
	wanted       int
	missingSince time.Time
}

// Note records which replicas are about to stop, so that the next Update does not take them for lost
// if they are gone by then.
func (t *Tracker) Note(now []tunnel.Leg) {
	for _, l := range now {
		if l.Draining {
			if t.draining == nil {
				t.draining = make(map[string]bool)
			}
			t.draining[l.ReplicaID] = true
		}
	}
}

// Update sets the session's legs and how many it should have. It returns what changed since the
// last Update and whether anything did. With a server without replicas, nothing ever does.
func (t *Tracker) Update(now []tunnel.Leg, wanted int, at time.Time) (Change, bool) {
	t.Note(now)
	next := make(map[string]state, len(now))
	for _, l := range now {
		switch {
		case l.ReplicaID == "":
		case l.Draining:
			next[l.ReplicaID] = draining
		case l.Unresponsive:
			next[l.ReplicaID] = unresponsive
		default:
			next[l.ReplicaID] = serving
		}
	}
	if len(next) == 0 { // a server without replicas, or the session is over
		return Change{}, false
	}
	changed := wanted != t.wanted || !maps.Equal(next, t.legs)
	c := t.compare(next)
	t.legs, t.wanted, c.Wanted = next, wanted, wanted
	c.Serving = min(c.Serving, wanted) // more until those that are not needed have ended
	switch {
	case c.Serving >= wanted:
		t.missingSince = time.Time{}
	case t.missingSince.IsZero():
		t.missingSince = at
	}
	return c, changed
}

// compare returns how the legs differ from the last ones.
func (t *Tracker) compare(next map[string]state) Change {
	var c Change
	for _, id := range slices.Sorted(maps.Keys(next)) {
		last, known := t.legs[id]
		switch is := next[id]; {
		case is == serving:
			c.Serving++
			if !known || last != serving {
				c.Found = append(c.Found, id)
			}
		case is == draining && (!known || last != draining):
			c.Draining = append(c.Draining, id)
		case is == unresponsive && known && last == serving:
			c.Lost = append(c.Lost, id)
		}
	}
	for id, last := range t.legs {
		if _, remains := next[id]; remains {
			continue
		}
		switch {
		case last == serving && t.draining[id]:
			c.Draining = append(c.Draining, id)
		case last == serving:
			c.Lost = append(c.Lost, id)
		}
		delete(t.draining, id)
	}
	slices.Sort(c.Lost)
	slices.Sort(c.Draining)
	return c
}

// MissingSince returns since when the session has fewer legs than it should have, or the zero time.
func (t *Tracker) MissingSince() time.Time { return t.missingSince }
