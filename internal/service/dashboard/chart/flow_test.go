// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestFlow_SVGIsGolden(t *testing.T) {
	t.Parallel()
	for name, flow := range map[string]Flow{
		"flow-empty": {},
		"flow": {Columns: [3][]FlowNode{{{"203.0.113.24", ""}, {"<agent>", ""}},
			{{"Namespace demo", "2"}, {"Namespace prod", "7, 3/s"}, {strings.Repeat("ü", 60), ""}}, {{"eu-1", ""}}},
			Links: [2][]FlowLink{{{0, 0, "ok", 3}, {1, 1, "broken", math.NaN()}, {7, 0, "ok", 1}, {-1, 0, "ok", 1}},
				{{0, 0, "idle", 0}, {1, 0, "ok", math.Inf(1)}}}},
	} {
		file, got := filepath.Join("testdata", name+".svg"), string(flow.SVG())+"\n"
		if *update {
			must.Succeed(t, os.WriteFile(file, []byte(got), 0o644))
			continue
		}
		want, err := os.ReadFile(file)
		must.Succeed(t, err)
		if got != string(want) {
			t.Errorf("%s: got\n%s\nwant (-update writes it)\n%s", name, got, want)
		}
		checkXML(t, 0, got)
		if strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
