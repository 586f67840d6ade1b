// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package enter runs programs inside a node: in its mount, network, pid, uts and ipc namespaces, as
// nsenter(1) would. A process number and a command come in; the command's exit code goes out.
package enter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
)

const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// HelperCommand is the hidden sub-command that Run starts inside: HelperCommand -- COMMAND ARG…
const HelperCommand = "node-exec"

// exitNotFound is a shell's exit code for a command that cannot be run.
const exitNotFound = 127

// Helper becomes the command of its arguments, which dies with the thread that started the helper.
// (SysProcAttr.Pdeathsig cannot do this: in another pid namespace the parent's number is 0, which
// it takes for a dead parent.)
func Helper(args []string) (exit int, err error) {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return exitNotFound, fmt.Errorf("tying the command to its caller: %w", err)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return exitNotFound, err
	}
	return exitNotFound, fmt.Errorf("running %s: %w", path, syscall.Exec(path, args, os.Environ()))
}

// Command is a program to run inside.
type Command struct {
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Signals makes Run pass on SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 that this
	// process gets.
	Signals bool
}

// Environ is the environment of programs inside: that of this process, the cluster's programs first
// in PATH, and its kubeconfig. What kubectl and helm keep goes to the cluster's folder.
func Environ(c *state.Cluster) []string {
	path := c.Tools + ":" + c.Helm + ":" + c.Kubenode + ":" + c.Images + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
	return append(os.Environ(), "PATH="+path, "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+c.Path("kube-cache"),
		"HELM_CACHE_HOME="+c.Path("helm", "cache"), "HELM_CONFIG_HOME="+c.Path("helm", "config"),
		"HELM_DATA_HOME="+c.Path("helm", "data"))
}

// Run runs a command to its end in the folder of the caller. The command is killed when this
// process dies, or when ctx ends. A command that a signal ended has 128 and the signal's number as
// its exit code.
func Run(ctx context.Context, c *state.Cluster, cmd Command) (exit int, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	type result struct {
		exit int
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		// The thread changes its namespaces, so it is never unlocked and ends with the goroutine;
		// the command is its child and dies with it.
		runtime.LockOSThread()
		exit, err := runLocked(ctx, c, cmd, dir)
		ended <- result{exit, err}
	}()
	r := <-ended
	return r.exit, r.err
}

func runLocked(ctx context.Context, c *state.Cluster, cmd Command, dir string) (int, error) {
	if err := join(c.PID); err != nil {
		return 0, err
	}
	if _, err := os.Stat(dir); err != nil {
		return 0,
			fmt.Errorf("this folder is not visible in the node, which has its own /var/lib, /var/log and /run: %w", err)
	}
	p := exec.CommandContext(ctx, "/proc/self/exe", append([]string{HelperCommand, "--"}, cmd.Args...)...)
	p.Dir, p.Env, p.Stdin, p.Stdout, p.Stderr = dir, Environ(c), cmd.Stdin, cmd.Stdout, cmd.Stderr
	if err := p.Start(); err != nil {
		return 0, err
	}
	if cmd.Signals {
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
			syscall.SIGUSR2)
		defer signal.Stop(signals)
		done := make(chan struct{})
		defer close(done)
		go forward(signals, done, p.Process)
	}
	err := p.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// join moves the calling thread into the namespaces of a process; its later children join the pid
// namespace.
func join(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("opening the node's process: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // threads share their root folder, which setns would change
		return fmt.Errorf("entering the node: %w", err)
	}
	if err := unix.Setns(fd, namespaces); err != nil {
		return fmt.Errorf("entering the node (this needs root): %w", err)
	}
	return nil
}

// forward passes signals on. Those that a terminal's keys make reach the command anyway, as it is
// in the same group.
func forward(signals <-chan os.Signal, done <-chan struct{}, p *os.Process) {
	for {
		select {
		case s := <-signals:
			if (s == syscall.SIGINT || s == syscall.SIGQUIT) && inForeground() {
				continue
			}
			_ = p.Signal(s) // it may have ended
		case <-done:
			return
		}
	}
}

func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer func() { _ = tty.Close() }()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
