// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestDemoCluster_TakesTheReleasesCluster checks where `make demo` has its Kubernetes from, with
// programs that print what they were called with and a folder in the place of the download's.
func TestDemoCluster_TakesTheReleasesCluster(t *testing.T) {
	t.Parallel()
	const file = "fairlead_0.2.0_cluster_linux_amd64.tar.gz"
	sum := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte("built")), file)
	for _, tc := range []struct {
		name, version, env, sums, want string
		fails                          bool
	}{
		{name: "release", version: "0.2.0", sums: "0  other\n" + sum,
			want: "build --from STATE/" + file + "\nup --name demo\n"},
		{name: "no release", version: "0.2.0-dev", sums: sum, want: "build\nup --name demo\n"},
		{name: "no network", version: "0.2.0", want: "compiling Kubernetes: " + file + " is not to be had from " +
			"https://github.com/fairlead-dev/fairlead/releases/download/v0.2.0\nbuild\nup --name demo\n"},
		{name: "not in the release", version: "0.2.0", sums: "0  other\n", want: "is not to be had from"},
		{name: "broken download", version: "0.2.0", sums: "0  fairlead_0.2.0_cluster_linux_arm64.tar.gz\n",
			env: "ARCH=arm64", want: "/fairlead_0.2.0_cluster_linux_arm64.tar.gz failed\nbuild\nup --name demo\n"},
		{name: "another checksum", version: "0.2.0", sums: strings.Repeat("0", 64) + "  " + file + "\n",
			want: "die STATE/" + file + " is not the file that https://", fails: true},
		{name: "another Go", version: "0.2.0", sums: sum, env: "GOVERSION=go1.99.0", want: "GOTOOLCHAIN=go1"},
		{name: "all is built", version: "0.2.0", sums: sum, env: "PARTS=.", want: "build\nup --name demo\n"},
		{name: "given file", version: "0.2.0", sums: sum, env: "FAIRLEAD_DEMO_CLUSTER=mine.tar.gz",
			want: "build --from mine.tar.gz\nup --name demo\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bin, site, state := t.TempDir(), t.TempDir(), t.TempDir()
			for name, script := range map[string]string{
				"make": "",
				"go": `case "$*" in "env GOARCH") echo "${ARCH:-amd64}" ;;
*GOVERSION) echo "${GOVERSION:-go$(sed -n 's/^go //p' test/cluster/go.mod)}" ;; esac`,
				"curl": `while [ $# -gt 2 ]; do [ "$1" = -o ] && to=$2; shift; done
cp "$SITE/${2##*/}" "$to" 2>/dev/null || exit 22`,
				"cluster": `case "$*" in *--print-dir) echo "${PARTS:-/nonexistent}" ;; *) echo "$*" ;; esac`,
			} {
				must.Succeed(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
			}
			must.Succeed(t, os.WriteFile(filepath.Join(site, file), []byte("built"), 0o600))
			if tc.sums != "" {
				must.Succeed(t, os.WriteFile(filepath.Join(site, "checksums.txt"), []byte(tc.sums), 0o600))
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
				`step() { :; }; die() { echo "die $*"; exit 1; }; . hack/demo-cluster.sh; prepare`)
			cmd.Dir = "../.."
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CLUSTER="+filepath.Join(bin, "cluster"),
				"SITE="+site, "STATE="+state, "VERSION="+tc.version, "GOVERSION=", "PARTS=", "FAIRLEAD_DEMO_CLUSTER=")
			if tc.env != "" {
				cmd.Env = append(cmd.Env, tc.env)
			}
			out, err := cmd.CombinedOutput()
			said := strings.ReplaceAll(string(out), state, "STATE")
			if (err != nil) != tc.fails || !strings.Contains(said, tc.want) {
				t.Errorf("%v\n%swant %q", err, said, tc.want)
			}
			if left, err := filepath.Glob(filepath.Join(state, "fairlead_*")); !tc.fails && len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}
