// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSDK_IsTakenFromCheckout runs the commands of docs/use/sdk.md for a program that imports the
// SDK, and lists what it would be built of.
func TestSDK_IsTakenFromCheckout(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/use/sdk.md")
	if err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(string(page), "```sh\n")
	commands, _, _ = strings.Cut(commands, "```")
	dir := filepath.Join(t.TempDir(), "hello")
	checkout, err := filepath.Abs("..")
	const program = "package main\n\nimport _ \"github.com/fairlead-dev/fairlead/sdk\"\n\nfunc main() {}\n"
	err = errors.Join(err, os.Mkdir(dir, 0o700), os.Symlink(checkout, filepath.Join(dir, "../fairlead")),
		os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(t.Context(), "sh", "-ec", commands+"go list -deps .")
	sh.Dir = dir
	if out, err := sh.CombinedOutput(); err != nil || !strings.Contains(string(out), "fairlead/internal/agent\n") {
		t.Errorf("%v: %s\n%s", err, out, commands)
	}
}
