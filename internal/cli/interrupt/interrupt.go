// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package interrupt handles SIGINT and SIGTERM: the first signal cancels a context, the last one
// ends the process. The commands of agent, operator and server run under that context.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

// duplicateWindow is how soon a second signal counts as a duplicate: a terminal sends Ctrl-C to a
// whole process group, and a wrapper in it may forward it as well.
const duplicateWindow = 300 * time.Millisecond

// Context returns a context that is cancelled by the first SIGINT or SIGTERM. The second signal
// ends the process at once with exit code 128 plus the signal's number; a signal within 300 ms
// after the previous one is ignored. The handler stays installed after the first signal, as a
// process that a script started in the background inherits an ignored SIGINT. stop removes the
// handler and cancels the context; it may be called more than once. Further signals count like
// SIGTERM, unless the process was started to ignore them, as nohup does with SIGHUP.
func Context(parent context.Context, further ...os.Signal) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	return ctx, runOnSignals(slices.DeleteFunc(further, signal.Ignored), cancel)
}

// WithForceStop is Context for a process that drains live traffic: the first signal cancels ctx,
// the second closes forceStop, and the third ends the process.
func WithForceStop(parent context.Context) (ctx context.Context, forceStop <-chan struct{}, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	forced := make(chan struct{})
	return ctx, forced, runOnSignals(nil, cancel, func() { close(forced) })
}

// runOnSignals runs one step per signal, and ends the process at the signal after the last step.
// stop runs the first step, too.
func runOnSignals(further []os.Signal, steps ...func()) (stop func()) {
	stopped := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, append(further, os.Interrupt, syscall.SIGTERM)...)
	first := steps[0]
	go func() {
		defer signal.Stop(signals)
		var last time.Time
		for {
			select {
			case s := <-signals:
				switch {
				case time.Since(last) < duplicateWindow:
				case len(steps) == 0:
					os.Exit(exitCode(s))
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

func exitCode(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}
