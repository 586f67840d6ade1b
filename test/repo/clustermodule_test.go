// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"strings"
	"testing"
)

// TestClusterModule_SharesVersions checks that the product and the test cluster take a module in the
// same version: a fifth of what `make demo` compiles would otherwise be compiled twice.
func TestClusterModule_SharesVersions(t *testing.T) {
	t.Parallel()
	product, cluster := requirements(t, "go.mod"), requirements(t, "test/cluster/go.mod")
	shared := 0
	for module, version := range product {
		other := cluster[module]
		if other == "" {
			continue
		}
		shared++
		if other != version {
			t.Errorf("%s is %s in go.mod and %s in test/cluster/go.mod: take the higher one in both", module, version,
				other)
		}
	}
	if shared < 50 {
		t.Errorf("go.mod and test/cluster/go.mod have %d modules in common, want the 50 and more of Kubernetes", shared)
	}
}

// requirements returns the version of each module that a go.mod file requires, indirectly, too.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for line := range strings.Lines(string(read(t, file))) {
		if f := strings.Fields(line); len(f) >= 2 && strings.HasPrefix(line, "\t") && strings.HasPrefix(f[1], "v") {
			versions[f[0]] = f[1]
		}
	}
	return versions
}
