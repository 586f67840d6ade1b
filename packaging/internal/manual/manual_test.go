// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// TestWrite_DescribesTheAgent builds the agent of this checkout: its pages are dated with the
// commit, hold nothing of this machine, and its completions are scripts.
func TestWrite_DescribesTheAgent(t *testing.T) {
	t.Parallel()
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release.Release{Version: "0.2.0", Source: source, Dist: t.TempDir(),
		Time: time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC)}
	if err := write(t.Context(), r, "fairlead"); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(r.BuildPath("man", "fairlead", "*"))
	if err != nil || len(pages) < 40 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text := read(t, page)
		title := `.TH "` + strings.ToUpper(strings.TrimSuffix(filepath.Base(page), ".1")) +
			`" 1 "2026-11-23" "fairlead 0.2.0" "Fairlead"`
		if first, _, _ := strings.Cut(text, "\n"); first != title {
			t.Errorf("%s begins with %s, want %s", page, first, title)
		}
		if home, err := os.UserHomeDir(); err == nil && strings.Contains(text, home+"/") {
			t.Errorf("%s holds a path of this machine, %s", page, home)
		}
	}
	for suffix, want := range map[string]string{".bash": "complete -o default", ".zsh": "#compdef fairlead",
		".fish": "complete -c fairlead", ".ps1": "Register-ArgumentCompleter"} {
		path := r.BuildPath("completions", "fairlead", "fairlead"+suffix)
		if text := read(t, path); !strings.Contains(text, want) {
			t.Errorf("%s holds no %q:\n%.300s", path, want, text)
		}
	}
	out, err := exec.CommandContext(t.Context(), "bash", "-n",
		r.BuildPath("completions", "fairlead", "fairlead.bash")).CombinedOutput()
	if err != nil {
		t.Errorf("bash: %v %s", err, out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
