// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package path

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestSteps_NameEarlierHops requires that a step needs hops before it only, that causes are hops of
// the same path, and that no hop has two places.
func TestSteps_NameEarlierHops(t *testing.T) {
	t.Parallel()
	for _, steps := range [][]Step{ToEndpoint(), ToPublicEndpoint(), ToService()} {
		var names []string
		for _, s := range steps {
			if slices.Contains(names, s.Name) || s.Name == "" {
				t.Errorf("%q is there twice", s.Name)
			}
			for _, need := range s.Needs {
				if !slices.Contains(names, need) {
					t.Errorf("%s needs %s, which does not come before it", s.Name, need)
				}
			}
			names = append(names, s.Name)
		}
		for _, s := range steps {
			for _, cause := range s.Causes {
				if !slices.Contains(names, cause) || cause == s.Name {
					t.Errorf("%s has the cause %s, which is not on its path", s.Name, cause)
				}
			}
		}
	}
}

// TestSteps_HaveRowsInDocs compares the tables of docs/fix/call.md with the hops of a call that the
// doctor checks.
func TestSteps_HaveRowsInDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/fix/call.md")
	must.Succeed(t, err)
	var have, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllSubmatch(page, -1) {
		have = append(have, string(row[1]))
	}
	for _, s := range slices.Concat(ToEndpoint(), ToPublicEndpoint()) {
		if s.Name != HopCallers && s.Name != HopBackend { // which the dashboard alone shows
			want = append(want, s.Name)
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("docs/fix/call.md has the hops %v, want %v", have, want)
	}
}

// TestReport_SkipsAndExplains: hops after a broken one are skipped, unless it is usable, and one
// that another explains is a symptom without a remedy.
func TestReport_SkipsAndExplains(t *testing.T) {
	t.Parallel()
	step := func(name string) Step {
		steps := ToService()
		return steps[slices.IndexFunc(steps, func(s Step) bool { return s.Name == name })]
	}
	var r Report
	r.Add(OKf("").Named(HopCluster), Brokenf("fix", "").Named(HopServiceImport))
	if !r.Skips(step(HopDNS)) || r.Skips(step(HopRecords)) {
		t.Errorf("after %+v", r.Hops)
	}
	r.Hops[1] = r.Hops[1].AsUsable()
	if r.Skips(step(HopDNS)) || !r.Skips(Step{OnPath: true}) {
		t.Errorf("after %+v", r.Hops)
	}
	r.Add(Brokenf("look", "").Named(HopExporter))
	r.MarkSymptoms(ToService())
	r.Conclude()
	if h := r.Hop(HopServiceImport); r.Broken != HopExporter || r.OK || h.Fix != "" {
		t.Errorf("got %+v", r)
	}
}
