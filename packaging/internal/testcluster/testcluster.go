// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testcluster adds the built test cluster to a release that asks for it, for the
// architecture of this machine: what `cluster save` of the checkout writes, which `make demo` takes
// instead of compiling Kubernetes, and the licences of the modules in it. It compiles nothing of
// Kubernetes: `make cluster-build` did.
package testcluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/fairlead-dev/fairlead/packaging/internal/license"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// Write writes the cluster's archive and its licences, when r asks for them.
func Write(ctx context.Context, r *release.Release) error {
	if !r.Cluster {
		return nil
	}
	here := release.Platform{OS: "linux", Arch: runtime.GOARCH}
	module := filepath.Join(r.Source, "test/cluster")
	program := r.BuildPath("cluster")
	archive := r.Path(r.ClusterPrefix() + here.OS + "_" + here.Arch + ".tar.gz")
	if err := run(ctx, module, "go", "build", "-trimpath", "-o", program, "."); err != nil {
		return err
	}
	if err := run(ctx, module, program, "save", archive); err != nil {
		return err
	}
	var texts bytes.Buffer
	if err := license.WriteTexts(ctx, &texts, module, here, "./...", "tool"); err != nil {
		return err
	}
	return os.WriteFile(archive+".licenses.txt", texts.Bytes(), 0o644)
}

// run runs a command in a folder without the caller's choice of a Kubernetes and settings of Go.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "FAIRLEAD_KUBERNETES=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), args[0], err, bytes.TrimSpace(out))
	}
	return nil
}
