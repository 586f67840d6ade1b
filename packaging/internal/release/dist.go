// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const (
	buildFolder = ".build"
	versionFile = "version" // in buildFolder: the version that is being made

	// Checksums is the name of the file that lists every other file of a release, and its digest.
	Checksums = "checksums.txt"
	// ThirdPartyLicenses is the name of the file with the licences of all modules of the programs,
	// which archives and packages hold, too.
	ThirdPartyLicenses = "THIRD_PARTY_LICENSES.txt"
)

// Signature returns the name of the release's signature, which checksums.txt does not list.
func (r *Release) Signature() string { return "fairlead_" + r.Version + ".sigstore.json" }

// Begin makes an empty Dist: files of an earlier build of the same version are removed.
func (r *Release) Begin() error {
	if err := r.checkDist(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.Dist); err != nil {
		return err
	}
	if err := os.MkdirAll(r.BuildPath(), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.BuildPath(versionFile), []byte(r.Version), 0o644)
}

// Finish removes the intermediate files.
func (r *Release) Finish() error { return os.RemoveAll(r.BuildPath()) }

// checkDist refuses a Dist with files that are not of this version: of another one, or of no
// release at all.
func (r *Release) checkDist() error {
	entries, err := os.ReadDir(r.Dist)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if begun, err := os.ReadFile(r.BuildPath(versionFile)); err == nil && string(begun) == r.Version {
		return nil // a build of this version that did not end
	}
	own := map[string]bool{Checksums: true, r.Signature(): true}
	if list, err := os.ReadFile(r.Path(Checksums)); err == nil && strings.Contains(string(list), "_"+r.Version+"_") {
		for line := range strings.Lines(string(list)) {
			_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			own[name] = true
		}
	}
	for _, e := range entries {
		if !own[e.Name()] {
			return fmt.Errorf("folder %s holds %s, which is not of version %s: remove the folder (`make clean`), "+
				"or give another one with DIST=", r.Dist, e.Name(), r.Version)
		}
	}
	return nil
}
