// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package linuxpackage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestWrite_RpmQueried checks what rpm reads in a package.
func TestWrite_RpmQueried(t *testing.T) {
	t.Parallel()
	need(t, "rpm")
	r := write(t, "0.2.0-rc.1")
	for arch, name := range map[string]string{"x86_64": "fairlead-server-0.2.0-rc.1-1.x86_64.rpm",
		"aarch64": "fairlead-server-0.2.0-rc.1-1.aarch64.rpm"} {
		head := query(t, r.Path(name), "--queryformat",
			"%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{LICENSE} %{BUILDHOST} %{BUILDTIME}")
		if want := "fairlead-server 0.2.0~rc.1 1 " + arch + " Apache-2.0 localhost 1000000000"; head != want {
			t.Errorf("%s: %s, want %s", name, head, want)
		}
		if config := query(t, r.Path(name), "--configfiles"); config != "/etc/fairlead/server.env" {
			t.Errorf("%s: settings %s", name, config)
		}
		for _, file := range []string{"/usr/bin/fairlead-server", "/usr/share/man/man1/fairlead-server-api.1.gz",
			"/usr/lib/systemd/system/fairlead-server.service", "/usr/lib/sysusers.d/fairlead-server.conf",
			"/usr/share/licenses/fairlead-server/LICENSE", "/usr/share/doc/fairlead-server/examples/replica.conf"} {
			if !strings.Contains(query(t, r.Path(name), "--list"), file) {
				t.Errorf("%s: no %s", name, file)
			}
		}
	}
}

func query(t *testing.T, path string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "rpm", append(args, "--query", "--package", path)...).CombinedOutput()
	if err != nil {
		t.Fatalf("rpm %v %s: %v %s", args, path, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestWrite_ApkStructure reads a package as apk does: a compressed tar with .PKGINFO, which has the
// digest of a second one with the files.
func TestWrite_ApkStructure(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(write(t, "0.2.0-rc.1").Path("fairlead_0.2.0-rc.1_aarch64.apk"))
	if err != nil {
		t.Fatal(err)
	}
	source := bytes.NewReader(content)
	control := member(t, source)
	rest := content[len(content)-source.Len():]
	digest := sha256.Sum256(rest)
	info := control[".PKGINFO"]
	for _, line := range []string{"pkgname = fairlead\n", "pkgver = 0.2.0_rc1\n", "arch = aarch64\n",
		"license = Apache-2.0\n", "datahash = " + hex.EncodeToString(digest[:]) + "\n"} {
		if !strings.Contains(info, line) {
			t.Errorf("no %q in .PKGINFO:\n%s", line, info)
		}
	}
	data := member(t, source)
	if data["usr/bin/fairlead"] != "#!/bin/sh\necho fairlead 0.2.0-rc.1\n" {
		t.Errorf("program %q", data["usr/bin/fairlead"])
	}
	for _, name := range []string{"usr/share/man/man1/fairlead.1.gz", "usr/share/licenses/fairlead/LICENSE",
		"usr/share/zsh/site-functions/_fairlead"} {
		if data[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	for name := range data {
		if strings.Contains(name, "systemd") || strings.HasPrefix(name, "etc/") {
			t.Errorf("%s, which nothing of Alpine reads", name)
		}
	}
}

// member reads the next gzip member of source, a tar, and leaves source behind it.
func member(t *testing.T, source *bytes.Reader) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(source)
	if err != nil {
		t.Fatal(err)
	}
	compressed.Multistream(false)
	text, err := io.ReadAll(compressed)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(bytes.NewReader(text)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(commitTime) && header.Name != ".PKGINFO" {
			t.Errorf("%s has the time %v", header.Name, header.ModTime)
		}
		if files[header.Name], err = readAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func readAll(r io.Reader) (string, error) {
	text, err := io.ReadAll(r)
	return string(text), err
}

func TestApkVersion_SpellsPrereleases(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"0.2.0": "0.2.0", "1.0.0-rc.1": "1.0.0_rc1",
		"1.0.0-beta2": "1.0.0_beta2", "1.0.0-alpha": "1.0.0_alpha", "1.0.0-dev.5": "1.0.0_pre",
		"1.0.0-rc.1-x": "1.0.0_pre"} {
		if got := apkVersion(version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
