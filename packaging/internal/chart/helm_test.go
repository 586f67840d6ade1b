// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/packaging/internal/images"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// write makes images of stand-ins for the programs, and the charts of this checkout.
func write(t *testing.T) *release.Release {
	t.Helper()
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release.Release{Version: "0.2.0-rc.1", Source: source, Dist: t.TempDir(), Unreleased: true,
		Time:      time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC),
		Platforms: []release.Platform{{OS: "linux", Arch: "amd64"}}}
	for _, i := range images.All() {
		path := r.Binary(i.Program, r.Platforms[0])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(i.Program), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := images.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// helm runs helm, apart from the user's configuration and cluster, and returns its output.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	program := os.Getenv("FAIRLEAD_HELM")
	if program == "" {
		var err error
		if program, err = exec.LookPath("helm"); err != nil {
			t.Fatal("no helm: name one in FAIRLEAD_HELM (`bin/cluster build --only helm --print-dir` names the " +
				"folder of the one that `make helm` builds), or put one into PATH")
		}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECONFIG="+os.DevNull)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("helm %s: %v: %s", args[0], err, out)
	}
	return string(out)
}
