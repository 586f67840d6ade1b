// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/packaging/internal/artifact"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// archiveName matches PROGRAM_VERSION_OS_ARCH.tar.gz or .zip.
var archiveName = regexp.MustCompile(
	`^(fairlead(?:-server|-operator)?)_(.+)_(linux|darwin|windows)_(amd64|arm64)\.(?:tar\.gz|zip)$`)

// versionTimeout is how long a program may take to print its version.
const versionTimeout = 30 * time.Second

// matchArchive returns the parts of the name of a program's archive, or nil for other files, such as
// the air-gap bundle.
func (c *check) matchArchive(name string) []string {
	match := archiveName.FindStringSubmatch(name)
	if match == nil || "v"+match[2] != c.source.Version {
		return nil
	}
	return match
}

// checkArchives compares what each archive's name promises with the program inside.
func (c *check) checkArchives(ctx context.Context) (string, error) {
	count := 0
	for _, name := range sortedNames(c.signed) {
		match := c.matchArchive(name)
		if match == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		p, err := c.program(name)
		if err != nil {
			return "", err
		}
		if want := (release.Platform{OS: match[3], Arch: match[4]}); p.Name != match[1] || p.Platform != want {
			return "", fmt.Errorf("%s holds %s for %s: the name promises %s for %s",
				name, p.Name, p.Platform, match[1], want)
		}
		if p.Info.GoVersion != c.source.GoVersion {
			return "", fmt.Errorf("%s: %s was built with %s, and the signature says %s",
				name, p.Name, p.Info.GoVersion, c.source.GoVersion)
		}
		count++
	}
	if count == 0 {
		return "", fmt.Errorf("folder %s holds no archive of a program of version %s", c.Dist, c.source.Version)
	}
	return fmt.Sprintf("%d archives hold the program and the platform of their names", count), nil
}

// program returns the only program of an archive.
func (c *check) program(archive string) (*artifact.Program, error) {
	programs, err := artifact.Programs(c.path(archive))
	if err != nil {
		return nil, err
	}
	if len(programs) != 1 {
		return nil, fmt.Errorf("%s holds %d programs of the release: an archive has one", archive, len(programs))
	}
	return &programs[0], nil
}

// checkVersions runs the programs of this machine's platform, which the signature covers.
func (c *check) checkVersions(ctx context.Context) (string, error) {
	here := release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	dir, err := os.MkdirTemp("", "fairlead-verify-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	var said []string
	for _, name := range sortedNames(c.signed) {
		match := c.matchArchive(name)
		if match == nil || match[3] != here.OS || match[4] != here.Arch {
			continue
		}
		p, err := c.program(name)
		if err != nil {
			return "", err
		}
		if err := c.checkVersion(ctx, dir, name, p); err != nil {
			return "", err
		}
		said = append(said, p.Name)
	}
	if len(said) == 0 {
		return fmt.Sprintf("not checked: no archive is for this machine, %s", here), nil
	}
	return fmt.Sprintf("%s print %s and the commit on %s", strings.Join(said, ", "), c.source.Version[1:], here), nil
}

// checkVersion runs a program, which has to print the version and the commit of the release.
func (c *check) checkVersion(ctx context.Context, dir, archive string, p *artifact.Program) error {
	file := filepath.Join(dir, p.Name)
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	if err := os.WriteFile(file, p.Data, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, "--version")
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %s --version: %w", archive, p.Name, err)
	}
	words := strings.FieldsFunc(string(out), func(r rune) bool { return strings.ContainsRune(" ,()\r\n", r) })
	for _, want := range []string{c.source.Version[1:], c.source.Commit} {
		if !slices.Contains(words, want) {
			return fmt.Errorf("%s: %s --version prints %q, and the release is %s of commit %s",
				archive, p.Name, strings.TrimSpace(string(out)), c.source.Version[1:], c.source.Commit)
		}
	}
	return nil
}
