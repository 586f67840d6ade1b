// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
)

func TestAnnotations_KeepsSelectedOnly(t *testing.T) {
	t.Parallel()
	p := newPod("a", "10.0.0.1")
	p.Annotations = map[string]string{"team": "red", "team-lead": "ann", "example.com/a": "1", "example.com/b": "2",
		"example.org/a": "3"}
	for name, tt := range map[string]struct {
		wanted Annotations
		want   []string
	}{
		"names":      {Annotations{"team", "example.org/a", "missing"}, []string{"example.org/a", "team"}},
		"beginnings": {Annotations{"example.com/*", "team-*"}, []string{"example.com/a", "example.com/b", "team-lead"}},
		"others":     {Annotations{"example.net/*"}, nil},
	} {
		if got := tt.wanted.selectFrom(p); got == nil || !slices.Equal(slices.Sorted(maps.Keys(got)), tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if got := Annotations(nil).selectFrom(p); got != nil {
		t.Errorf("none are wanted, and known are %v", got)
	}
}

func TestAnnotations_Invalid(t *testing.T) {
	t.Parallel()
	good := Annotations{"team", "team-*", "example.com/*", "example.com/te*", "kubectl.kubernetes.io/restartedAt"}
	bad := Annotations{"*", "", "a b", "a*b", "/x", "*/x", "a/b/c"}
	if got := append(slices.Clone(good), bad...).Invalid(); !slices.Equal(got, bad) {
		t.Errorf("wrong are %q, want %q", got, bad)
	}
}

// TestLookup_AnnotationsChange checks that a later event of a pod replaces the earlier one.
func TestLookup_AnnotationsChange(t *testing.T) {
	t.Parallel()
	runPods(t, func(t *testing.T, a *fakeAPI, p *Pods) {
		p.table.selected = Annotations{"team"}
		for _, team := range []string{"red", "blue"} {
			pod := newPod("a", "10.0.0.1")
			pod.Annotations = map[string]string{"team": team, "secret": "s"}
			p.table.set(pod)
			got := p.Lookup(t.Context(), netip.MustParseAddr("10.0.0.1"))
			if got == nil || !maps.Equal(got.Annotations, map[string]string{"team": team}) {
				t.Errorf("%+v", got)
			}
		}
	})
}
