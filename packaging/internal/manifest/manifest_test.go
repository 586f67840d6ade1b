// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/packaging/internal/archive"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
)

// begin makes a release with archives of programs that print how they were called, and writes its
// manifests.
func begin(t *testing.T, platforms ...string) *release.Release {
	t.Helper()
	r := releasetest.Begin(t, platforms...)
	for _, program := range release.Programs() {
		for _, p := range r.PlatformsOf(program) {
			releasetest.WriteFile(t, r.Binary(program, p), "#!/bin/sh\n# "+p.String()+"\necho \"${0##*/} $*\"\n")
		}
	}
	releasetest.WriteFile(t, r.Path(release.ThirdPartyLicenses), "licences\n")
	if err := archive.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pair finds the URL of an archive and the digest after it, in each manifest.
var pair = regexp.MustCompile(
	`releases/download/v0\.2\.0/(fairlead_[^"\s]+)"?,?\s+"?(?:sha256|hash)"?:? "?([0-9a-f]{64})`)

func TestWrite_DigestsAreThoseOfArchives(t *testing.T) {
	t.Parallel()
	r := begin(t)
	for name, systems := range map[string][]string{
		Homebrew: {"darwin", "linux"}, Krew: {"darwin", "linux", "windows"}, Scoop: {"windows"},
	} {
		var want, got []string
		for _, p := range release.Platforms() {
			if slices.Contains(systems, p.OS) {
				file := r.Archive("fairlead", p)
				sum, err := exec.CommandContext(t.Context(), "sha256sum", r.Path(file)).Output()
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, file+" "+string(sum[:64]))
			}
		}
		for _, m := range pair.FindAllStringSubmatch(read(t, r.Path(name)), -1) {
			got = append(got, m[1]+" "+m[2])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: archives\n%v, want\n%v", name, got, want)
		}
	}
}

func TestWrite_FormulaIsRuby(t *testing.T) {
	t.Parallel()
	ruby, err := exec.LookPath("ruby")
	if err != nil {
		if os.Getenv("FAIRLEAD_REQUIRE_PACKAGES") != "" {
			t.Fatal("FAIRLEAD_REQUIRE_PACKAGES is set, and this machine has no ruby: run hack/deps.sh")
		}
		t.Skip("this machine has no ruby")
	}
	for _, platforms := range [][]string{nil, {"linux/amd64"}} {
		path := begin(t, platforms...).Path(Homebrew)
		if out, err := exec.CommandContext(t.Context(), ruby, "-wc", path).CombinedOutput(); err != nil ||
			string(out) != "Syntax OK\n" {
			t.Errorf("%v %s:\n%s", err, out, read(t, path))
		}
	}
}

// TestWrite_ScoopKnowsFields checks the names of Scoop's schema, and that there is no manifest
// without an archive for Windows.
func TestWrite_ScoopKnowsFields(t *testing.T) {
	t.Parallel()
	var manifest struct {
		Version, Description, Homepage, License, Bin, Checkver string
		Architecture                                           struct {
			X64   struct{ URL, Hash string } `json:"64bit"`
			ARM64 struct{ URL, Hash string } `json:"arm64"`
		}
	}
	decoder := json.NewDecoder(strings.NewReader(read(t, begin(t).Path(Scoop))))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Version != "0.2.0" || manifest.License != "Apache-2.0" || manifest.Bin != "fairlead.exe" ||
		!strings.HasSuffix(manifest.Architecture.X64.URL, "_windows_amd64.zip") ||
		!strings.HasSuffix(manifest.Architecture.ARM64.URL, "_windows_arm64.zip") {
		t.Errorf("%+v", manifest)
	}
	if _, err := os.Stat(begin(t, "linux/amd64").Path(Scoop)); !os.IsNotExist(err) {
		t.Errorf("a manifest of a release without archives for Windows: %v", err)
	}
}

// TestWrite_KrewInstallsPlugin validates the manifest with krew's own program, lets krew install the
// plugin from the archive, and lets kubectl, where it is installed, run it.
func TestWrite_KrewInstallsPlugin(t *testing.T) {
	t.Parallel()
	r := begin(t)
	dir := t.TempDir()
	manifest := filepath.Join(dir, "fairlead.yaml")
	releasetest.WriteFile(t, manifest, read(t, r.Path(Krew)))
	run(t, nil, "go", "build", "-C", "../../krew", "-o", dir+"/", "sigs.k8s.io/krew/cmd/validate-krew-manifest",
		"sigs.k8s.io/krew/cmd/krew")
	run(t, nil, filepath.Join(dir, "validate-krew-manifest"), "-manifest", manifest, "-skip-install")

	root := filepath.Join(dir, "root")
	env := []string{"KREW_ROOT=" + root, "KREW_OS=linux", "KREW_ARCH=amd64", "HOME=" + dir,
		"PATH=" + root + "/bin:" + os.Getenv("PATH")}
	local := r.Path(r.Archive("fairlead", release.Platform{OS: "linux", Arch: "amd64"}))
	run(t, env, filepath.Join(dir, "krew"), "install", "--manifest="+manifest, "--archive="+local)
	want := "kubectl-fairlead doctor --help\n"
	if out := run(t, env, filepath.Join(root, "bin", "kubectl-fairlead"), "doctor", "--help"); out != want {
		t.Errorf("the plugin says %q, want %q", out, want)
	}
	if kubectl, err := exec.LookPath("kubectl"); err == nil {
		if out := run(t, env, kubectl, "fairlead", "doctor", "--help"); out != want {
			t.Errorf("the plugin under kubectl says %q, want %q", out, want)
		}
	}
	broken := strings.Replace(read(t, manifest), "sha256: ", "sha256: 0", 1)
	releasetest.WriteFile(t, manifest, broken)
	if err := exec.CommandContext(t.Context(), filepath.Join(dir, "validate-krew-manifest"), "-manifest", manifest,
		"-skip-install").Run(); err == nil {
		t.Error("krew finds nothing wrong with a digest of 65 digits")
	}
}

// run runs a program, which has to succeed, with env or with the test's environment.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", filepath.Base(name), args, err, out, stderr.String())
	}
	return string(out)
}
