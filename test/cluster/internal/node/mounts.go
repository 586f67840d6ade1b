// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/cgroup"
)

// sysctls are values that the kubelet insists on and would write for the whole machine: it reads
// them from files of ours.
var sysctls = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// mounts gives the node its own view of the file system: the machine's, with private /var/lib,
// /var/log and /run.
func (n *node) mounts(hs []cgroup.Hierarchy) error {
	if err := unix.Sethostname([]byte(nodeName)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", 0, ""); err != nil { // of the new pid namespace
		return err
	}
	if err := mount("sysfs", "/sys", "sysfs", 0, ""); err != nil { // of the new network namespace
		return err
	}
	if err := cgroup.Mount(hs); err != nil {
		return err
	}
	if err := n.bindState(); err != nil {
		return err
	}
	if err := mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	if err := os.Mkdir("/run/lock", 0o755); err != nil {
		return err
	}
	for name, value := range sysctls {
		if err := n.fakeSysctl(name, value); err != nil {
			return err
		}
	}
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") // pods' mounts are to propagate inside
}

// bindState puts folders of the cluster's in the place of /var/lib and /var/log.
func (n *node) bindState() error {
	for dir, target := range map[string]string{n.c.Path("var-lib"): "/var/lib", n.c.Path("log"): "/var/log"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := mount(dir, target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for _, d := range []string{"containerd", "kubelet", "cni"} {
		if err := os.MkdirAll(filepath.Join("/var/lib", d), 0o755); err != nil {
			return err
		}
	}
	return os.MkdirAll("/var/lib/etcd", 0o700)
}

func (n *node) fakeSysctl(name, value string) error {
	target := filepath.Join("/proc/sys", name)
	if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
		return nil // this kernel does not have it
	}
	file := n.c.Path("sysctl", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		return err
	}
	return mount(file, target, "", unix.MS_BIND, "")
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	return nil
}
