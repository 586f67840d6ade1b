// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package releasetest makes small git checkouts that can be released, for the tests of the steps of
// a release: three programs that print their version and revision, by this repository's package, and
// use one module, a licence, a README and a changelog. The commit, its time and all that is built
// from it are the same in every checkout.
package releasetest

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// Version is the version, as a tag, that the changelog of a checkout has a section of.
const Version = "v0.2.0"

// Module is the only module that the programs of a checkout use, one that this module uses too, so
// that it is there without a network.
const Module = "google.golang.org/protobuf v1.36.11"

const moduleSums = `google.golang.org/protobuf v1.36.11 h1:fV6ZwhNocDyBLK0dj+fg8ektcVegBBuEolpbTQyBNVE=
google.golang.org/protobuf v1.36.11/go.mod h1:HTf+CrKn2C3g5S8VImy6tdcUvCska2kB7j23XfzDpco=
`

// files returns the files of a checkout.
func files(t testing.TB) map[string]string {
	t.Helper()
	version, err := os.ReadFile("../../../internal/version/version.go") // the flags of builds must name its variables
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/fairlead-dev/fairlead"
	all := map[string]string{
		"go.mod":    "module " + module + "\n\ngo 1.26.0\n\nrequire " + Module + "\n",
		"go.sum":    moduleSums,
		"LICENSE":   "Apache-2.0\n",
		"README.md": "# Fairlead\n",
		"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n* not yet\n\n" +
			"## [0.2.0] - 2026-11-23\n\n* second\n\n## [0.1.0] - 2026-01-02\n\n* first\n",
		"internal/version/version.go": string(version),
	}
	for _, program := range release.Programs() {
		all["cmd/"+program+"/main.go"] = "package main\n\nimport (\n\t\"fmt\"\n\n\t\"" + module +
			"/internal/version\"\n\t_ \"google.golang.org/protobuf/encoding/protowire\"\n)\n\n" +
			"func main() { fmt.Println(\"" + program + " version\", version.String(), version.Revision()) }\n"
	}
	return all
}

// Checkout makes a checkout with one commit in a folder that the test removes.
func Checkout(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	all := files(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		WriteFile(t, filepath.Join(dir, name), all[name])
	}
	Git(t, dir, "init", "--quiet")
	Commit(t, dir, "first")
	return dir
}

// Commit commits every file of a checkout.
func Commit(t testing.TB, dir, message string) {
	t.Helper()
	Git(t, dir, "add", "--all")
	Git(t, dir, "commit", "--quiet", "--message", message)
}

// Git runs git in a checkout, without the settings of the machine, and returns its output.
func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-11-22T10:20:30Z",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=2026-11-22T10:20:30Z")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Options returns the options of a release of the checkout into a folder that the test removes, for
// some platforms, or for all when there are none.
func Options(t testing.TB, checkout string, platforms ...string) release.Options {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	WriteFile(t, key, "a private key")
	return release.Options{
		Version: Version, Source: checkout, Dist: filepath.Join(t.TempDir(), "dist"), Key: key,
		Platforms: strings.Join(platforms, ","),
	}
}

// Begin opens a release of a new checkout, and makes its empty Dist.
func Begin(t testing.TB, platforms ...string) *release.Release {
	t.Helper()
	r, err := release.Open(t.Context(), Options(t, Checkout(t), platforms...))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(); err != nil {
		t.Fatal(err)
	}
	return r
}

// WriteFile writes a file that only its owner can read, and the folders above it.
func WriteFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
