// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Process is a background process in the node's network: a server, an agent, an upstream. Its
// methods may be called from several goroutines.
type Process struct {
	name  string
	log   string // path
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of Wait; set before ended is closed
}

// Start runs a command in the node (see Exec) until Stop, Kill or the end of the test. Its output
// is kept, and shown when the test fails.
func (c *Cluster) Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return c.start(t, name, nil, nil, args)
}

// StartInput is Start with something to read on stdin: a file, or the reading end of a pipe, of
// which the process gets a copy.
func (c *Cluster) StartInput(t testing.TB, name string, stdin *os.File, args ...string) *Process {
	t.Helper()
	return c.start(t, name, nil, stdin, args)
}

// StartEnv is Start with further NAME=value entries of the environment: the place for secrets, as
// all users of the machine can read arguments.
func (c *Cluster) StartEnv(t testing.TB, name string, env []string, args ...string) *Process {
	t.Helper()
	return c.start(t, name, env, nil, args)
}

func (c *Cluster) start(t testing.TB, name string, env []string, stdin *os.File, args []string) *Process {
	t.Helper()
	log, err := os.CreateTemp(c.logDir, name+"-*.log")
	must.Succeed(t, err)
	defer func() { _ = log.Close() }() // the process has its own
	p := &Process{name: name, log: log.Name(), ended: make(chan struct{})}
	p.cmd = c.command(context.WithoutCancel(t.Context()), args)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...) // what a command in the node gets, too
	if stdin != nil {
		p.cmd.Stdin = stdin
	}
	// Its own process group: Ctrl-C at the terminal reaches the suite only, which ends its
	// processes in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("output of %s (%s):\n%s", name, p.describeEnd(), p.Output())
		}
	})
	return p
}

// Signal sends a signal to the process. SIGKILL ends it as a crash would.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop ends the process with SIGTERM, with SIGKILL if it has not ended after ten seconds, and waits
// for its end.
func (p *Process) Stop() {
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(commandGrace):
		p.Kill()
	}
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // it may have ended
	<-p.ended
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// ExitCode waits for the end and returns the exit code; 128 and the signal's number if a signal
// ended it, -1 if the command could not be followed to its end.
func (p *Process) ExitCode() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// Output is all that the process has written so far, stdout and stderr together.
func (p *Process) Output() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("(%s: %v)", filepath.Base(p.log), err)
	}
	return string(b)
}

// WaitOutput waits until the output matches a regular expression and returns the match and its
// groups. It ends the test when the process ends before, or after timeout.
func (p *Process) WaitOutput(t testing.TB, timeout time.Duration, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ended := p.ended; ; {
		if m := re.FindStringSubmatch(p.Output()); m != nil {
			return m
		}
		select {
		case <-tick.C:
		case <-ended:
			if m := re.FindStringSubmatch(p.Output()); m != nil {
				return m
			}
			t.Fatalf("%s ended (%s) and did not say %q", p.name, p.describeEnd(), pattern)
		case <-deadline.C:
			t.Fatalf("%s did not say %q within %v", p.name, pattern, timeout)
		}
	}
}

func (p *Process) describeEnd() string {
	select {
	case <-p.ended:
	default:
		return "running"
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		return p.err.Error()
	}
	return p.cmd.ProcessState.String()
}
