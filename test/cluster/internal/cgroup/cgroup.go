// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup gives a node a control group of its own in every hierarchy of the machine, which a
// cgroup namespace then makes the root of all that runs inside, and takes it away again. A name
// comes in; internal/lifecycle creates and removes the group, internal/node mounts it.
//
// Version 1 is what the test bed is run on. The branch for version 2 follows the kernel's
// documentation; it has not been run yet.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const root = "/sys/fs/cgroup"

// Hierarchy is one mounted tree of control groups.
type Hierarchy struct {
	Dir         string   // where it is mounted
	V2          bool     // the one tree of version 2
	Controllers []string // of version 1; empty for a named hierarchy
	Name        string   // of a named hierarchy of version 1, such as systemd
}

// Hierarchies finds those that a node needs: either the one of version 2, or all of version 1.
func Hierarchies() ([]Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	hs, err := parse(f)
	if err == nil && len(hs) == 0 {
		err = errors.New("no control groups are mounted at " + root)
	}
	return hs, err
}

func parse(mountinfo io.Reader) ([]Hierarchy, error) {
	var hs []Hierarchy
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 || !strings.HasPrefix(left[4], root) {
			continue
		}
		switch {
		case right[0] == "cgroup2" && left[4] == root:
			return []Hierarchy{{Dir: root, V2: true}}, nil
		case right[0] == "cgroup":
			h := Hierarchy{Dir: left[4]}
			for o := range strings.SplitSeq(right[2], ",") {
				if name, ok := strings.CutPrefix(o, "name="); ok {
					h.Name = name
				} else if !slices.Contains([]string{"rw", "ro", "xattr", "clone_children", "noprefix",
					"cpuset_v2_mode"}, o) &&
					!strings.Contains(o, "=") {
					h.Controllers = append(h.Controllers, o)
				}
			}
			hs = append(hs, h)
		}
	}
	return hs, lines.Err()
}

// options are those of mount(2).
func (h Hierarchy) options() string {
	if h.Name != "" {
		return "none,name=" + h.Name
	}
	return strings.Join(h.Controllers, ",")
}

// Create makes the group in every hierarchy. Nothing is in it yet.
func Create(hs []Hierarchy, name string) error {
	for _, h := range hs {
		if h.V2 {
			if err := delegate(h.Dir); err != nil {
				return err
			}
		}
		g := filepath.Join(h.Dir, name)
		if err := os.Mkdir(g, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("creating the control group: %w", err)
		}
		if slices.Contains(h.Controllers, "cpuset") { // a new one of version 1 is empty and admits no process
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				b, err := os.ReadFile(filepath.Join(h.Dir, f))
				if err == nil {
					err = os.WriteFile(filepath.Join(g, f), b, 0)
				}
				if err != nil {
					return fmt.Errorf("filling the cpuset: %w", err)
				}
			}
		}
	}
	return nil
}

// delegate lets the groups below dir use every controller that dir may use (version 2).
func delegate(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	enabled, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(b)) {
		if slices.Contains(strings.Fields(string(enabled)), c) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("delegating the controller %s of %s: %w", c, dir, err)
		}
	}
	return nil
}

// Join moves a process, with all its threads, into the group.
func Join(hs []Hierarchy, name string, pid int) error {
	for _, h := range hs {
		if err := os.WriteFile(filepath.Join(h.Dir, name, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("joining the control group: %w", err)
		}
	}
	return nil
}

// Remove takes the group away, with the groups below it. Its processes must be dead; the kernel may
// need a moment to notice, for which Remove waits up to five seconds.
func Remove(hs []Hierarchy, name string) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		var err error
		for _, h := range hs {
			err = errors.Join(err, removeTree(filepath.Join(h.Dir, name)))
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing the control group: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// Mount puts the hierarchies, rooted at the caller's cgroup namespace, over /sys/fs/cgroup of its
// mount namespace.
func Mount(hs []Hierarchy) error {
	if hs[0].V2 {
		return mountV2()
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting %s: %w", root, err)
	}
	for _, h := range hs {
		if err := os.Mkdir(h.Dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", h.Dir, "cgroup", 0, h.options()); err != nil {
			return fmt.Errorf("mounting the control groups %s: %w", h.options(), err)
		}
		if len(h.Controllers) < 2 {
			continue
		}
		for _, c := range h.Controllers { // cpu -> cpu,cpuacct
			if err := os.Symlink(filepath.Base(h.Dir), filepath.Join(root, c)); err != nil &&
				!errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return nil
}

// mountV2 also moves the caller out of the root group, because a group with processes may not
// delegate.
func mountV2() error {
	if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", root, err)
	}
	init := filepath.Join(root, "init")
	if err := os.Mkdir(init, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(init, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("moving to the group of the node's own processes: %w", err)
	}
	return delegate(root)
}
