// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// TestBeatObserver_NamesDead plays answers to beats, one a second, against a limit of 4 s.
func TestBeatObserver_NamesDead(t *testing.T) {
	t.Parallel()
	type answer struct {
		database string // "" = the beat was not answered
		beats    int64  // of the replica b
	}
	same := func(count int, a answer) []answer { return slices.Repeat([]answer{a}, count) }
	silent := answer{"one", 7}
	for name, test := range map[string]struct {
		answers []answer
		dead    bool // after the last of them
	}{
		"silent for less than the limit": {same(4, silent), false},
		"silent for the limit":           {same(5, silent), true},
		"a beat in between":              {append(same(3, silent), same(4, answer{"one", 8})...), false},
		"silent again":                   {append(same(3, silent), same(5, answer{"one", 8})...), true},
		"after an outage": {
			slices.Concat(same(4, silent), same(60, answer{}), same(4, silent)), false},
		"silent since the outage": {
			slices.Concat(same(4, silent), same(60, answer{}), same(5, silent)), true},
		"a beat of the observer is missing": {
			slices.Concat(same(3, silent), same(1, answer{}), same(4, silent)), false},
		"another process of the database": {
			append(same(4, silent), same(4, answer{"two", 7})...), false},
	} {
		o := beatObserver{after: 4 * time.Second}
		now := time.Unix(1_800_000_000, 0)
		var dead map[string]int64
		for _, a := range test.answers {
			if now = now.Add(time.Second); a.database == "" {
				o.broken()
			} else {
				dead = o.answered(now, a.database, map[string]int64{"b": a.beats})
			}
		}
		if got := slices.Collect(maps.Keys(dead)); len(got) > 0 != test.dead {
			t.Errorf("%s: dead %v, want %t", name, got, test.dead)
		}
	}
}
