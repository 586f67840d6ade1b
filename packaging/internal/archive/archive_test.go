// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/packaging/internal/archive"
	"github.com/fairlead-dev/fairlead/packaging/internal/binaries"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
)

// build writes the archives of a new checkout in a folder of its own.
func build(t *testing.T, platforms ...string) *release.Release {
	t.Helper()
	r := releasetest.Begin(t, platforms...)
	releasetest.WriteFile(t, r.BuildPath("man", "fairlead", "fairlead.1"), ".TH FAIRLEAD 1\n")
	releasetest.WriteFile(t, r.Path(release.ThirdPartyLicenses), "licences\n")
	releasetest.WriteFile(t, r.BuildPath("completions", "fairlead", "fairlead.bash"), "complete\n")
	for _, write := range []func() error{
		func() error { return binaries.Write(t.Context(), r) },
		func() error { return archive.Write(t.Context(), r) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestWrite_PacksTheProgramAndItsDocuments(t *testing.T) {
	t.Parallel()
	r := build(t, runtime.GOOS+"/"+runtime.GOARCH, "windows/arm64")
	docs := []string{"LICENSE", "README.md", "THIRD_PARTY_LICENSES.txt", "completions/fairlead.bash"}
	p := release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	dir := t.TempDir()
	got := extractTar(t, r.Path(r.Archive("fairlead", p)), dir)
	if want := append(slices.Clone(docs), "fairlead", "man/fairlead.1"); !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "fairlead")).CombinedOutput()
	if string(out) != "fairlead version 0.2.0 "+r.Commit+"\n" || err != nil {
		t.Errorf("the program of the archive printed %q, %v", out, err)
	}
	got = zipNames(t, r.Path("fairlead_0.2.0_windows_arm64.zip"))
	if want := append(slices.Clone(docs), "fairlead.exe", "man/fairlead.1"); !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	if _, err := os.Stat(r.Path("fairlead-server_0.2.0_windows_arm64.zip")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a server for Windows: %v", err)
	}
}

// Two checkouts in different folders, built with files of different times and modes, give equal
// archives.
func TestWrite_GivesEqualBytes(t *testing.T) {
	t.Parallel()
	platforms := []string{runtime.GOOS + "/" + runtime.GOARCH, "windows/arm64"}
	a, b := build(t, platforms...), build(t, platforms...)
	names, err := filepath.Glob(a.Path("fairlead*"))
	if err != nil || len(names) != 4 {
		t.Fatalf("archives %v, %v", names, err)
	}
	for _, name := range names {
		first, errA := os.ReadFile(name)
		second, errB := os.ReadFile(b.Path(filepath.Base(name)))
		if errA != nil || errB != nil || !bytes.Equal(first, second) {
			t.Errorf("%s differs between two builds (%v, %v)", filepath.Base(name), errA, errB)
		}
	}
}

// extractTar unpacks an archive and returns the names of its files, as they follow each other.
func extractTar(t *testing.T, name, dir string) []string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s: owner %d %q, group %d %q", h.Name, h.Uid, h.Uname, h.Gid, h.Gname)
		}
		if got := h.ModTime.UTC().Format("2006-01-02T15:04:05"); got != "2026-11-22T10:20:30" {
			t.Errorf("%s: time %s", h.Name, got)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		releasetest.WriteFile(t, filepath.Join(dir, h.Name), string(content))
		if err := os.Chmod(filepath.Join(dir, h.Name), os.FileMode(h.Mode)); err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

func zipNames(t *testing.T, name string) []string {
	t.Helper()
	r, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var names []string
	for _, f := range r.File {
		names = append(names, f.Name)
		if mode := f.Mode().Perm(); (mode == 0o755) != strings.HasSuffix(f.Name, ".exe") {
			t.Errorf("%s: mode %v", f.Name, mode)
		}
	}
	return names
}
