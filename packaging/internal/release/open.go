// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Options are what the caller of a build chooses.
type Options struct {
	Version    string // with "v", as the tag: v0.2.0
	Source     string // a folder of the checkout
	Dist       string
	Platforms  string // OS/ARCH, separated by commas; empty for the whole matrix
	Key        string // the file of the private key, which package signature checks
	Unreleased bool   // take the changelog's section "Unreleased" for the version's
	Cluster    bool   // add the built test cluster
}

// semver is a semantic version with the "v" of tags. Build metadata is left out: neither image tags
// nor Debian versions can hold it.
var semver = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?$`)

// Open returns the release of the checkout's commit, or the reason why it cannot be made, with its
// remedy. It writes nothing.
func Open(ctx context.Context, o Options) (*Release, error) {
	r, err := Draft(ctx, o)
	if err != nil {
		return nil, err
	}
	if r.Key, err = filepath.Abs(o.Key); err != nil {
		return nil, fmt.Errorf("key %s: %w", o.Key, err)
	}
	if err := r.checkClean(ctx); err != nil {
		return nil, err
	}
	if err := r.checkTag(ctx); err != nil {
		return nil, err
	}
	return r, r.checkDist()
}

// Draft returns what Open does for a checkout that cannot be released yet: the tree may be dirty,
// and there is no key.
func Draft(ctx context.Context, o Options) (*Release, error) {
	if !semver.MatchString(o.Version) {
		return nil, fmt.Errorf("version %q: want a semantic version with a v and without build metadata, "+
			"as v0.2.0 or v0.2.0-rc.1", o.Version)
	}
	platforms, err := parsePlatforms(o.Platforms)
	if err != nil {
		return nil, err
	}
	r := &Release{Version: strings.TrimPrefix(o.Version, "v"), Platforms: platforms, Unreleased: o.Unreleased,
		Cluster: o.Cluster}
	if r.Dist, err = filepath.Abs(o.Dist); err != nil {
		return nil, fmt.Errorf("folder %s: %w", o.Dist, err)
	}
	return r, r.readCheckout(ctx, o.Source)
}

// readCheckout sets Source, Commit and Time.
func (r *Release) readCheckout(ctx context.Context, folder string) error {
	top, err := git(ctx, folder, "rev-parse", "--show-toplevel")
	if err != nil {
		return fmt.Errorf("source %s: a release is made from a git checkout: %w", folder, err)
	}
	r.Source = top
	shown, err := git(ctx, top, "show", "--no-patch", "--format=%H %ct", "HEAD")
	if err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(shown, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("time of commit %s: %w", commit, err)
	}
	r.Commit, r.Time = commit, time.Unix(unix, 0).UTC()
	return nil
}

// checkClean refuses a tree with changes.
func (r *Release) checkClean(ctx context.Context) error {
	changes, err := git(ctx, r.Source, "status", "--porcelain")
	if err != nil {
		return err
	}
	if first, _, _ := strings.Cut(changes, "\n"); first != "" {
		return fmt.Errorf("the tree of %s is dirty (%s): commit or remove what `git status` lists, "+
			"so that the commit says what is released", r.Source, strings.TrimSpace(first))
	}
	return nil
}

// checkTag refuses a version whose tag names another commit.
func (r *Release) checkTag(ctx context.Context) error {
	tag := "v" + r.Version
	if list, err := git(ctx, r.Source, "tag", "--list", tag); err != nil || list == "" {
		return err
	}
	commit, err := git(ctx, r.Source, "rev-parse", "--verify", "refs/tags/"+tag+"^{commit}")
	if err != nil {
		return err
	}
	if commit != r.Commit {
		return fmt.Errorf("version %s exists: the tag %s names commit %.12s, and the checkout is at %.12s: "+
			"check out the tag, or choose the next version", r.Version, tag, commit, r.Commit)
	}
	return nil
}

// git runs git in a folder and returns its output without surrounding space, or an error that holds
// what git wrote.
func git(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = folder
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
