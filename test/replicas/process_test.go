// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/inputs"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// process is a running program.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	log   logbuffer.Buffer // its standard output and error
	ended chan struct{}
}

// startProcess runs the server's program until its end or the test's. Its environment is env alone.
func startProcess(t testing.TB, name string, env []string, args ...string) *process {
	t.Helper()
	return startProgram(t, program, name, env, args...)
}

// startProgram is startProcess for a program at a path.
func startProgram(t testing.TB, path, name string, env []string, args ...string) *process {
	t.Helper()
	recorded.Do(func() {
		inputs.Record(t, "../../cmd", "../../internal", "../../api", "../../sdk", "../../go.mod", "../../go.sum")
	})
	p := &process{t: t, name: name, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer close(p.ended)
		runtime.LockOSThread() // the program ends with the thread that has started it
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the exit code is in ProcessState
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s:\n%s", name, lastLines(p.log.String(), 60))
		}
	})
	return p
}

// signal sends a signal to the process, which may have ended.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("sending %s to %s: %v", s, p.name, err)
	}
}

// kill ends the process at once and waits for its end, also while it is stopped.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// terminate asks the process to end and returns its exit code.
func (p *process) terminate() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.exitCode()
}

// exitCode waits for the end of the process.
func (p *process) exitCode() int {
	p.t.Helper()
	wait.Receive(p.t, "end of "+p.name, p.ended)
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) isRunning() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
