// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package state keeps what is known of a cluster in its folder, across commands, kills and crashes:
// which process is the node, with what options and binaries it was started, and how far its start
// has come. Commands come in through internal/lifecycle; what lies here is also the whole of what
// `down` must remove besides control groups.
package state

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Options change how a node behaves; a running node keeps those it was started with.
type Options struct {
	KubeProxyMinSync time.Duration `json:"kubeProxyMinSync"` // kube-proxy's minSyncPeriod
	DNSCache         bool          `json:"dnsCache"`         // CoreDNS as distributions ship it: cache 30, ttl 30
	DualStack        bool          `json:"dualStack"`        // IPv6 beside IPv4
	MultiCluster     bool          `json:"multiCluster"`     // the Multi-Cluster Services API and its DNS
	NetworkPolicies  bool          `json:"networkPolicies"`  // NetworkPolicies are enforced
	Kubernetes       string        `json:"kubernetes"`       // minor version; empty: that of the cluster program
}

// String names the options for people.
func (o Options) String() string {
	return fmt.Sprintf("kube-proxy minSyncPeriod %v, DNS cache %t, dual-stack %t, multicluster %t, "+
		"network policies %t, Kubernetes %s", o.KubeProxyMinSync, o.DNSCache, o.DualStack, o.MultiCluster,
		o.NetworkPolicies, cmp.Or(o.Kubernetes, "as built in"))
}

// Cluster is what is known of one cluster. The zero PID means that no node was started.
type Cluster struct {
	Name      string    `json:"name"`
	Dir       string    `json:"dir"` // absolute
	Options   Options   `json:"options"`
	Kubenode  string    `json:"kubenode"` // folders of binaries, as internal/build names them
	Tools     string    `json:"tools"`
	Helm      string    `json:"helm"`
	Images    string    `json:"images"`
	Started   time.Time `json:"started"`
	PID       int       `json:"pid"`       // PID 1 of the node, as this machine counts
	StartTime uint64    `json:"startTime"` // of that process, in clock ticks since boot: a PID alone may come again
	BootID    string    `json:"bootID"`
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`)

// CheckName returns an error unless name is valid for a cluster.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("cluster name %q: want 1 to 30 lower-case letters, digits and hyphens, such as e2e", name)
	}
	return nil
}

// CgroupName is the name of the cluster's control group: unique for a name and a folder.
func (c *Cluster) CgroupName() string {
	sum := sha256.Sum256([]byte(c.Dir))
	return fmt.Sprintf("fairlead-%s-%x", c.Name, sum[:4])
}

// Path is a file or folder of the cluster's.
func (c *Cluster) Path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// Kubeconfig is the administrator's. Its server address is one of the node's network.
func (c *Cluster) Kubeconfig() string { return c.Path("pki", "admin.kubeconfig") }

// Load reads what is known of a cluster; where nothing is, the error is fs.ErrNotExist.
func Load(dir string) (*Cluster, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
	if err != nil {
		return nil, err
	}
	var c Cluster
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, "cluster.json"), err)
	}
	return &c, nil
}

// Save writes the file as a whole.
func (c *Cluster) Save() error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	temp := c.Path("cluster.json.new")
	if err := os.WriteFile(temp, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, c.Path("cluster.json"))
}

// SetProcess records a process as the node.
func (c *Cluster) SetProcess(pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return fmt.Errorf("reading the node's process: %w", err)
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	c.PID, c.StartTime, c.BootID = pid, start, boot
	return nil
}

// Alive reports whether the recorded process runs, and not another one with the same number.
func (c *Cluster) Alive() bool {
	fd, err := c.open()
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return !ended(fd, 0)
}

// open returns a descriptor of the recorded process, which cannot come to mean another. A process
// that has ended may still be found. (Its state in /proc is no sign: a program that starts itself
// again from another thread than its first, as the node does, is a zombie there for a moment.)
func (c *Cluster) open() (fd int, err error) {
	if c == nil || c.PID == 0 {
		return 0, unix.ESRCH
	}
	if fd, err = unix.PidfdOpen(c.PID, 0); err != nil {
		return 0, err
	}
	boot, err := bootID()
	start, err2 := startTime(c.PID)
	if err != nil || err2 != nil || boot != c.BootID || start != c.StartTime {
		_ = unix.Close(fd)
		return 0, unix.ESRCH
	}
	return fd, nil
}

// ended waits for the end of a process, at most for a time.
func ended(fd int, wait time.Duration) bool {
	for deadline := time.Now().Add(wait); ; {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if n > 0 {
			return true
		}
		if !errors.Is(err, unix.EINTR) && left < time.Millisecond {
			return false
		}
	}
}

// Kill ends the node, and so every process in it, and waits until it is gone, at most ten seconds.
func (c *Cluster) Kill() error {
	fd, err := c.open()
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the node's process: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending the node: %w", err)
	}
	if !ended(fd, 10*time.Second) {
		return fmt.Errorf("the node's process %d does not end", c.PID)
	}
	return nil
}

// startTime reads when a process started, in clock ticks since boot.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name before may hold anything
	if len(f) < 20 {
		return 0, errors.New("unexpected form of /proc/PID/stat")
	}
	return strconv.ParseUint(f[19], 10, 64)
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// Lock makes the folder if need be and keeps other commands away from it until unlock. The lock is
// on the folder itself, so that removing it leaves nothing.
func Lock(ctx context.Context, out io.Writer, dir string) (unlock func(), err error) {
	for first := true; ; first = false {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("creating the state folder: %w", err)
		}
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by another command at this moment
		}
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFolder(f, dir) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
		if err == nil {
			continue
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		if first {
			_, _ = fmt.Fprintln(out, "another command works on this cluster; waiting for it")
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func sameFolder(f *os.File, dir string) bool {
	a, err := f.Stat()
	b, err2 := os.Stat(dir)
	return err == nil && err2 == nil && os.SameFile(a, b)
}
