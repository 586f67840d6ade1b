// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"strings"
	"testing"
)

// TestThreatModel_NamesTests checks that each threat of docs/secure/threat-model.md names a test;
// that the tests exist is checked for all documents.
func TestThreatModel_NamesTests(t *testing.T) {
	t.Parallel()
	threats := 0
	_, text, _ := strings.Cut(string(read(t, "docs/secure/threat-model.md")), "\n## Boundaries\n")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Threat ") {
			continue
		}
		threats++
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !testName.MatchString(cells[3]) {
			t.Errorf("docs/secure/threat-model.md: no test proves what protects: %s", line)
		}
	}
	if threats < 20 {
		t.Errorf("docs/secure/threat-model.md: found only %d threats", threats)
	}
}
