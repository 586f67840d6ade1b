// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package checksums_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/packaging/internal/checksums"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
)

func TestWrite_ListsEveryFileForSha256sum(t *testing.T) {
	t.Parallel()
	r := releasetest.Begin(t)
	releasetest.WriteFile(t, r.Path("b.tar.gz"), "bytes")
	releasetest.WriteFile(t, r.Path("a.tgz"), "")
	releasetest.WriteFile(t, r.Path(r.Signature()), "{}")
	for range 2 { // the second time there is a checksums.txt already
		if err := checksums.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(r.Path(release.Checksums))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], "  a.tgz") || !strings.HasSuffix(lines[1], "  b.tar.gz") {
		t.Errorf("checksums.txt:\n%s", got)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", release.Checksums)
	check.Dir = r.Dist
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum --check: %v: %s", err, out)
	}
}
