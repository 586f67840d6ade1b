// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/enter"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
)

// supervisor starts the node's programs, starts them again when they end, and reaps every orphan,
// as PID 1 must. It is the only one to wait for children. Its methods may be called from several
// goroutines.
type supervisor struct {
	c    *state.Cluster
	env  []string
	wake chan struct{} // a child exists again

	mu       sync.Mutex
	children map[int]chan syscall.WaitStatus
	ends     map[string]int // how often a program has ended by itself
}

const restartDelay = time.Second

func newSupervisor(c *state.Cluster) *supervisor {
	s := &supervisor{
		c: c, env: enter.Environ(c), wake: make(chan struct{}, 1),
		children: map[int]chan syscall.WaitStatus{}, ends: map[string]int{},
	}
	go s.reap()
	return s
}

func (s *supervisor) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case err == nil:
			s.mu.Lock()
			ended := s.children[pid]
			delete(s.children, pid)
			s.mu.Unlock()
			if ended != nil {
				ended <- ws
			}
		case errors.Is(err, syscall.ECHILD):
			<-s.wake
		}
	}
}

// spawn starts a program whose output goes to a log. Its status comes through the channel.
func (s *supervisor) spawn(log string, args []string) (pid int, ended <-chan syscall.WaitStatus, err error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return 0, nil, err
	}
	out, err := os.OpenFile(s.logFile(log), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = out.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = null.Close() }()
	ch := make(chan syscall.WaitStatus, 1)
	s.mu.Lock()
	defer s.mu.Unlock() // the reaper must not meet a child that is not in the map yet
	pid, err = syscall.ForkExec(path, args,
		&syscall.ProcAttr{Env: s.env, Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}})
	if err != nil {
		return 0, nil, fmt.Errorf("starting %s: %w", path, err)
	}
	s.children[pid] = ch
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return pid, ch, nil
}

// keep starts a program and starts it again whenever it ends.
func (s *supervisor) keep(args ...string) error { return s.keepAs(args[0], args...) }

// keepAs keeps a program under a name that is not its path's.
func (s *supervisor) keepAs(name string, args ...string) error {
	_, ended, err := s.spawn(name, args)
	if err != nil {
		return err
	}
	go func() {
		for {
			ws := <-ended
			s.mu.Lock()
			s.ends[name]++
			s.mu.Unlock()
			fmt.Printf("%s %s ended: %s; starting it again\n", time.Now().Format(time.RFC3339), name, describe(ws))
			for {
				time.Sleep(restartDelay)
				if _, ended, err = s.spawn(name, args); err == nil {
					break
				}
				fmt.Printf("%s %v\n", time.Now().Format(time.RFC3339), err)
			}
		}
	}()
	return nil
}

// run runs a command to its end. Its output is in the error and in a log.
func (s *supervisor) run(ctx context.Context, log string, args ...string) error {
	pid, ended, err := s.spawn(log, args)
	if err != nil {
		return err
	}
	select {
	case ws := <-ended:
		if ws.Exited() && ws.ExitStatus() == 0 {
			return nil
		}
		return fmt.Errorf("%s: %s\n%s", strings.Join(args[:min(3, len(args))], " "), describe(ws), s.tail(log, 5))
	case <-ctx.Done():
		_ = syscall.Kill(pid, syscall.SIGKILL) // or it ends by itself at this moment
		<-ended
		return fmt.Errorf("%s: %w", strings.Join(args[:min(3, len(args))], " "), ctx.Err())
	}
}

// failing names a program that has ended several times, with the end of its log.
func (s *supervisor) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range s.ends {
		if n >= 3 {
			return fmt.Errorf("%s ended %d times; its log ends with:\n%s", name, n, s.tail(name, 8))
		}
	}
	return nil
}

func (s *supervisor) logFile(name string) string { return s.c.Path("log", name+".log") }

// tail returns the last lines of a log.
func (s *supervisor) tail(log string, n int) string {
	b, err := os.ReadFile(s.logFile(log))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "signal " + ws.Signal().String()
	}
	return fmt.Sprintf("exit code %d", ws.ExitStatus())
}
