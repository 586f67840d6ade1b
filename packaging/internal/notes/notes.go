// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notes writes the notes of a release: the section of its version in CHANGELOG.md. A
// version without a section, or without a list of its changes in short, is refused before anything
// is built.
package notes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

const file = "release-notes.md"

// Write writes release-notes.md.
func Write(_ context.Context, r *release.Release) error {
	text, err := Section(r)
	if err != nil {
		return err
	}
	text = fmt.Sprintf("# Fairlead %s\n\nCommit %s of %s.\n\n%s\n", r.Version, r.Commit,
		r.Time.Format("2006-01-02"), text)
	return os.WriteFile(r.Path(file), []byte(text), 0o644)
}

// released is the heading of a version's section, as Keep a Changelog has it.
var released = regexp.MustCompile(`^## \[(\S+)\] - \d{4}-\d{2}-\d{2}$`)

// Changes returns the release in short: the items of the list with which the version's section in
// CHANGELOG.md begins, above the headings with every change, each on one line.
func Changes(r *release.Release) ([]string, error) {
	text, err := Section(r)
	if err != nil {
		return nil, err
	}
	var list []string
	short, _, _ := strings.Cut("\n"+text, "\n#")
	for line := range strings.Lines(short) {
		item, begins := strings.CutPrefix(line, "* ")
		switch {
		case begins:
			list = append(list, strings.TrimSpace(item))
		case strings.HasPrefix(line, "  ") && len(list) > 0:
			list[len(list)-1] += " " + strings.TrimSpace(line)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	return nil, fmt.Errorf("the section of version %s in CHANGELOG.md does not begin with a list of its changes in "+
		"short, which Artifact Hub shows: give it one above its first heading, and commit", r.Version)
}

// Section returns the text of the version's section in CHANGELOG.md without its heading; that of
// "Unreleased" when the release asks for it.
func Section(r *release.Release) (string, error) {
	name := filepath.Join(r.Source, "CHANGELOG.md")
	changelog, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	inside := false
	for line := range strings.Lines(string(changelog)) {
		if strings.HasPrefix(line, "## ") {
			inside = matches(strings.TrimSpace(line), r)
			continue
		}
		if inside {
			text.WriteString(line)
		}
	}
	section := strings.TrimSpace(text.String())
	if section == "" {
		return "", fmt.Errorf("CHANGELOG.md has no section of version %s, or an empty one: give it one with the "+
			"heading `## [%s] - YYYY-MM-DD`, and commit", r.Version, r.Version)
	}
	return section, nil
}

func matches(heading string, r *release.Release) bool {
	if r.Unreleased {
		return heading == "## [Unreleased]"
	}
	found := released.FindStringSubmatch(heading)
	return found != nil && found[1] == r.Version
}
