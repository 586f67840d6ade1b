// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/signature"
)

// rebuild makes the release once more from a clone of its commit, in another folder and with a
// build cache of its own, and compares every file but the bundle, whose ECDSA signature is random,
// and the test cluster, which takes longer than all others together.
func (c *check) rebuild(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "fairlead-rebuild-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	dist := filepath.Join(dir, "dist")
	if err := c.buildClone(ctx, dir, dist); err != nil {
		c.print("%-10s FAILED\n", "rebuild")
		return err
	}
	built, err := signature.Digests(dist, c.bundle)
	if err != nil {
		return err
	}
	return c.compare(built)
}

// buildClone clones the commit, builds its release program and runs it with a key that is thrown
// away.
func (c *check) buildClone(ctx context.Context, dir, dist string) error {
	if out, err := run(ctx, nil, "go", "env", "GOVERSION"); err != nil {
		return err
	} else if out != c.source.GoVersion {
		return fmt.Errorf("the release was built with %s and this is %s: run again with GOTOOLCHAIN=%s",
			c.source.GoVersion, out, c.source.GoVersion)
	}
	clone, program, key := filepath.Join(dir, "source"), filepath.Join(dir, "packaging"), filepath.Join(dir, "key")
	if _, err := run(ctx, nil, "git", "clone", "--quiet", "--no-checkout", c.Source, clone); err != nil {
		return err
	}
	if _, err := run(ctx, nil, "git", "-C", clone, "checkout", "--quiet", "--detach", c.source.Commit); err != nil {
		return fmt.Errorf("%s does not know the commit of the release: fetch its tag %s: %w",
			c.Source, c.source.Version, err)
	}
	if _, err := run(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-C", filepath.Join(clone, "packaging"),
		"-o", program, "."); err != nil {
		return err
	}
	if err := signature.CreateKey(key); err != nil {
		return err
	}
	cache := c.Cache
	if cache == "" {
		cache = filepath.Join(dir, "cache")
	}
	_, err := run(ctx, []string{"GOCACHE=" + cache}, program, "build", "--version", c.source.Version, "--source", clone,
		"--dist", dist, "--key", key, "--platform", c.source.Platforms,
		fmt.Sprintf("--unreleased=%t", c.source.Unreleased))
	return err
}

// run returns a command's output without surrounding space, or an error that holds what it wrote.
func run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// compare prints a line for each file, and returns an error that names those that differ.
func (c *check) compare(built map[string]string) error {
	var differ, others []string
	cluster := (&release.Release{Version: strings.TrimPrefix(c.source.Version, "v")}).ClusterPrefix()
	list, err := c.digestOfChecksums(cluster)
	if err != nil {
		return err
	}
	c.print("\n%-64s %12s  REBUILT\n", "FILE", "BYTES")
	for _, name := range sortedNames(c.signed) {
		info, err := os.Stat(c.path(name))
		if err != nil {
			return err
		}
		verdict := "equal"
		switch digest, found := built[name]; {
		case digest == c.signed[name], name == release.Checksums && digest == list:
		case strings.HasPrefix(name, cluster):
			verdict = "not rebuilt"
			others = append(others, name)
		case found:
			verdict = "DIFFERS"
			differ = append(differ, name)
		default:
			verdict = "MISSING"
			differ = append(differ, name)
		}
		c.print("%-64s %12d  %s\n", name, info.Size(), verdict)
	}
	c.print("\n")
	if name := firstMissing(built, c.signed); name != "" {
		differ = append(differ, name)
	}
	if len(differ) > 0 {
		c.print("%-10s FAILED\n", "rebuild")
		return fmt.Errorf("a build of commit %s gives other bytes: %s", c.source.Commit, strings.Join(differ, ", "))
	}
	c.print("%-10s ok  a build of commit %.12s gives the same bytes\n", "rebuild", c.source.Commit)
	if len(others) > 0 {
		c.print("%-10s --  not rebuilt: %s; docs/build/releasing.md tells how\n", "rebuild", strings.Join(others, ", "))
	}
	return nil
}

// digestOfChecksums returns the SHA-256 that checksums.txt has without the files whose names begin
// with the prefix.
func (c *check) digestOfChecksums(prefix string) (string, error) {
	text, err := os.ReadFile(c.path(release.Checksums))
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte("  "+prefix)) {
			hash.Write(line)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
