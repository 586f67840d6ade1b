// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package notes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/packaging/internal/notes"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
)

func TestSection_SelectsVersion(t *testing.T) {
	t.Parallel()
	r := releasetest.Begin(t)
	for _, c := range []struct {
		r    release.Release
		want string
	}{
		{release.Release{Source: r.Source, Version: "0.2.0"}, "* second"},
		{release.Release{Source: r.Source, Version: "0.1.0"}, "* first"},
		{release.Release{Source: r.Source, Version: "0.9.0", Unreleased: true}, "* not yet"},
	} {
		if got, err := notes.Section(&c.r); got != c.want || err != nil {
			t.Errorf("version %s: %q, %v; want %q", c.r.Version, got, err, c.want)
		}
	}
	for _, version := range []string{"0.3.0", "0.2", "0.2.0-rc.1", "Unreleased"} {
		_, err := notes.Section(&release.Release{Source: r.Source, Version: version})
		if err == nil || !strings.Contains(err.Error(), "## ["+version+"] - YYYY-MM-DD") {
			t.Errorf("version %s without a section: %v", version, err)
		}
	}
}

func TestChanges_AreTheListAboveTheHeadings(t *testing.T) {
	t.Parallel()
	checkout := t.TempDir()
	r := &release.Release{Source: checkout, Version: "0.2.0"}
	for section, want := range map[string][]string{
		"Foreword.\n\n* One thing,\n  on two lines.\n* **Another**: x.\n\n### Added\n\n* a detail\n": {
			"One thing, on two lines.", "**Another**: x."},
		"* short":                   {"short"},
		"### Added\n\n* a detail\n": nil,
	} {
		releasetest.WriteFile(t, filepath.Join(checkout, "CHANGELOG.md"), "## [0.2.0] - 2026-11-23\n\n"+section)
		got, err := notes.Changes(r)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %q, %v; want %q", section, got, err, want)
		}
		if want == nil && !strings.Contains(err.Error(), "above its first heading") {
			t.Errorf("%q: %v", section, err)
		}
	}
}

// The charts show a release in a few lines, whatever the changelog counts up below them.
func TestChanges_OfTheNextReleaseAreShort(t *testing.T) {
	t.Parallel()
	list, err := notes.Changes(&release.Release{Source: "../../..", Unreleased: true})
	if err != nil || len(list) > 15 || len(strings.Join(list, "")) > 2000 {
		t.Errorf("%d lines of %d bytes, %v; want at most 15, of 2000", len(list), len(strings.Join(list, "")), err)
	}
}

func TestWrite_NamesVersionAndCommit(t *testing.T) {
	t.Parallel()
	r := releasetest.Begin(t)
	if err := notes.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(r.Path("release-notes.md"))
	want := "# Fairlead 0.2.0\n\nCommit " + r.Commit + " of 2026-11-22.\n\n* second\n"
	if string(got) != want || err != nil {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
