// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// of returns what policies are written of, from pairs of namespace and digest.
func of(byDefault string, pairs ...string) *v1alpha1.WrittenNetworkPolicies {
	w := &v1alpha1.WrittenNetworkPolicies{DefaultAccess: byDefault, Namespaces: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		w.Namespaces[pairs[i]] = pairs[i+1]
	}
	return w
}

// TestUnchanged_RevokesWhatDiffers checks that before a pass no namespace is recorded as written whose
// objects have changed, were added or are gone: neither with the old digest nor with the new one.
func TestUnchanged_RevokesWhatDiffers(t *testing.T) {
	t.Parallel()
	const not = v1alpha1.NetworkPoliciesNotWritten
	before := of("allow", "same", "1", "changed", "1", "gone", "1", "failed", not)
	after := of("allow", "same", "1", "changed", "2", "added", "1", "failed", "1")
	want := of("allow", "same", "1", "changed", not, "gone", not, "added", not, "failed", not)
	if diff := cmp.Diff(want, unchanged(before, after)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, w := range map[string]*v1alpha1.WrittenNetworkPolicies{
		"nothing before": unchanged(nil, after), "another default": unchanged(of("deny", "same", "1"), after),
	} {
		if w != nil {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

func TestWithout_DropsWhatFailed(t *testing.T) {
	t.Parallel()
	const not = v1alpha1.NetworkPoliciesNotWritten
	failed := errors.New("refused")
	ofPort := func(target int32) failures { return failures{ports: map[int32]error{target: failed}} }
	restricted := []restrictedPort{{target: 1, hostname: "api.demo"}, {target: 2, hostname: "api.shop.b"},
		{target: 3, hostname: "web.demo"}}
	written := of("allow", "demo", "1", "shop", "1")
	for name, tt := range map[string]struct {
		found failures
		want  *v1alpha1.WrittenNetworkPolicies
	}{
		"nothing":                {failures{}, written},
		"base":                   {failures{base: failed}, nil},
		"one that is to go":      {failures{others: failed}, nil},
		"a port":                 {ofPort(3), of("allow", "demo", not, "shop", "1")},
		"a port of a clusterset": {ofPort(2), of("allow", "demo", "1", "shop", not)},
	} {
		if diff := cmp.Diff(tt.want, without(written, tt.found, restricted)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
