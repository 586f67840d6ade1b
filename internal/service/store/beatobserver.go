// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "time"

// beatObserver decides which other replicas are dead: those whose number of beats has not changed
// for a time in which each beat of the observer was answered, by the same database. It compares no
// clocks of machines, and an outage of the database kills no replica when it ends. It is not safe
// for concurrent use.
type beatObserver struct {
	after    time.Duration
	database string    // database that answered the last beat
	since    time.Time // first of the beats answered without a break; zero = there is none
	seen     map[string]observedBeats
}

// observedBeats is a replica's number of beats and when it was first seen.
type observedBeats struct {
	beats int64
	since time.Time
}

// broken records that a beat was not answered in time.
func (o *beatObserver) broken() { o.since, o.seen = time.Time{}, nil }

// answered records the answer to a beat, which has the beats of the other replicas, and returns
// those that are dead. Times are monotonic.
func (o *beatObserver) answered(now time.Time, database string, others map[string]int64) (dead map[string]int64) {
	if database != o.database {
		o.broken()
	}
	if o.since.IsZero() {
		o.since = now
	}
	o.database = database
	seen := map[string]observedBeats{}
	for id, beats := range others {
		before, known := o.seen[id]
		if !known || before.beats != beats {
			before = observedBeats{beats: beats, since: now}
		}
		seen[id] = before
		if now.Sub(before.since) >= o.after && now.Sub(o.since) >= o.after {
			if dead == nil {
				dead = map[string]int64{}
			}
			dead[id] = beats
		}
	}
	o.seen = seen
	return dead
}
