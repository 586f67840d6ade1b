// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release owns what a release is: one version of one commit, its platforms and programs,
// and where its files lie. Open reads the checkout and refuses what cannot be released; each step
// (binaries, archive, …) is given the Release and writes its files into Dist.
package release

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Release is one version of one commit.
type Release struct {
	Version    string     // semantic version without "v": 0.2.0
	Commit     string     // full hash
	Time       time.Time  // of the commit, UTC; every time in every file
	Source     string     // absolute path of a clean checkout
	Dist       string     // absolute path of the folder that is written
	Platforms  []Platform // the whole matrix, unless Options.Platforms limits it
	Key        string     // absolute path of the private key that signs
	Unreleased bool       // the notes are those of the changelog's section "Unreleased"
	Cluster    bool       // the built test cluster is part of it
}

// Platform is an operating system and an architecture, in Go's words.
type Platform struct {
	OS   string
	Arch string
}

// String returns the platform as OS/ARCH.
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Platforms returns the whole matrix, ordered.
func Platforms() []Platform {
	var all []Platform
	for _, os := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, Platform{OS: os, Arch: arch})
		}
	}
	return all
}

// parsePlatforms parses a list of OS/ARCH separated by commas; an empty one is the whole matrix.
func parsePlatforms(list string) ([]Platform, error) {
	if list == "" {
		return Platforms(), nil
	}
	var found []Platform
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(Platforms(), func(p Platform) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("platform %q: releases are made for %v; give some of them, separated by commas",
				name, Platforms())
		}
		if p := Platforms()[i]; !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// Programs returns the names of the programs that are released, which are those of their archives.
func Programs() []string { return []string{"fairlead", "fairlead-server", "fairlead-operator"} }

// PlatformsOf returns those platforms of the release that a program runs on: the agent on all, the
// server on Linux and macOS, the operator on Linux.
func (r *Release) PlatformsOf(program string) []Platform {
	systems := map[string][]string{
		"fairlead":          {"linux", "darwin", "windows"},
		"fairlead-server":   {"linux", "darwin"},
		"fairlead-operator": {"linux"},
	}[program]
	var found []Platform
	for _, p := range r.Platforms {
		if slices.Contains(systems, p.OS) {
			found = append(found, p)
		}
	}
	return found
}

// Path returns the path of a file of dist/.
func (r *Release) Path(name string) string { return filepath.Join(r.Dist, name) }

// BuildPath returns the path of an intermediate file: below Dist/.build, which is removed when the
// release is complete.
func (r *Release) BuildPath(elements ...string) string {
	return filepath.Join(append([]string{r.Dist, buildFolder}, elements...)...)
}

// Binary returns the path of the program that was built for a platform.
func (r *Release) Binary(program string, p Platform) string {
	if p.OS == "windows" {
		program += ".exe"
	}
	return r.BuildPath(p.OS+"_"+p.Arch, program)
}

// ClusterPrefix returns what the names of the test cluster's files begin with.
func (r *Release) ClusterPrefix() string { return "fairlead_" + r.Version + "_cluster_" }

// Archive returns the name of a program's archive for a platform.
func (r *Release) Archive(program string, p Platform) string {
	suffix := ".tar.gz"
	if p.OS == "windows" {
		suffix = ".zip"
	}
	return program + "_" + r.Version + "_" + p.OS + "_" + p.Arch + suffix
}
