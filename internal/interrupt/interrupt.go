// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package interrupt turns the process's first SIGINT or SIGTERM into the end of a context, and the
// last into the end of the process. Signals come in; the command lines of agent, operator and
// service run under the context it hands out.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// same is how long after a signal another is still the same one: a terminal sends Ctrl-C to a whole
// group of processes, and a wrapper among them passes it on, so that it comes twice.
const same = 300 * time.Millisecond

// Context returns a context that ends at the first SIGINT or SIGTERM. Whatever the process does on
// its way out, the second signal ends it at once, with 128 and the signal's number as shells have
// it; one that comes in less than 300 ms is the first one again. Giving the signals back to the
// system would not do: a process that a script started in the background inherits a SIGINT that is
// ignored. stop gives the signals back and ends the context; it may be called more than once.
func Context(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	return ctx, follow(cancel)
}

// WithForceStop is Context for a process that has live traffic to end: the first signal ends ctx,
// the second closes hurry, and the third ends the process.
func WithForceStop(parent context.Context) (ctx context.Context, hurry <-chan struct{}, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	hurried := make(chan struct{})
	return ctx, hurried, follow(cancel, func() { close(hurried) })
}

// follow takes one step with each signal, and ends the process with the one after the last step.
// stop takes the first step, too.
func follow(steps ...func()) (stop func()) {
	stopped := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	first := steps[0]
	go func() {
		defer signal.Stop(signals)
		var last time.Time
		for {
			select {
			case s := <-signals:
				switch {
				case time.Since(last) < same:
				case len(steps) == 0:
					os.Exit(code(s))
				default:
					last = time.Now()
					steps[0]()
					steps = steps[1:]
				}
			case <-stopped:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		first()
		close(stopped)
	})
}

func code(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}
