// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestClusterDomain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ given, resolv, want string }{
		{"example.org", "search demo.svc.cluster.local svc.cluster.local cluster.local", "example.org"},
		{"", "nameserver 10.96.0.10\nsearch demo.svc.corp.example. svc.corp.example. corp.example.\noptions ndots:5\n",
			"corp.example"},
		{"", "search lan\n", "cluster.local"},
		{"", "", "cluster.local"},
	} {
		file := filepath.Join(t.TempDir(), "resolv.conf")
		must.Succeed(t, os.WriteFile(file, []byte(tc.resolv), 0o600))
		got, err := ClusterDomain(tc.given, file)
		if err != nil || got != tc.want {
			t.Errorf("%q, %q: got %q, %v, want %q", tc.given, tc.resolv, got, err, tc.want)
		}
	}
}
