// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// needs ends the run, with what to do, where it would break in its midst.
func needs(b *testing.B, descriptors int) {
	b.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		b.Fatalf(
			"the memory of the processes and the CPU time of the machine are read from /proc, which is not mounted: %v",
			err)
	}
	var limit unix.Rlimit
	must.Succeed(b, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if limit.Cur < uint64(descriptors) { // the Go runtime has raised it as far as it may
		b.Fatalf("%d open files are needed, and %d are the most for this process: raise the limit (ulimit -Hn)",
			descriptors,
			limit.Cur)
	}
}

// needsLink is needs for the emulated link.
func needsLink(b *testing.B, congestion []string) {
	b.Helper()
	needs(b, 1000)
	if os.Geteuid() != 0 {
		b.Fatal("the emulated link has network namespaces and TUN devices: run it as root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		b.Fatalf("the emulated link is made with ip: install iproute2: %v", err)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		b.Fatalf("the emulated link has TUN devices: load the kernel module tun: %v", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Succeed(b, err)
	defer func() { _ = unix.Close(fd) }()
	for _, name := range congestion {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
			b.Fatalf("the kernel has no congestion control %s: load the module tcp_%s: %v", name, name, err)
		}
	}
}

const noRightsID = 65534 // the user and the group without rights

// unprivilegedCommand returns this program, to be run by an ordinary user.
func unprivilegedCommand() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe") // root alone may enter its folder
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: noRightsID, Gid: noRightsID}}
	}
	return cmd
}

// giveAway gives a test's folder, and what is above it, to the user of unprivilegedCommand.
func giveAway(b testing.TB, dir string) {
	b.Helper()
	if os.Geteuid() != 0 {
		return
	}
	must.Succeed(b, filepath.WalkDir(filepath.Dir(dir), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, noRightsID, noRightsID))
	}))
}

// cpuTime returns the CPU time that a process has used, in all its threads. /proc/<pid>/stat has it
// in steps of 10 ms only.
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2 // a clock that has nanoseconds, of the process whose id's complement is in the bits above three
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &used); err != nil {
		return 0, err
	}
	return time.Duration(used.Nano()), nil
}

func TestMachine_CPUTimeIsPerProcess(t *testing.T) {
	t.Parallel()
	usage := func() time.Duration {
		var r unix.Rusage
		must.Succeed(t, unix.Getrusage(unix.RUSAGE_SELF, &r))
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	for usage() < 100*time.Millisecond { // so that there is something to compare
	}
	before := usage()
	used, err := cpuTime(os.Getpid())
	if after := usage(); err != nil || used < before/2 || used > 2*after {
		t.Errorf("%v, %v; the kernel's count went from %v to %v", used, err, before, after)
	}
	if used, err := cpuTime(1 << 27); err == nil {
		t.Errorf("a process that is not has used %v", used)
	}
}
