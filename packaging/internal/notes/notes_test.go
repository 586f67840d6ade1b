// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package notes_test

import (
	"os"
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
