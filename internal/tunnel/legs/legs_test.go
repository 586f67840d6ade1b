// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package legs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestTracker_Update(t *testing.T) {
	t.Parallel()
	var (
		tracker Tracker
		at      = time.Unix(1_800_000_000, 0)
		begin   = at
		one     = tunnel.Leg{ReplicaID: "rp-1", Connections: 2}
		two     = tunnel.Leg{ReplicaID: "rp-2"}
		three   = tunnel.Leg{ReplicaID: "rp-3"}
		drains  = tunnel.Leg{ReplicaID: "rp-2", Draining: true}
		silent  = tunnel.Leg{ReplicaID: "rp-3", Unresponsive: true}
		never   time.Time
	)
	for i, step := range []struct {
		legs    []tunnel.Leg
		wanted  int
		want    Change
		changed bool
		missing time.Time
	}{
		{[]tunnel.Leg{one}, 3, Change{Serving: 1, Wanted: 3, Found: []string{"rp-1"}}, true, begin},
		{[]tunnel.Leg{one, two}, 3, Change{Serving: 2, Wanted: 3, Found: []string{"rp-2"}}, true, begin},
		{[]tunnel.Leg{one, two, three}, 3, Change{Serving: 3, Wanted: 3, Found: []string{"rp-3"}}, true, never},
		{[]tunnel.Leg{{ReplicaID: "rp-1", Streams: 9}, two, three}, 3, Change{Serving: 3, Wanted: 3}, false, never},
		{[]tunnel.Leg{one, drains, three}, 3, Change{Serving: 2, Wanted: 3, Draining: []string{"rp-2"}}, true,
			begin.Add(4 * time.Second)},
		{[]tunnel.Leg{one, three}, 3, Change{Serving: 2, Wanted: 3}, true, begin.Add(4 * time.Second)},
		{[]tunnel.Leg{one, three}, 2, Change{Serving: 2, Wanted: 2}, true, never},
		{[]tunnel.Leg{one, silent}, 2, Change{Serving: 1, Wanted: 2, Lost: []string{"rp-3"}}, true,
			begin.Add(7 * time.Second)},
		{[]tunnel.Leg{one}, 2, Change{Serving: 1, Wanted: 2}, true, begin.Add(7 * time.Second)},
		{[]tunnel.Leg{one, three}, 2, Change{Serving: 2, Wanted: 2, Found: []string{"rp-3"}}, true, never},
		{[]tunnel.Leg{two}, 2, Change{Serving: 1, Wanted: 2, Found: []string{"rp-2"},
			Lost: []string{"rp-1", "rp-3"}}, true, begin.Add(10 * time.Second)},
	} {
		got, changed := tracker.Update(step.legs, step.wanted, at)
		if d := cmp.Diff(step.want, got); d != "" || changed != step.changed {
			t.Errorf("step %d: changed %v, want %v %s", i, changed, step.changed, d)
		}
		if m := tracker.MissingSince(); !m.Equal(step.missing) {
			t.Errorf("step %d: missing since %v, want %v", i, m, step.missing)
		}
		at = at.Add(time.Second)
	}
}

// A replica without streams is left as soon as it has said that it stops.
func TestTracker_NoteDraining(t *testing.T) {
	t.Parallel()
	var tracker Tracker
	one, two := tunnel.Leg{ReplicaID: "rp-1"}, tunnel.Leg{ReplicaID: "rp-2"}
	tracker.Update([]tunnel.Leg{one, two}, 2, time.Now())
	tracker.Note([]tunnel.Leg{one, {ReplicaID: "rp-2", Draining: true}})
	got, _ := tracker.Update([]tunnel.Leg{one}, 2, time.Now())
	want := Change{Serving: 1, Wanted: 2, Draining: []string{"rp-2"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTracker_NothingWithoutReplicas(t *testing.T) {
	t.Parallel()
	var tracker Tracker
	if c, changed := tracker.Update([]tunnel.Leg{{Connections: 2, Unresponsive: true}}, 1, time.Now()); changed ||
		!tracker.MissingSince().IsZero() {
		t.Errorf("%+v", c)
	}
}
