// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package airgap

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/fairlead-dev/fairlead/packaging/internal/chart"
	"github.com/fairlead-dev/fairlead/packaging/internal/images"
	"github.com/fairlead-dev/fairlead/packaging/internal/ociarchive"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// other is the architecture that this machine does not have.
func other() string {
	if runtime.GOARCH == "arm64" {
		return "amd64"
	}
	return "arm64"
}

// newRelease makes the bundles of a release whose programs are stand-ins.
func newRelease(t *testing.T) *release.Release {
	t.Helper()
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release.Release{Version: "0.2.0", Source: source, Dist: t.TempDir(), Unreleased: true,
		Time:      time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC),
		Platforms: []release.Platform{{OS: "linux", Arch: runtime.GOARCH}, {OS: "linux", Arch: other()}}}
	for _, p := range r.Platforms {
		for _, i := range images.All() {
			path := r.Binary(i.Program, p)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(i.Program+p.Arch), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(images.Write(t.Context(), r), chart.Write(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// unpack makes the bundles and unpacks the one for an architecture.
func unpack(t *testing.T, arch string) string {
	t.Helper()
	r := newRelease(t)
	name, dir := Name(r, release.Platform{OS: "linux", Arch: arch}), t.TempDir()
	out, err := exec.CommandContext(t.Context(), "tar", "-xzf", r.Path(name+".tar.gz"), "-C", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, name)
}

// machine is a folder of programs, the only ones that a script finds. Stand-ins write what they are
// called with into the file calls.
type machine struct {
	t   *testing.T
	bin string
}

func newMachine(t *testing.T, standIns ...string) machine {
	t.Helper()
	m := machine{t: t, bin: t.TempDir()}
	for _, name := range []string{"sh", "cat", "dirname", "grep", "uname", "sha256sum"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(m.bin, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range standIns {
		text := "#!/bin/sh\necho " + name + " \"$@\" >>" + filepath.Join(m.bin, "calls") + "\n"
		if err := os.WriteFile(filepath.Join(m.bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// install runs the bundle's script from another folder, and returns what it wrote, what it called,
// and whether it succeeded.
func (m machine) install(bundle string, args ...string) (output string, calls []string, ok bool) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), filepath.Join(bundle, script), args...)
	cmd.Env, cmd.Dir = []string{"PATH=" + m.bin}, m.t.TempDir()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(m.bin, "calls")); err == nil {
		calls = strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	return string(out), calls, err == nil
}

func TestWrite_IsReproducible(t *testing.T) {
	t.Parallel()
	a, b := newRelease(t), newRelease(t)
	for _, p := range a.Platforms {
		first, err := os.ReadFile(a.Path(Name(a, p) + ".tar.gz"))
		second, err2 := os.ReadFile(b.Path(Name(b, p) + ".tar.gz"))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two bundles of the same release differ", p)
		}
	}
}

// TestWrite_ImagesOfPlatform checks what container runtimes read: an image layout, and what older
// versions of Docker know.
func TestWrite_ImagesOfPlatform(t *testing.T) {
	t.Parallel()
	bundle := unpack(t, other())
	for _, i := range images.All() {
		path := filepath.Join(bundle, "images", i.Name+".tar")
		items, err := ociarchive.Read(path, t.TempDir())
		if err != nil || len(items) != 1 || items[0].Reference != i.Reference("0.2.0") {
			t.Fatalf("%s: %v, %+v", i.Name, err, items)
		}
		docker, err := tarball.ImageFromPath(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, image := range []v1.Image{items[0].Content.(v1.Image), docker} {
			if err := validate.Image(image); err != nil {
				t.Errorf("%s: %v", i.Name, err)
			}
			c, err := image.ConfigFile()
			if err != nil || c.Architecture != other() {
				t.Errorf("%s: architecture %s, want %s (%v)", i.Name, c.Architecture, other(), err)
			}
		}
	}
}

func TestInstall_LoadsAndInstalls(t *testing.T) {
	t.Parallel()
	bundle := unpack(t, runtime.GOARCH)
	importArgs := func(name string) string { return "--namespace k8s.io images import images/" + name + ".tar" }
	for _, tc := range []struct {
		name     string
		programs []string
		args     []string
		want     []string
	}{
		{"images into containerd", []string{"ctr", "docker"}, []string{"images"},
			[]string{"ctr " + importArgs("fairlead-operator"), "ctr " + importArgs("fairlead-server"),
				"ctr " + importArgs("fairlead-agent")}},
		{"k3s is chosen before its ctr", []string{"k3s", "ctr", "helm"}, []string{"server"},
			[]string{"k3s ctr " + importArgs("fairlead-server"), "helm upgrade --install fairlead-server " + bundle +
				"/charts/fairlead-server-0.2.0.tgz --namespace fairlead --create-namespace"}},
		{"a runtime that is named", []string{"ctr", "docker", "helm"},
			[]string{"--runtime", "docker", "operator", "--", "--set", "a=b c"},
			[]string{"docker load --input images/fairlead-operator.tar", "helm upgrade --install fairlead-operator " +
				bundle + "/charts/fairlead-operator-0.2.0.tgz --namespace fairlead --create-namespace --set a=b c"}},
		{"charts only", []string{"helm"}, []string{"--no-images", "operator"},
			[]string{"helm upgrade --install fairlead-operator " + bundle +
				"/charts/fairlead-operator-0.2.0.tgz --namespace fairlead --create-namespace"}},
		{"check", nil, []string{"check"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out, calls, ok := newMachine(t, tc.programs...).install(bundle, tc.args...)
			if !ok || !slices.Equal(calls, tc.want) {
				t.Errorf("calls %q, want %q: %s", calls, tc.want, out)
			}
		})
	}
}

// TestInstall_Refuses checks that nothing is loaded or installed, and that the remedy is named.
func TestInstall_Refuses(t *testing.T) {
	t.Parallel()
	bundle, foreign, tampered := unpack(t, runtime.GOARCH), unpack(t, other()), unpack(t, runtime.GOARCH)
	incomplete := unpack(t, runtime.GOARCH)
	if err := errors.Join(os.WriteFile(filepath.Join(tampered, "images/fairlead-agent.tar"), []byte("x"), 0o600),
		os.Remove(filepath.Join(incomplete, "charts/fairlead-server-0.2.0.tgz"))); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, bundle string
		programs     []string
		args         []string
		want         string
	}{
		{"another platform", foreign, []string{"ctr", "helm"}, []string{"operator"},
			"take fairlead_0.2.0_airgap_linux_" + runtime.GOARCH + ".tar.gz"},
		{"a changed file", tampered, []string{"ctr", "helm"}, []string{"operator"},
			"images/fairlead-agent.tar: FAILED"},
		{"a missing file", incomplete, []string{"ctr", "helm"}, []string{"images"},
			"charts/fairlead-server-0.2.0.tgz"},
		{"no helm", bundle, []string{"ctr"}, []string{"operator"}, "helm is not in PATH"},
		{"no runtime", bundle, []string{"helm"}, []string{"operator"}, "no container runtime is found"},
		{"no task", bundle, []string{"ctr", "helm"}, nil, "give check, images, operator or server"},
		{"a wrong task", bundle, []string{"ctr", "helm"}, []string{"agent"}, "unknown task agent"},
		{"a wrong option", bundle, []string{"ctr", "helm"}, []string{"--force", "images"}, "unknown option --force"},
		{"a wrong runtime", bundle, []string{"ctr", "helm"}, []string{"--runtime=lxc", "images"}, "--runtime lxc"},
		{"helm's arguments without --", bundle, []string{"ctr", "helm"}, []string{"operator", "--set=a=b"},
			"arguments of helm come after --"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out, calls, ok := newMachine(t, tc.programs...).install(tc.bundle, tc.args...)
			if ok || len(calls) > 0 || !strings.Contains(out, tc.want) {
				t.Errorf("ok %v, calls %q, output %q; want a refusal that says %q", ok, calls, out, tc.want)
			}
		})
	}
}

// TestInstall_RuntimeFails checks that a runtime that refuses an image ends the installation.
func TestInstall_RuntimeFails(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "helm")
	if err := os.WriteFile(filepath.Join(m.bin, "ctr"), []byte("#!/bin/sh\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, calls, ok := m.install(unpack(t, runtime.GOARCH), "operator")
	if ok || len(calls) > 0 ||
		!strings.Contains(out, "containerd does not take the image images/fairlead-operator.tar") {
		t.Errorf("ok %v, calls %q: %s", ok, calls, out)
	}
}

func TestInstall_Help(t *testing.T) {
	t.Parallel()
	out, _, ok := newMachine(t).install(unpack(t, runtime.GOARCH), "--help")
	if !ok || !strings.Contains(out, "Usage: ./install.sh") || strings.Contains(out, "@VERSION@") {
		t.Errorf("ok %v: %s", ok, out)
	}
}
