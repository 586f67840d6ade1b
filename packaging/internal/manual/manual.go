// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manual writes the manual pages and shell completions of every program. Input: the
// checkout, of which it builds each program for this machine with the tag manpages. Output:
// Release.BuildPath("man", PROGRAM) and Release.BuildPath("completions", PROGRAM), which archives
// and packages hold.
package manual

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// shells are those that have a completion, and the suffix of its file.
var shells = map[string]string{"bash": ".bash", "fish": ".fish", "powershell": ".ps1", "zsh": ".zsh"}

// Write writes pages and completions of every program of r.
func Write(ctx context.Context, r *release.Release) error {
	for _, program := range release.Programs() {
		if err := write(ctx, r, program); err != nil {
			return fmt.Errorf("manual of %s: %w", program, err)
		}
	}
	return os.RemoveAll(r.BuildPath("manual"))
}

func write(ctx context.Context, r *release.Release, program string) error {
	path := r.BuildPath("manual", program)
	man, completions := r.BuildPath("man", program), r.BuildPath("completions", program)
	for _, folder := range []string{filepath.Dir(path), man, completions} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if err := build(ctx, r, program, path); err != nil {
		return err
	}
	if _, err := output(ctx, path, "manpages", man, r.Time.Format(time.DateOnly)); err != nil {
		return err
	}
	for shell, suffix := range shells {
		script, err := output(ctx, path, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(completions, program+suffix), script, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// build builds a program for this machine, and for no longer than this step.
func build(ctx context.Context, r *release.Release, program, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "manpages",
		"-ldflags", "-s -w -X github.com/fairlead-dev/fairlead/internal/version.version="+r.Version,
		"-o", path, "./cmd/"+program)
	cmd.Dir = r.Source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=", "GOARCH=", "GOWORK=off", "GOFLAGS=", "GOAMD64=v1",
		"GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// output runs a program without an environment, on which defaults in its help depend.
func output(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(path), args[0], err)
	}
	return out, nil
}
