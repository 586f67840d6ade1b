// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package binaries builds the programs of a release for every platform into Release.Binary, with
// the flags that make two builds equal: no paths, no C, and of version control the commit alone, not
// whether the tree is dirty. Package archive and the packages for Linux take them from there.
package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// Write builds every program of r.
func Write(ctx context.Context, r *release.Release) error {
	for _, program := range release.Programs() {
		for _, p := range r.PlatformsOf(program) {
			if err := build(ctx, r, program, p); err != nil {
				return fmt.Errorf("%s for %s: %w", program, p, err)
			}
		}
	}
	return nil
}

func build(ctx context.Context, r *release.Release, program string, p release.Platform) error {
	path := r.Binary(program, p)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	const setVersion = " -X github.com/fairlead-dev/fairlead/internal/version."
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w"+setVersion+"version="+r.Version+setVersion+"revision="+r.Commit,
		"-o", path, "./cmd/"+program)
	cmd.Dir = r.Source
	// What would change the bytes and is not in the commit: the caller's settings of Go.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch, "GOWORK=off", "GOFLAGS=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
