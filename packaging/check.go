// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/signature"
	"github.com/fairlead-dev/fairlead/packaging/internal/verify"
)

// checkVersion is the version of releases that are made to be checked.
const checkVersion = "v0.0.0-check"

// runCheck makes a release of the checkout's commit with a key that is thrown away, verifies it by
// building it once more from a clone, and tampers with it, which has to be refused.
func runCheck(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	source := flags.String("source", "..", "the checkout")
	platforms := flags.String("platform", "linux/amd64", "OS/ARCH, separated by commas")
	cache := flags.String("cache", "", "GOCACHE of the second build (default: fairlead-release-check in the "+
		"user's cache folder)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *cache == "" {
		folder, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		*cache = filepath.Join(folder, "fairlead-release-check")
	}
	dir, err := os.MkdirTemp("", "fairlead-release-check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	key := filepath.Join(dir, "key")
	if err := signature.CreateKey(key); err != nil {
		return err
	}
	r, err := release.Open(ctx, release.Options{
		Version: checkVersion, Source: *source, Dist: filepath.Join(dir, "dist"), Platforms: *platforms, Key: key,
		Unreleased: true,
	})
	if err != nil {
		return err
	}
	if err := build(ctx, r); err != nil {
		return err
	}
	o := verify.Options{
		Dist: r.Dist, PublicKey: key + ".pub", Rebuild: true, Source: r.Source, Cache: *cache, Out: os.Stdout,
	}
	if err := verify.Run(ctx, o); err != nil {
		return err
	}
	o.Rebuild, o.Out = false, io.Discard
	return checkTampering(ctx, r, o, filepath.Join(dir, "other"))
}

// checkTampering returns an error unless a changed byte, a changed name and another key, which it
// writes to a file, are refused.
func checkTampering(ctx context.Context, r *release.Release, o verify.Options, otherKey string) error {
	archive := r.Path(r.Archive("fairlead", r.Platforms[0]))
	content, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	changed := bytes.Clone(content)
	changed[len(changed)/2] ^= 1
	if err := os.WriteFile(archive, changed, 0o644); err != nil {
		return err
	}
	byteErr := verify.Run(ctx, o)
	if err := os.WriteFile(archive, content, 0o644); err != nil {
		return err
	}
	if err := os.Rename(archive, archive+".renamed"); err != nil {
		return err
	}
	nameErr := verify.Run(ctx, o)
	if err := os.Rename(archive+".renamed", archive); err != nil {
		return err
	}
	if err := signature.CreateKey(otherKey); err != nil {
		return err
	}
	other := o
	other.PublicKey = otherKey + ".pub"
	keyErr := verify.Run(ctx, other)
	for _, c := range []struct {
		change  string
		refusal error
	}{{"a changed byte", byteErr}, {"a changed name", nameErr}, {"another key", keyErr}} {
		if c.refusal == nil {
			return errors.New(c.change + " was not refused")
		}
		fmt.Printf("%-16s refused: %v\n", c.change, c.refusal)
	}
	if err := verify.Run(ctx, o); err != nil {
		return fmt.Errorf("the release as it was made: %w", err)
	}
	return nil
}
