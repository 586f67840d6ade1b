// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// completeMachine returns a machine that lacks nothing.
func completeMachine() Machine {
	return Machine{
		OS: "linux", EUID: 0,
		LookPath: func(name string) (string, error) { return "/usr/bin/" + name, nil },
		ReadFile: func(name string) ([]byte, error) {
			return []byte(map[string]string{
				"/proc/filesystems":    "nodev\tproc\nnodev\toverlay\n",
				"/proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			}[name]), nil
		},
		Exists: func(string) bool { return true },
		Run:    func(context.Context, string, ...string) (string, error) { return "", nil },
	}
}

// without removes programs from a machine.
func without(programs ...string) func(*Machine) {
	return func(m *Machine) {
		m.LookPath = func(name string) (string, error) {
			for _, p := range programs {
				if p == name {
					return "", errors.New("not found")
				}
			}
			return "/usr/bin/" + name, nil
		}
	}
}

// missing are machines that lack something, and the expected error.
var missing = map[string]struct {
	change func(*Machine)
	want   []string // each in a line of its own
}{
	"another system": {func(m *Machine) { m.OS = "darwin" }, []string{"needs Linux and this is darwin"}},
	"no root":        {func(m *Machine) { m.EUID = 1000 }, []string{"needs root"}},
	"no nft": {without("nft"),
		[]string{"the program nft is missing", "apt-get install -y --no-install-recommends nftables"}},
	"no runc, nothing for an image": {without("runc", "curl", "bash"), []string{
		"the program runc is missing", "the program curl is missing: an image", "the program bash is missing",
		"apt-get install -y --no-install-recommends runc tools",
	}},
	"no namespaces": {func(m *Machine) {
		m.Exists = func(p string) bool {
			return p != "/proc/self/ns/cgroup"
		}
	}, []string{"no cgroup namespaces"}},
	"no kmsg": {func(m *Machine) {
		m.Exists = func(p string) bool {
			return p != "/dev/kmsg"
		}
	}, []string{"/dev/kmsg is missing"}},
	"no overlayfs": {func(m *Machine) {
		read := m.ReadFile
		m.ReadFile = func(name string) ([]byte, error) {
			if name == "/proc/filesystems" {
				return []byte("nodev\tproc\n"), nil
			}
			return read(name)
		}
	}, []string{"modprobe overlay"}},
	"no control groups": {func(m *Machine) {
		read := m.ReadFile
		m.ReadFile = func(name string) ([]byte, error) {
			if name == "/proc/self/mountinfo" {
				return []byte("1 1 0:1 / / rw - ext4 /dev/vda rw\n"), nil
			}
			return read(name)
		}
	}, []string{"no control groups"}},
	"no nftables in the kernel": {func(m *Machine) {
		m.Run = func(context.Context, string, ...string) (string, error) {
			return "Error: Could not process rule: No such file or directory\n  chain nat",
				errors.New("exit status 1")
		}
	},
		[]string{
			"CONFIG_NF_TABLES with NAT, reject and conntrack (nft says: Error: Could not process rule: No such " +
				"file or " +
				"directory)"}},
}

func TestCheck_NamesMissingAndRemedy(t *testing.T) {
	t.Parallel()
	for name, tc := range missing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := completeMachine()
			tc.change(&m)
			err := Check(t.Context(), m, Program{"curl", "tools", "an image"}, Program{"bash", "tools", "an image"})
			if err == nil {
				t.Fatal("nothing is missing")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tc.want) {
				t.Fatalf("%d sentences, want %d: %q", len(lines), len(tc.want), lines)
			}
			for i, want := range tc.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("sentence %q, want %q in it", lines[i], want)
				}
			}
		})
	}
}

func TestCheck_AcceptsCompleteMachine(t *testing.T) {
	t.Parallel()
	if err := Check(t.Context(), completeMachine()); err != nil {
		t.Error(err)
	}
}

func TestCheckDir_RefusesHiddenFolders(t *testing.T) {
	t.Parallel()
	for dir, ok := range map[string]bool{
		"/root/.cache/fairlead": true, "/var/library": true, "/srv/x": true,
		"/var/lib": false, "/var/lib/jenkins/x": false, "/run/user/0": false, "/var/log/x": false,
	} {
		err := CheckDir(dir, "--state-dir")
		if (err == nil) != ok {
			t.Errorf("CheckDir(%s) = %v", dir, err)
		}
		if err != nil && !strings.Contains(err.Error(), "choose another with --state-dir") {
			t.Errorf("no remedy in: %v", err)
		}
	}
}
