// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"regexp"
	"testing"
)

// TestVersion_NamesTheImagesThatMakeImageWrites requires that the charts of a checkout install the
// images that its Makefile makes, and that the pages which name such an image name that one.
func TestVersion_NamesTheImagesThatMakeImageWrites(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`(?m)^VERSION \?= (.+)$`).FindSubmatch(read(t, "Makefile"))
	if made == nil {
		t.Fatal("the Makefile has no default VERSION")
	}
	for file, pattern := range map[string]string{
		"charts/fairlead-operator/Chart.yaml": `(?m)^(?:version|appVersion): (.+)$`,
		"charts/fairlead-server/Chart.yaml":   `(?m)^(?:version|appVersion): (.+)$`,
		"docs/start/compose.yaml":             `image: ghcr.io/fairlead-dev/fairlead-(?:server|agent):(\S+)`,
		"docs/start/server.md":                `fairlead-server:(\d\S*)`,
	} {
		found := regexp.MustCompile(pattern).FindAllSubmatch(read(t, file), -1)
		if len(found) == 0 {
			t.Errorf("%s names no version", file)
		}
		for _, version := range found {
			if string(version[1]) != string(made[1]) {
				t.Errorf("%s names %s, and make image makes %s", file, version[1], made[1])
			}
		}
	}
}
