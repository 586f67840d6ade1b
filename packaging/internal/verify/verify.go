// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verify checks the folder of a release as a stranger would who has only the public key:
// the signature, every file against it, the programs inside, and, when asked, a build of the same
// commit elsewhere. It reads no network. Packages signature and artifact read for it.
package verify

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	intoto "github.com/in-toto/attestation/go/v1"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/signature"
)

// Options choose what is checked.
type Options struct {
	Dist      string // the folder of the release
	PublicKey string // file with the public key in PEM
	Rebuild   bool   // build the commit once more, and compare
	Source    string // a checkout that knows the commit; for Rebuild
	Cache     string // GOCACHE of the rebuild; empty for a new one that is removed
	Out       io.Writer
}

// check holds what the checks share; signed and source are set by the first.
type check struct {
	Options
	bundle string
	signed map[string]string // SHA-256 by name
	source signature.Source
}

// Run makes all checks in an order in which each may rely on those before: nothing is unpacked and
// no program runs before its signature is known. It prints a line for each, and returns the first
// failure, which names the file.
func Run(ctx context.Context, o Options) error {
	c := &check{Options: o}
	checks := []struct {
		name string
		run  func(context.Context) (string, error)
	}{
		{"signature", c.checkSignature},
		{"files", c.checkFiles},
		{"checksums", c.checkChecksums},
		{"archives", c.checkArchives},
		{"versions", c.checkVersions},
		{"images", c.checkImages},
		{"sboms", c.checkSBOMs},
	}
	for _, check := range checks {
		said, err := check.run(ctx)
		if err != nil {
			c.print("%-10s FAILED\n", check.name)
			return err
		}
		c.print("%-10s ok  %s\n", check.name, said)
	}
	if !o.Rebuild {
		return nil
	}
	return c.rebuild(ctx)
}

func (c *check) print(format string, args ...any) { _, _ = fmt.Fprintf(c.Out, format, args...) }

func (c *check) path(name string) string { return filepath.Join(c.Dist, name) }

// checkSignature finds the bundle and reads what it signs.
func (c *check) checkSignature(context.Context) (string, error) {
	found, err := filepath.Glob(c.path("fairlead_*.sigstore.json"))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no release in %s: it has no file fairlead_VERSION.sigstore.json; `make release` makes "+
			"one, and DIST=folder names another folder", c.Dist)
	}
	if len(found) > 1 {
		return "", fmt.Errorf("folder %s holds %d files fairlead_VERSION.sigstore.json: a release has one",
			c.Dist, len(found))
	}
	c.bundle = filepath.Base(found[0])
	statement, err := signature.Open(found[0], c.PublicKey)
	if err != nil {
		return "", err
	}
	if c.source, err = signature.ReadSource(statement); err != nil {
		return "", fmt.Errorf("%s: %w", c.bundle, err)
	}
	if want := "fairlead_" + strings.TrimPrefix(c.source.Version, "v") + ".sigstore.json"; c.bundle != want {
		return "", fmt.Errorf("%s is the signature of another release, %s", c.bundle, c.source.Version)
	}
	c.signed, err = subjects(statement)
	return fmt.Sprintf("%s: %s, commit %.12s, %s", c.bundle, c.source.Version, c.source.Commit, c.source.GoVersion), err
}

// subjects returns the digests of a statement by name.
func subjects(statement *intoto.Statement) (map[string]string, error) {
	signed := map[string]string{}
	for _, s := range statement.GetSubject() {
		digest := s.GetDigest()["sha256"]
		if _, twice := signed[s.GetName()]; twice || digest == "" || s.GetName() == "" {
			return nil, fmt.Errorf("the statement names %q twice or without a SHA-256", s.GetName())
		}
		signed[s.GetName()] = digest
	}
	return signed, nil
}

// checkFiles compares the names and digests of the folder with the signed ones.
func (c *check) checkFiles(context.Context) (string, error) {
	digests, err := signature.Digests(c.Dist, c.bundle)
	if err != nil {
		return "", err
	}
	if name := firstMissing(digests, c.signed); name != "" {
		return "", fmt.Errorf("%s is not a file of the signed release %s%s",
			name, c.source.Version, renamed(digests[name], c.signed))
	}
	for _, name := range sortedNames(c.signed) {
		switch digest, found := digests[name]; {
		case !found:
			return "", fmt.Errorf("%s is missing from %s: the signature names it", name, c.Dist)
		case digest != c.signed[name]:
			return "", fmt.Errorf("%s was changed: its SHA-256 is %s, and %s was signed", name, digest, c.signed[name])
		}
	}
	return fmt.Sprintf("%d files, each with the signed name and SHA-256", len(digests)), nil
}

// renamed returns a clause that names the file that a digest was signed for, or "".
func renamed(digest string, signed map[string]string) string {
	for _, name := range sortedNames(signed) {
		if signed[name] == digest {
			return "; its content was signed as " + name
		}
	}
	return ""
}

// checkChecksums compares checksums.txt with what was signed.
func (c *check) checkChecksums(context.Context) (string, error) {
	text, err := os.ReadFile(c.path(release.Checksums))
	if err != nil {
		return "", err
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(text)) {
		digest, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if _, twice := listed[name]; !ok || twice {
			return "", fmt.Errorf("%s: the line %q is not SHA256  NAME, or names a file twice", release.Checksums, line)
		}
		listed[name] = digest
	}
	want := map[string]string{}
	for name, digest := range c.signed {
		if name != release.Checksums {
			want[name] = digest
		}
		if name != release.Checksums && listed[name] != digest {
			return "", fmt.Errorf("%s: the line of %s is missing or differs from the signature",
				release.Checksums, name)
		}
	}
	if name := firstMissing(listed, want); name != "" {
		return "", fmt.Errorf("%s: %s is not a file of the release", release.Checksums, name)
	}
	return fmt.Sprintf("%s lists the same %d files", release.Checksums, len(listed)), nil
}
