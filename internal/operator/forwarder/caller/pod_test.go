// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package caller

import (
	"strings"
	"testing"
)

func TestLabels_Lookup(t *testing.T) {
	t.Parallel()
	all := map[string]string{"app": "web", "app2": "", "a": "app", "example.com/app": "x"}
	l := NewLabels(all)
	for key, want := range all {
		if value, exists := l.Lookup(key); value != want || !exists {
			t.Errorf("%s: %q, %v", key, value, exists)
		}
	}
	for _, key := range []string{"", "web", "ap", "x"} {
		if value, exists := l.Lookup(key); exists {
			t.Errorf("%q: %q", key, value)
		}
	}
	if l != NewLabels(map[string]string{"example.com/app": "x", "a": "app", "app2": "", "app": "web"}) {
		t.Error("equal labels are not shared")
	}
	if _, exists := NewLabels(nil).Lookup("app"); exists || !NewLabels(nil).Known() {
		t.Error("a pod without labels has known labels: none")
	}
	if l := NewLabels(map[string]string{"app": "web", "long": strings.Repeat("x", maxLabels)}); l.Known() {
		t.Error("a part of the labels is known")
	} else if _, exists := l.Lookup("app"); exists {
		t.Error("labels that are not known have one")
	}
}
