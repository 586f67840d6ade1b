// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

const goMod = `module example.test/cluster

require (
	github.com/containerd/containerd/v2 v2.3.7
	helm.sh/helm/v3 v3.21.4 // indirect
	k8s.io/kubernetes v1.36.3
)
`

func sourceTree() fstest.MapFS {
	return fstest.MapFS{
		"go.mod":                 {Data: []byte(goMod)},
		"go.sum":                 {Data: []byte("sums")},
		"kubernetes/1.34.mod":    {Data: []byte("module x\n\nrequire (\n\tk8s.io/kubernetes v1.34.4\n)\n")},
		"kubernetes/1.34.sum":    {Data: []byte("sums")},
		"helm/4.mod":             {Data: []byte("module x\n\nrequire (\n\thelm.sh/helm/v4 v4.3.2 // indirect\n)\n")},
		"helm/4.sum":             {Data: []byte("sums")},
		"kubenode/main.go":       {Data: []byte("package main")},
		"coredns/main.go":        {Data: []byte("package main")},
		"images/pause/main.go":   {Data: []byte("package main")},
		"mkimage/mkimage.go":     {Data: []byte("package mkimage")},
		"mkimage/unused_test.go": {Data: []byte("package mkimage")},
	}
}

func dirs(t *testing.T, src fstest.MapFS) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, name := range All() {
		dir, err := Cache{Dir: "/cache", Sources: src}.PartDir(name)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = dir
	}
	return got
}

func TestPartDir_DependsOnSources(t *testing.T) {
	t.Parallel()
	before := dirs(t, sourceTree())
	for _, tc := range []struct {
		file    string
		changes []string
	}{
		{"go.mod", All()},
		{"go.sum", All()},
		{"kubenode/main.go", []string{Kubenode}},
		{"coredns/main.go", []string{Images}},
		{"images/pause/main.go", []string{Images}},
		{"mkimage/mkimage.go", []string{Images}},
		{"mkimage/unused_test.go", nil},
	} {
		src := sourceTree()
		src[tc.file] = &fstest.MapFile{Data: append(slices.Clone(src[tc.file].Data), "\n// changed"...)}
		after := dirs(t, src)
		for _, name := range All() {
			if changed := before[name] != after[name]; changed != slices.Contains(tc.changes, name) {
				t.Errorf("after a change of %s, the name of %s changed: %t", tc.file, name, changed)
			}
		}
	}
	if again := dirs(t, sourceTree()); again[Kubenode] != before[Kubenode] {
		t.Error("the same sources gave two names")
	}
}

func TestCache_ReusesBuiltPart(t *testing.T) {
	t.Parallel()
	c := Cache{Dir: t.TempDir(), Sources: sourceTree()}
	dir, err := c.PartDir(Kubenode)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Build(t.Context(), &out, Kubenode); err != nil || out.Len() > 0 {
		t.Errorf("Build: %v, output %q; want neither", err, out.String())
	}
	if target, err := os.Readlink(filepath.Join(c.Dir, "current")); err != nil || target != filepath.Base(dir) {
		t.Errorf("current names %q (%v), want %q", target, err, filepath.Base(dir))
	}
	if _, err := c.PartDir("x"); err == nil || !strings.Contains(err.Error(), "kubenode") {
		t.Errorf("PartDir of an unknown part: %v; want an error with the known ones", err)
	}
}

// The tree of these tests cannot be compiled, so a build fails; what matters is what it leaves.
func TestCache_FailedBuildLeavesNothing(t *testing.T) {
	t.Parallel()
	c := Cache{Dir: t.TempDir(), Sources: sourceTree()}
	stale := filepath.Join(c.Dir, tempPrefix+"of-a-killed-build")
	if err := os.Mkdir(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.Build(t.Context(), io.Discard, Kubenode); err == nil || !strings.Contains(err.Error(), "go ") {
		t.Errorf("Build: %v, want the compiler's error", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Build(canceled, io.Discard, Kubenode); !errors.Is(err, context.Canceled) {
		t.Errorf("Build: %v, want context.Canceled", err)
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestLock_AllowsOneBuild(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), io.Discard, name)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(canceled, &out, name); !errors.Is(err, context.Canceled) ||
		!strings.Contains(out.String(), "waiting") {
		t.Errorf("a second lock: %v, output %q; want it to wait and say so", err, out.String())
	}
	unlock()
	again, err := lock(t.Context(), io.Discard, name)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestBuild_ReportsProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, "kubenode")
		p.phase("looking what to compile")
		p.downloaded()
		time.Sleep(plainInterval + time.Second)
		bin := t.TempDir()
		p.compiling([]string{"a", "b", "c"}, bin, 2)
		p.compiled("a")
		p.compiled("a/program")
		time.Sleep(plainInterval)
		p.compiled("b")
		p.compiled("c")
		if err := os.WriteFile(filepath.Join(bin, "program"), nil, 0o700); err != nil {
			t.Error(err)
		}
		time.Sleep(plainInterval)
		p.done()
		want := `building kubenode: looking what to compile, 0s
building kubenode: downloading Go modules, 1 so far, 15s
building kubenode: compiling, 0 of 3 packages (0 %), 16s
building kubenode: compiling, 1 of 3 packages (33 %), 30s
building kubenode: linking, 1 of 2 programs, 45s
built kubenode in 46s
`
		if out.String() != want {
			t.Errorf("output:\n%swant:\n%s", out.String(), want)
		}
	})
}

func TestBuild_DistinguishesPackagesFromMessages(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"k8s.io/api/core/v1":      true,
		"runtime":                 true,
		"# k8s.io/api/core/v1":    false,
		"main.go:3:2: undefined":  false,
		"go: downloading x v1":    false,
		"":                        false,
		"\tmain.go:3: some error": false,
	} {
		if got := isImportPath(line); got != want {
			t.Errorf("isImportPath(%q) = %t", line, got)
		}
	}
}

func TestLinkerFlags_SetVersion(t *testing.T) {
	t.Parallel()
	flags, err := linkerFlags(sourceTree())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"k8s.io/component-base/version.gitVersion=v1.36.3", "k8s.io/client-go/pkg/version.gitMinor=36",
		"containerd/v2/version.Version=v2.3.7", "helm/v3/internal/version.version=v3.21.4",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("linker flags lack %s: %s", want, flags)
		}
	}
	helm4 := fstest.MapFS{"go.mod": sourceTree()["helm/4.mod"]}
	const want = "-s -w -X helm.sh/helm/v4/internal/version.version=v4.3.2"
	if flags, err := linkerFlags(helm4); err != nil || flags != want {
		t.Errorf("of Helm 4: %s, %v", flags, err)
	}
	for range 20 {
		if again, err := linkerFlags(sourceTree()); err != nil || again != flags {
			t.Fatalf("other linker flags, and so another build ID: %s, %v", again, err)
		}
	}
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("FAIRLEAD_CACHE", "/a")
	if d, err := DefaultDir(); err != nil || d != "/a/cluster" {
		t.Errorf("with FAIRLEAD_CACHE: %q, %v", d, err)
	}
	t.Setenv("FAIRLEAD_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/x")
	if d, err := DefaultDir(); err != nil || d != "/x/fairlead/cluster" {
		t.Errorf("with XDG_CACHE_HOME: %q, %v", d, err)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if d, err := DefaultDir(); err == nil || !strings.Contains(err.Error(), "FAIRLEAD_CACHE") {
		t.Errorf("with nothing: %q, %v; want an error that names FAIRLEAD_CACHE", d, err)
	}
}

// Each version has a kubenode of its own, made from its own module; all else is shared.
func TestForKubernetes_ChoosesKubenode(t *testing.T) {
	t.Parallel()
	src := sourceTree()
	own := Cache{Dir: "/cache", Sources: src}
	old, err := own.ForKubernetes("1.34")
	if err != nil {
		t.Fatal(err)
	}
	for _, minor := range []string{"", "1.36"} {
		if c, err := own.ForKubernetes(minor); err != nil || c.Kubernetes != "" {
			t.Errorf("version %q: %q, %v; want the module's own", minor, c.Kubernetes, err)
		}
	}
	if _, err := own.ForKubernetes("1.29"); err == nil || !strings.Contains(err.Error(), "1.34, 1.36") {
		t.Errorf("version 1.29: %v, want an error with those that there are", err)
	}
	oldDir := func(name string) string {
		t.Helper()
		dir, err := old.PartDir(name)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	before := oldDir(Kubenode)
	for name, dir := range dirs(t, src) {
		if differs := dir != oldDir(name); differs != (name == Kubenode) {
			t.Errorf("the folder of %s differs between versions: %t", name, differs)
		}
	}
	src["go.sum"] = &fstest.MapFile{Data: []byte("other sums")}
	if oldDir(Kubenode) != before {
		t.Error("the module's own go.sum changes the kubenode of another version")
	}
	src["kubernetes/1.34.sum"] = &fstest.MapFile{Data: []byte("other sums")}
	if oldDir(Kubenode) == before {
		t.Error("a version's go.sum does not change its kubenode")
	}
}

func TestWriteSources_IsModuleOfVersion(t *testing.T) {
	t.Parallel()
	c, err := Cache{Sources: sourceTree()}.ForKubernetes("1.34")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := c.writeSources(parts[0], dir); err != nil {
		t.Fatal(err)
	}
	if flags, err := linkerFlags(os.DirFS(dir)); err != nil || !strings.Contains(flags, "gitVersion=v1.34.4") ||
		strings.Contains(flags, "helm") {
		t.Errorf("linker flags %q, %v; want those of Kubernetes 1.34.4", flags, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kubenode/main.go")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "coredns")); err == nil {
		t.Error("CoreDNS is in the module of another Kubernetes, which does not require it")
	}
}
