// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCreateKey_OverwritesNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "release.key")
	if err := CreateKey(file); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %04o, want 0600", info.Mode().Perm())
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := CreateKey(file); err == nil || !strings.Contains(err.Error(), file+" exists") {
		t.Errorf("second key: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := CreateKey(file); err == nil || !strings.Contains(err.Error(), file+".pub exists") {
		t.Errorf("key beside another's public key: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a key was written although the public key could not be")
	}
	if err := os.WriteFile(file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckKey(file); err != nil {
		t.Error(err)
	}
}

func TestCheckKey_NamesTheRemedy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "release.key")
	if err := CreateKey(file); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open.key")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(open, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage.key")
	if err := os.WriteFile(garbage, []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"":                             "`make release-key KEY=",
		filepath.Join(dir, "none.key"): "`make release-key KEY=",
		open:                           "chmod 600 " + open,
		garbage:                        `holds no PEM block "PRIVATE KEY"`,
		file + ".pub":                  "chmod 600",
	} {
		if err := CheckKey(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
