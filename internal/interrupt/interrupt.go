// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package interrupt turns the process's first SIGINT or SIGTERM into the end of a context, and the second into the end of the process. Signals
// come in; the command lines of the agent and the operator run under the context it hands out.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// same is how long after the first signal another is still the same one: a terminal sends Ctrl-C to a whole group of processes, and a wrapper among them
// passes it on, so that it comes twice.
const same = 300 * time.Millisecond

// Context returns a context that ends at the first SIGINT or SIGTERM. Whatever the process does on its way out, the second signal ends it at once,
// with 128 and the signal's number as shells have it; one that comes in less than 300 ms is the first one again. Giving the signals back to the system would not do: a process that a script started in the
// background inherits a SIGINT that is ignored. stop gives the signals back and ends the context; it may be called more than once.
func Context(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	stopped := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		var first time.Time
		for {
			select {
			case s := <-signals:
				switch {
				case first.IsZero():
					first = time.Now()
					cancel()
				case time.Since(first) >= same:
					os.Exit(code(s))
				}
			case <-stopped:
				return
			}
		}
	}()
	return ctx, sync.OnceFunc(func() {
		cancel()
		close(stopped)
	})
}

func code(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}
