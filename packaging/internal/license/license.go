// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package license finds the licences of the modules that the programs of a release are built from,
// in the module cache, and refuses those that are unknown or not permitted. It writes licenses.csv
// and THIRD_PARTY_LICENSES.txt; package sbom takes the names of the licences from it.
package license

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// permitted are the licences, by their SPDX identifiers, under which a module may be part of a
// program: each allows use and distribution in a binary under another licence.
var permitted = []string{
	"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-2-Clause-Views", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0",
	"MPL-2.0", "Unlicense", "Zlib",
}

// exception is a file that licensecheck does not recognise, and whose text was read.
type exception struct {
	sha256 string // of the text that was read
	id     string // SPDX identifier, or "" when the text licenses nothing that is in a program
	reason string
}

// exceptions returns what is known about files, by MODULE/FILE.
func exceptions() map[string]exception {
	return map[string]exception{
		"github.com/docker/go-metrics/LICENSE.docs": {
			sha256: "a1d1adec3ba691ef6e377a78bbe9e9e2501f2f4a1723d08857da1ac6564e4fed",
			reason: "it licenses documentation, which is in no program"},
		"github.com/opencontainers/go-digest/LICENSE.docs": {
			sha256: "a1d1adec3ba691ef6e377a78bbe9e9e2501f2f4a1723d08857da1ac6564e4fed",
			reason: "it licenses documentation, which is in no program"},
		"modernc.org/memory/LICENSE-LOGO": {
			sha256: "5ae5bee3072a841376451b48d8cfcec7188e10543926d5870828d36c8a750dc5",
			reason: "it licenses a picture, which is in no program"},
		"modernc.org/sqlite/LICENSE-SQLITE": {
			sha256: "8438c9c89b849131ead81d5435cb97fcf052df5b0b286dda8a2d4c29e6cb3fd0",
			id:     "LicenseRef-SQLite-Public-Domain", reason: "SQLite is in the public domain"},
	}
}

// minCoverage is how much of a licence file, in percent, must be the text of known licences. The
// rest is names, years, and sentences that say which files a licence is about.
const minCoverage = 40

// licenseFile matches the names of files that hold the terms of a module.
var licenseFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|unlicense)`)

// noticeFile matches files that must be passed on, and that are no licence.
var noticeFile = regexp.MustCompile(`(?i)^(notice|patents)`)

// Text is a file of a module that must be passed on with a program.
type Text struct {
	Name    string
	Content []byte
}

// Licenses are the terms of one module.
type Licenses struct {
	IDs   []string // SPDX identifiers, sorted
	Texts []Text   // sorted by name
}

// Expression returns the identifiers as one SPDX expression; all of them apply.
func (l Licenses) Expression() string { return strings.Join(l.IDs, " AND ") }

// read returns the terms in the folder of a module. Files of folders below are not read.
func read(module, dir string) (Licenses, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Licenses{}, fmt.Errorf("module %s is not in the module cache: %w", module, err)
	}
	var found Licenses
	for _, entry := range entries {
		terms := licenseFile.MatchString(entry.Name())
		source := filepath.Ext(entry.Name()) == ".go"
		if !entry.Type().IsRegular() || source || !terms && !noticeFile.MatchString(entry.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return Licenses{}, err
		}
		found.Texts = append(found.Texts, Text{Name: entry.Name(), Content: content})
		if !terms {
			continue
		}
		ids, err := identify(module+"/"+entry.Name(), content)
		if err != nil {
			return Licenses{}, err
		}
		found.IDs = append(found.IDs, ids...)
	}
	slices.Sort(found.IDs)
	found.IDs = slices.Compact(found.IDs)
	if len(found.IDs) == 0 {
		return Licenses{}, fmt.Errorf("module %s has no file with a licence", module)
	}
	return found, nil
}

// identify returns the SPDX identifiers of the licences in a file.
func identify(file string, content []byte) ([]string, error) {
	if known, ok := exceptions()[file]; ok {
		digest := sha256.Sum256(content)
		if hex.EncodeToString(digest[:]) != known.sha256 {
			return nil, fmt.Errorf("%s was changed since its text was read: read it, and renew the exception", file)
		}
		if known.id == "" {
			return nil, nil
		}
		return []string{known.id}, nil
	}
	coverage := licensecheck.Scan(content)
	var ids []string
	for _, match := range coverage.Match {
		if !slices.Contains(permitted, match.ID) {
			return nil, fmt.Errorf("%s: the licence %s is not one of the permitted ones: %s",
				file, match.ID, strings.Join(permitted, ", "))
		}
		ids = append(ids, match.ID)
	}
	if len(ids) == 0 || coverage.Percent < minCoverage {
		return nil, fmt.Errorf("%s: %.0f%% of the text is a known licence: read it, and make it an exception or do "+
			"without the module", file, coverage.Percent)
	}
	return ids, nil
}
