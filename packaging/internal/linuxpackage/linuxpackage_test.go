// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package linuxpackage

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
)

// commitTime is the time of every file.
var commitTime = time.Unix(1000000000, 0).UTC()

// write writes the packages of a version for Linux, with shell scripts for programs, and returns
// the release.
func write(t *testing.T, version string) *release.Release {
	t.Helper()
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release.Release{Version: version, Source: source, Dist: t.TempDir(), Time: commitTime,
		Platforms: []release.Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"},
			{OS: "darwin", Arch: "arm64"}}}
	releasetest.WriteFile(t, r.Path(release.ThirdPartyLicenses), "licences\n")
	for _, program := range []string{"fairlead", "fairlead-server"} {
		for _, p := range r.Platforms {
			releasetest.WriteFile(t, r.Binary(program, p), "#!/bin/sh\necho "+program+" "+version+"\n")
		}
		for _, page := range []string{"", "-api"} {
			releasetest.WriteFile(t, r.BuildPath("man", program, program+page+".1"), ".TH FAIRLEAD 1\n.SH NAME\n")
		}
		for _, suffix := range []string{".bash", ".zsh", ".fish", ".ps1"} {
			releasetest.WriteFile(t, r.BuildPath("completions", program, program+suffix), "# "+suffix+"\n")
		}
	}
	if err := Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// sums returns the digest of each file in dist/, by name.
func sums(t *testing.T, r *release.Release) map[string][32]byte {
	t.Helper()
	all := map[string][32]byte{}
	found, err := filepath.Glob(r.Path("fairlead*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = sha256.Sum256(text)
	}
	return all
}

func TestWrite_SameBytesTwice(t *testing.T) {
	t.Parallel()
	first, second := sums(t, write(t, "0.2.0")), sums(t, write(t, "0.2.0"))
	var names []string
	for _, program := range []string{"fairlead", "fairlead-server"} {
		names = append(names, program+"_0.2.0_amd64.deb", program+"_0.2.0_arm64.deb",
			program+"-0.2.0-1.x86_64.rpm", program+"-0.2.0-1.aarch64.rpm",
			program+"_0.2.0_x86_64.apk", program+"_0.2.0_aarch64.apk")
	}
	for _, name := range names {
		if _, ok := first[name]; !ok || first[name] != second[name] {
			t.Errorf("%s: written %t, with the same bytes %t", name, ok, first[name] == second[name])
		}
	}
	if len(first) != len(names) {
		t.Errorf("%d packages, want %d", len(first), len(names))
	}
}

// TestWrite_DebInDebian installs, upgrades, removes and purges the packages with dpkg, in an overlay
// of this machine's own root directory: a Debian with systemd's programs, in which nothing runs.
func TestWrite_DebInDebian(t *testing.T) {
	t.Parallel()
	inOverlay(t, "deb", "dpkg", "systemd-sysusers", "systemd-analyze", "man")
}

// TestWrite_RpmInstalled does the same with the rpm of Debian.
func TestWrite_RpmInstalled(t *testing.T) {
	t.Parallel()
	inOverlay(t, "rpm", "rpm", "systemd-sysusers")
}

// inOverlay runs testdata/FORMAT.sh in an overlay of this machine's root directory, in a mount
// namespace of its own, with the packages of two versions in /packages.
func inOverlay(t *testing.T, format string, programs ...string) {
	t.Helper()
	need(t, append(programs, "unshare", "chroot")...)
	if os.Geteuid() != 0 {
		missing(t, "root")
	}
	script, err := os.ReadFile("testdata/" + format + ".sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	enter := fmt.Sprintf(`set -e
mount -t tmpfs none %[1]s
cd %[1]s && mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mkdir root/packages && cp %[2]s root/packages/
mount -t proc proc root/proc && mount -t tmpfs tmpfs root/tmp && mount --bind /dev root/dev
exec chroot root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 sh`,
		dir, strings.Join([]string{write(t, "0.1.0").Path("*." + format), write(t, "0.2.0").Path("*." + format)}, " "))
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", enter)
	cmd.Stdin = strings.NewReader(string(script))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "passed\n") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// need skips the test where a program is missing, and fails it where that may not be.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, program)
		}
	}
}

func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("FAIRLEAD_REQUIRE_PACKAGES") != "" {
		t.Fatalf("FAIRLEAD_REQUIRE_PACKAGES is set, and this machine has no %s: run hack/deps.sh", what)
	}
	t.Skipf("this machine has no %s", what)
}
