// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
)

func TestOpen_ReadsTheCommit(t *testing.T) {
	t.Parallel()
	dir := releasetest.Checkout(t)
	releasetest.Git(t, dir, "tag", "v0.2.0") // the tag of this commit is no obstacle
	r, err := release.Open(t.Context(), releasetest.Options(t, filepath.Join(dir, "cmd")))
	if err != nil {
		t.Fatal(err)
	}
	if r.Version != "0.2.0" || r.Commit != releasetest.Git(t, dir, "rev-parse", "HEAD") || r.Source != dir {
		t.Errorf("version %s, commit %s, source %s", r.Version, r.Commit, r.Source)
	}
	if want := time.Date(2026, 11, 22, 10, 20, 30, 0, time.UTC); !r.Time.Equal(want) || r.Time.Location() != time.UTC {
		t.Errorf("time %v, want %v", r.Time, want)
	}
	if len(r.Platforms) != 6 {
		t.Errorf("platforms %v", r.Platforms)
	}
}

// Each reason not to release is one sentence that names what is wrong and the remedy.
func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string, o *release.Options)
		want   []string
	}{
		{"no version", func(_ *testing.T, _ string, o *release.Options) { o.Version = "" },
			[]string{`version ""`, "as v0.2.0"}},
		{"no v", func(_ *testing.T, _ string, o *release.Options) { o.Version = "0.2.0" },
			[]string{`version "0.2.0"`, "with a v"}},
		{"two numbers", func(_ *testing.T, _ string, o *release.Options) { o.Version = "v0.2" },
			[]string{`version "v0.2"`, "semantic version"}},
		{"leading zero", func(_ *testing.T, _ string, o *release.Options) { o.Version = "v0.02.0" },
			[]string{`version "v0.02.0"`}},
		{"build metadata", func(_ *testing.T, _ string, o *release.Options) { o.Version = "v0.2.0+linux" },
			[]string{"without build metadata"}},
		{"unknown platform", func(_ *testing.T, _ string, o *release.Options) { o.Platforms = "linux/amd64,plan9/386" },
			[]string{`platform "plan9/386"`, "windows/arm64"}},
		{"no checkout", func(t *testing.T, _ string, o *release.Options) { o.Source = t.TempDir() },
			[]string{"git checkout"}},
		{"changed file", func(t *testing.T, dir string, _ *release.Options) {
			releasetest.WriteFile(t, filepath.Join(dir, "README.md"), "changed")
		}, []string{"dirty", "README.md", "commit or remove"}},
		{"new file", func(t *testing.T, dir string, _ *release.Options) {
			releasetest.WriteFile(t, filepath.Join(dir, "cmd/fairlead/more.go"), "package main\n")
		}, []string{"dirty", "cmd/fairlead/more.go"}},
		{"tag of another commit", func(t *testing.T, dir string, _ *release.Options) {
			releasetest.Git(t, dir, "tag", "--annotate", "--message", "second", "v0.2.0")
			releasetest.WriteFile(t, filepath.Join(dir, "README.md"), "changed")
			releasetest.Commit(t, dir, "more")
		}, []string{"version 0.2.0 exists", "check out the tag", "next version"}},
		{"dist of another version", func(t *testing.T, _ string, o *release.Options) {
			releasetest.WriteFile(t, filepath.Join(o.Dist, "fairlead_0.1.0_linux_amd64.tar.gz"), "")
			releasetest.WriteFile(t, filepath.Join(o.Dist, release.Checksums), "0  fairlead_0.1.0_linux_amd64.tar.gz\n")
		}, []string{"fairlead_0.1.0_linux_amd64.tar.gz", "not of version 0.2.0", "make clean", "DIST="}},
		{"dist of something else", func(t *testing.T, _ string, o *release.Options) {
			releasetest.WriteFile(t, filepath.Join(o.Dist, "bench.json"), "{}")
		}, []string{"bench.json", "not of version"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := releasetest.Checkout(t)
			o := releasetest.Options(t, dir)
			c.change(t, dir, &o)
			_, err := release.Open(t.Context(), o)
			if err == nil {
				t.Fatal("it was not refused")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
		})
	}
}

// A build may be repeated, whether the one before ended or not; only what it wrote is replaced.
func TestBegin_ReplacesTheSameVersion(t *testing.T) {
	t.Parallel()
	r := releasetest.Begin(t)
	half := r.Path("fairlead_0.2.0_linux_amd64.tar.gz")
	releasetest.WriteFile(t, half, "half")
	if err := r.Begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("a file of the build before is still there: %v", err)
	}
	releasetest.WriteFile(t, half, "whole")
	releasetest.WriteFile(t, r.Path(release.Checksums), "0  fairlead_0.2.0_linux_amd64.tar.gz\n")
	releasetest.WriteFile(t, r.Path(r.Signature()), "{}")
	if err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	releasetest.WriteFile(t, r.Path("notes.txt"), "of a person")
	if err := r.Begin(); err == nil || !strings.Contains(err.Error(), "notes.txt") {
		t.Errorf("Begin with a file that is not the release's: %v", err)
	}
	if err := os.Remove(r.Path("notes.txt")); err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(); err != nil {
		t.Error(err)
	}
}

func TestRelease_PlatformsOf(t *testing.T) {
	t.Parallel()
	r := &release.Release{Platforms: release.Platforms()}
	for program, want := range map[string]int{"fairlead": 6, "fairlead-server": 4, "fairlead-operator": 2} {
		if got := r.PlatformsOf(program); len(got) != want {
			t.Errorf("%s: %v, want %d", program, got, want)
		}
	}
}
