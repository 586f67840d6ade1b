// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import "testing"

func TestIsTopLevelDomain(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]bool{
		"com": true, "dev": true, "io": true, "de": true, "uk": true, "app": true, "xn--p1ai": true,
		"demo": false, "prod": false, "default": false, "kube-system": false, "team-a": false, "co-uk": false,
		"internal": false, "1": false,
	} {
		if got := isTopLevelDomain(namespace); got != want {
			t.Errorf("%s: got %v", namespace, got)
		}
	}
}
