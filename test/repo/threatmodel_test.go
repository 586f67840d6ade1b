// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"strings"
	"testing"
)

// TestThreatModel_NamesTests checks that each threat of docs/threat-model.md names tests, and
// that those exist.
func TestThreatModel_NamesTests(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	for _, file := range tracked(t, "*_test.go") {
		for _, found := range testFunc.FindAllSubmatch(read(t, file), -1) {
			tests[string(found[1])] = true
		}
	}
	threats := 0
	_, text, _ := strings.Cut(string(read(t, "docs/threat-model.md")), "\n## Boundaries\n")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Threat ") {
			continue
		}
		threats++
		cells := strings.Split(line, "|")
		names := testName.FindAllString(cells[len(cells)-2], -1)
		if len(cells) != 5 || len(names) == 0 {
			t.Errorf("docs/threat-model.md: no test proves what protects: %s", line)
		}
		for _, name := range names {
			if !tests[name] {
				t.Errorf("docs/threat-model.md: there is no test %s", name)
			}
		}
	}
	if threats < 20 {
		t.Errorf("docs/threat-model.md: found only %d threats", threats)
	}
}
