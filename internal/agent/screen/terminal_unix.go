// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package screen

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// tty is a terminal of a Unix system.
type tty struct {
	*os.File

	resized, stopped, resumed chan os.Signal
}

func openTerminal(f *os.File) (terminal, bool) {
	t := &tty{File: f, resized: make(chan os.Signal, 1), stopped: make(chan os.Signal, 1),
		resumed: make(chan os.Signal, 1)}
	if !term.IsTerminal(int(f.Fd())) || !t.foreground() {
		return nil, false
	}
	signal.Notify(t.resized, syscall.SIGWINCH)
	signal.Notify(t.resumed, syscall.SIGCONT)
	signal.Notify(t.stopped, syscall.SIGTSTP, syscall.SIGQUIT)
	return t, true
}

func (t *tty) size() (columns, rows int) { return sizeOf(t.File) }

// foreground compares process groups. A terminal that does not control the process has no
// foreground group to compare with.
func (t *tty) foreground() bool {
	group, err := unix.IoctlGetInt(int(t.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

func (t *tty) changes() <-chan os.Signal { return t.resized }
func (t *tty) stops() <-chan os.Signal   { return t.stopped }

// suspend does what the signal does to a process that does not catch it. SIGTSTP stops: it returns
// when SIGCONT comes.
func (t *tty) suspend(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	for len(t.resumed) > 0 {
		<-t.resumed
	}
	if number != syscall.SIGTSTP {
		signal.Reset(number)
		_ = syscall.Kill(syscall.Getpid(), number)
		return
	}
	// A shell whose children are in a group of their own waits for the whole group.
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGSTOP); err == nil {
		<-t.resumed
	}
}

func (t *tty) close() {
	signal.Stop(t.resized)
	signal.Stop(t.resumed)
	signal.Stop(t.stopped)
}
