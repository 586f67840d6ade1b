// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHierarchies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mountinfo string
		want      []string // dir and mount options
	}{
		"version 1 with one controller each": {`
24 1 0:22 / /sys rw - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw`,
			[]string{"/sys/fs/cgroup/cpu cpu", "/sys/fs/cgroup/systemd none,name=systemd"}},
		"version 1 with joined controllers": {`
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory,clone_children,release_agent=/x`,
			[]string{"/sys/fs/cgroup/cpu,cpuacct cpu,cpuacct", "/sys/fs/cgroup/memory memory"}},
		"version 2": {`
30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate`, []string{"/sys/fs/cgroup v2"}},
		"none": {"1 1 0:1 / / rw - ext4 /dev/vda rw", nil},
	} {
		hs, err := parse(strings.NewReader(tc.mountinfo))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range hs {
			s := h.options()
			if h.V2 {
				s = "v2"
			}
			got = append(got, h.Dir+" "+s)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestRemove_RemovesChildGroups(t *testing.T) {
	t.Parallel()
	root := t.TempDir() // folders as they are; a real group's files go with it
	hs := []Hierarchy{{Dir: root}}
	if err := os.MkdirAll(filepath.Join(root, "x", "kubepods", "pod1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "y"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Remove(hs, "x"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 1 || entries[0].Name() != "y" {
		t.Errorf("left: %v, %v; want only y", entries, err)
	}
	if err := Remove(hs, "x"); err != nil {
		t.Errorf("removing again: %v", err)
	}
}
