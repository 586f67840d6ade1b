// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// ownMounts tells the test binary that it runs in a mount namespace of its own.
const ownMounts = "FAIRLEAD_TEST_OWN_MOUNTS"

// SmallDisk is a filesystem of a few megabytes.
type SmallDisk struct {
	T    *testing.T
	Dir  string
	megs int
}

// OnSmallDisk runs the test on a filesystem of so many megabytes, in a copy of the test binary that
// has a mount namespace of its own. The test is skipped where there are no such namespaces. Call it
// as the first thing of a test.
func OnSmallDisk(t *testing.T, megs int, run func(*SmallDisk)) {
	t.Helper()
	if os.Getenv(ownMounts) != "" {
		d := &SmallDisk{T: t, Dir: t.TempDir(), megs: megs}
		Must(t, syscall.Mount("tmpfs", d.Dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megs)))
		t.Cleanup(func() { Must(t, syscall.Unmount(d.Dir, 0)) })
		run(d)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownMounts+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Skipf("no mount namespaces here: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Fill takes all the room.
func (d *SmallDisk) Fill() {
	d.T.Helper()
	if err := os.WriteFile(d.ballast(), make([]byte, d.megs<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		d.T.Fatalf("filling the disk: %v", err)
	}
}

// Free gives the room back.
func (d *SmallDisk) Free() {
	d.T.Helper()
	Must(d.T, os.Remove(d.ballast()))
}

func (d *SmallDisk) ballast() string { return filepath.Join(d.Dir, "ballast") }
