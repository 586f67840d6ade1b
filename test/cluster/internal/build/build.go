// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/test/cluster/mkimage"
)

var buildFlags = []string{"-trimpath", "-buildvcs=false", "-v"}

// tempPrefix marks folders that are not finished; the next build removes those of an interrupted
// one.
const tempPrefix = ".building-"

// Build makes those of the named parts that are not in the cache, and reports its progress to out.
// When ctx ends it stops the compiler and leaves nothing behind. Programs without
// KUBEBUILDER_ASSETS use Dir/current.
func (c Cache) Build(ctx context.Context, out io.Writer, names ...string) error {
	err := c.withMissing(ctx, out, names, func(work string, missing []string) error {
		return c.buildMissing(ctx, out, work, missing)
	})
	if err != nil || c.Kubernetes != "" {
		return err // programs that name no version want the module's own
	}
	return c.pointCurrent()
}

// withMissing calls do with those of the parts that are not in the cache, if there are any, and a
// folder beside them that it removes afterwards. It holds the cache's lock meanwhile.
func (c Cache) withMissing(ctx context.Context, out io.Writer, names []string,
	do func(work string, missing []string) error,
) error {
	missing, err := c.Missing(names...)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("creating the cache: %w (set FAIRLEAD_CACHE to another folder)", err)
	}
	unlock, err := lock(ctx, out, filepath.Join(c.Dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	missing, err = c.Missing(names...) // another build may have made them meanwhile
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := removeUnfinished(c.Dir); err != nil {
		return err
	}
	work, err := os.MkdirTemp(c.Dir, tempPrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // removed again by the next build if this cannot
	return do(work, missing)
}

func (c Cache) buildMissing(ctx context.Context, out io.Writer, work string, missing []string) error {
	bin := filepath.Join(work, "bin") // with a folder for each module
	progress := newProgress(out, strings.Join(missing, ", "))
	defer progress.stop()
	if err := c.compileParts(ctx, progress, work, bin, missing); err != nil {
		return err
	}
	for _, name := range missing {
		p := parts[slices.IndexFunc(parts, func(p part) bool { return p.name == name })]
		if err := c.install(name, filepath.Join(bin, c.moduleName(p)), filepath.Join(work, name)); err != nil {
			return fmt.Errorf("installing %s: %w", name, err)
		}
	}
	progress.done()
	return nil
}

// compileParts compiles the named parts into bin, with one go build for each module that they
// belong to.
func (c Cache) compileParts(ctx context.Context, progress *progress, work, bin string, names []string) error {
	packages := map[string][]string{} // by folder of the module's sources
	for _, p := range parts {
		if !slices.Contains(names, p.name) {
			continue
		}
		src := filepath.Join(work, "src", c.moduleName(p))
		if packages[src] == nil {
			err := errors.Join(os.MkdirAll(src, 0o755), os.MkdirAll(filepath.Join(bin, c.moduleName(p)), 0o755))
			if err := errors.Join(err, c.writeSources(p, src)); err != nil {
				return fmt.Errorf("writing the sources to compile: %w", err)
			}
		}
		packages[src] = append(packages[src], p.packages...)
	}
	for _, src := range slices.Sorted(maps.Keys(packages)) {
		if err := compile(ctx, progress, src, filepath.Join(bin, path.Base(src)), packages[src]); err != nil {
			return err
		}
	}
	return nil
}

// install arranges one part's files in a folder beside the cache's and gives it its name.
func (c Cache) install(name, bin, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var err error
	switch name {
	case Kubenode:
		err = moveTo(dir, bin, "kubenode")
		for _, program := range programs {
			// Hard links: a program that starts itself again finds a symbolic link's target, and so
			// the wrong name.
			err = errors.Join(err, os.Link(filepath.Join(dir, "kubenode"), filepath.Join(dir, program)))
		}
	case Tools:
		err = errors.Join(os.Mkdir(filepath.Join(dir, "cni"), 0o755),
			moveTo(dir, bin, "containerd", "containerd-shim-runc-v2", "ctr", "kubectl"),
			moveTo(filepath.Join(dir, "cni"), bin, "host-local", "ptp", "loopback", "portmap"))
	case Helm, Helm4:
		err = moveTo(dir, bin, "helm")
	case Images:
		err = packImages(filepath.Join(dir, "images.tar"), bin)
		err = errors.Join(err, moveTo(dir, bin, "nettool")) // for use in the node's network
	}
	if err != nil {
		return err
	}
	final, err := c.PartDir(name)
	if err != nil {
		return err
	}
	return os.Rename(dir, final)
}

func packImages(dest, bin string) error {
	f, err := os.Create(dest)
	if err != nil {
		return err
	}
	err = mkimage.Write(f, mkimage.Options{},
		mkimage.Image{Name: PauseImage, Path: filepath.Join(bin, "pause")},
		mkimage.Image{Name: CoreDNSImage, Path: filepath.Join(bin, "coredns")},
		mkimage.Image{Name: NettoolImage, Path: filepath.Join(bin, "nettool")})
	return errors.Join(err, f.Close())
}

// pointCurrent lets Dir/current name the folder of the kubenode in use.
func (c Cache) pointCurrent() error {
	dir, err := c.PartDir(Kubenode)
	if err != nil {
		return err
	}
	link := filepath.Join(c.Dir, "current")
	if target, err := os.Readlink(link); err == nil && target == path.Base(dir) {
		return nil
	}
	if missing, err := c.Missing(Kubenode); err != nil || len(missing) > 0 {
		return err // it was not asked for
	}
	temp := fmt.Sprintf("%s.%d", link, os.Getpid())
	if err := os.Symlink(path.Base(dir), temp); err != nil {
		return err
	}
	return os.Rename(temp, link)
}

func moveTo(dir, from string, names ...string) error {
	for _, n := range names {
		if err := os.Rename(filepath.Join(from, n), filepath.Join(dir, n)); err != nil {
			return err
		}
	}
	return nil
}

func removeUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// lock waits until no other build works in the same cache.
func lock(ctx context.Context, out io.Writer, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the cache: %w", err)
	}
	for first := true; ; first = false {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		if first {
			_, _ = fmt.Fprintln(out, "another build is under way; waiting for it")
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// modVersion finds the version that the sources' go.mod requires of a module.
func modVersion(src fs.FS, module string) (string, error) {
	b, err := fs.ReadFile(src, "go.mod")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == module && strings.HasPrefix(f[1], "v") {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("go.mod does not require %s", module)
}

// linkerFlags stamp the versions that charts (kubeVersion) and clients look at. A module that
// builds kubenode alone requires neither containerd nor helm, and Helm 4's no Kubernetes.
func linkerFlags(src fs.FS) (string, error) {
	flags := "-s -w"
	for _, m := range []struct{ module, variable string }{ // in one order: Go's build ID is a hash of the flags
		{containerd, "/version.Version"}, {helm, "/internal/version.version"},
		{helm4, "/internal/version.version"},
	} {
		if version, err := modVersion(src, m.module); err == nil {
			flags += fmt.Sprintf(" -X %s%s=%s", m.module, m.variable, version)
		}
	}
	kubernetes, err := modVersion(src, kubernetes)
	if err != nil {
		if _, other := modVersion(src, helm4); other != nil {
			return "", err
		}
		return flags, nil
	}
	minor, _, _ := strings.Cut(strings.TrimPrefix(kubernetes, "v1."), ".")
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(
			" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s -X %[1]s.gitTreeState=clean", p,
			kubernetes,
			minor)
	}
	return flags, nil
}

// goEnv is the environment of the go command: the module's own settings, whatever the user's are.
func goEnv() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=", "GO111MODULE=",
		"GOFIPS140=")
}

// errNoGo is returned where the go command is missing.
var errNoGo = errors.New(
	"the go command is not in PATH: install Go, or put its bin folder in PATH (sudo often drops it)")

func lookGo() (string, error) {
	p, err := exec.LookPath("go")
	if err != nil {
		return "", errNoGo
	}
	return p, nil
}
