// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight finds out before a node starts what would stop it: a missing right, program or
// kernel feature. Each finding is one sentence with its remedy, for internal/lifecycle to print.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what is looked at; tests have their own.
type Machine struct {
	OS       string
	EUID     int
	LookPath func(string) (string, error)
	ReadFile func(string) ([]byte, error)
	Exists   func(string) bool
	// Run runs a program in a new network namespace and returns what it printed.
	Run func(ctx context.Context, stdin string, args ...string) (string, error)
}

// This returns the machine that the program runs on.
func This() Machine {
	return Machine{
		OS: runtime.GOOS, EUID: os.Geteuid(), LookPath: lookPath, ReadFile: os.ReadFile,
		Exists: func(p string) bool { _, err := os.Stat(p); return err == nil },
		Run: func(ctx context.Context, stdin string, args ...string) (string, error) {
			path, err := lookPath(args[0])
			if err != nil {
				return "", err
			}
			cmd := exec.CommandContext(ctx, path, args[1:]...)
			cmd.Stdin = strings.NewReader(stdin)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
			out, err := cmd.CombinedOutput()
			return string(out), err
		},
	}
}

// lookPath looks where a root shell would, whatever PATH sudo or a login left.
func lookPath(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("no program %q", name)
}

// Program is a program that is needed from the machine.
type Program struct {
	Name    string
	Package string // of Debian
	Why     string
}

// programs are those that every node needs.
var programs = []Program{
	{"nft", "nftables", "kube-proxy programs Services with it"},
	{"runc", "runc", "containerd starts containers with it"},
	{"mount", "mount", "the kubelet mounts volumes with it"},
	{"ldd", "libc-bin", "it finds the libraries of programs that are packed into images"},
}

// rules use what kube-proxy uses of nftables. They are checked by the kernel in a namespace of
// their own, not kept.
const rules = `table ip check {
  chain filter { type filter hook forward priority 0; ct state new reject; }
  chain nat {
    type nat hook prerouting priority -100;
    ip daddr 192.0.2.1 tcp dport 80 dnat to numgen random mod 2 map { 0 : 192.0.2.2, 1 : 192.0.2.3 };
  }
  chain masq { type nat hook postrouting priority 100; meta mark & 0x4000 != 0 masquerade; }
}
`

// Check returns everything that is missing, joined, or nil. More names programs that are needed
// besides those of every node.
func Check(ctx context.Context, m Machine, more ...Program) error {
	if m.OS != "linux" {
		return fmt.Errorf(
			"a node needs Linux and this is %s: use another cluster (kind, for one) and FAIRLEAD_E2E_CONTEXT",
			m.OS)
	}
	if m.EUID != 0 {
		return errors.New(
			"a node needs root, for namespaces and mounts: run this with sudo (sudo --preserve-env=HOME,PATH keeps " +
				"the caches " +
				"and Go)")
	}
	errs := append(m.missing(slices.Concat(programs, more)), m.kernel()...)
	if _, err := m.LookPath("nft"); err == nil {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if out, err := m.Run(ctx, rules, "nft", "--check", "--file", "-"); err != nil {
			errs = append(errs,
				fmt.Errorf(
					"the kernel refuses nftables rules of the kind that kube-proxy uses: it needs CONFIG_NF_TABLES "+
						"with NAT, reject "+
						"and conntrack (nft says: %s)", firstLine(out, err)))
		}
	}
	return errors.Join(errs...)
}

func (m Machine) missing(wanted []Program) []error {
	var errs []error
	var install []string
	for _, p := range wanted {
		if _, err := m.LookPath(p.Name); err != nil {
			errs = append(errs, fmt.Errorf("the program %s is missing: %s", p.Name, p.Why))
			if !slices.Contains(install, p.Package) {
				install = append(install, p.Package)
			}
		}
	}
	if len(install) > 0 {
		errs = append(errs, fmt.Errorf("install what is missing: apt-get install -y --no-install-recommends %s",
			strings.Join(install, " ")))
	}
	return errs
}

func (m Machine) kernel() []error {
	var errs []error
	for _, ns := range []string{"mnt", "net", "pid", "uts", "ipc", "cgroup"} {
		if !m.Exists("/proc/self/ns/" + ns) {
			errs = append(errs, fmt.Errorf("the kernel has no %s namespaces, which the node lives in", ns))
		}
	}
	if !m.hasOverlay() {
		errs = append(errs,
			errors.New("the kernel has no overlayfs, which container images need: try modprobe overlay"))
	}
	if !m.Exists("/dev/kmsg") {
		errs = append(errs,
			errors.New("/dev/kmsg is missing, which the kubelet reads: a container that hides it cannot run a node"))
	}
	if mounts, err := m.ReadFile("/proc/self/mountinfo"); err != nil || !strings.Contains(string(mounts), " - cgroup") {
		errs = append(errs, errors.New("no control groups are mounted at /sys/fs/cgroup"))
	}
	return errs
}

func (m Machine) hasOverlay() bool {
	listed := func() bool {
		b, err := m.ReadFile("/proc/filesystems")
		return err == nil && strings.Contains(string(b), "\toverlay\n")
	}
	if listed() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := m.Run(ctx, "", "modprobe", "overlay")
	return err == nil && listed()
}

func firstLine(out string, err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if line == "" {
		return err.Error()
	}
	return line
}

// hidden are folders that a node has of its own.
var hidden = []string{"/var/lib", "/var/log", "/run", "/var/run", "/proc", "/sys"}

// unsuited are file systems on which a container's overlay cannot lie, by their numbers in
// statfs(2).
var unsuited = map[int64]string{
	unix.OVERLAYFS_SUPER_MAGIC: "an overlay file system, as in a container", unix.NFS_SUPER_MAGIC: "NFS",
	unix.ECRYPTFS_SUPER_MAGIC: "an ecryptfs", unix.FUSE_SUPER_MAGIC: "a FUSE file system",
}

// CheckDir returns an error unless a folder of this machine, which need not exist yet, suits a
// node: it is visible inside, and its file system can hold containers' root file systems. The error
// names the option that chooses another.
func CheckDir(dir, option string) error {
	for _, h := range hidden {
		if dir == h || strings.HasPrefix(dir, h+"/") {
			return fmt.Errorf("the folder %s is not visible in a node, which has its own %s: choose another with %s",
				dir, h,
				option)
		}
	}
	var fs unix.Statfs_t
	for d := dir; unix.Statfs(d, &fs) != nil && d != "/"; d = filepath.Dir(d) {
	}
	if what, bad := unsuited[fs.Type]; bad {
		return fmt.Errorf("the folder %s is on %s, where containers cannot run: choose another with %s", dir, what,
			option)
	}
	return nil
}
