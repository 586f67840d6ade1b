// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"sync"
	"time"
)

const (
	// unansweredPatience is how long an agent that was given a request which may not be sent twice
	// may not respond. With the time that it takes to notice that, the client waits 10 s at most
	// where a round trip takes less than half a second.
	unansweredPatience = 6 * time.Second
	// silenceStep is the pause until an agent that does not respond is watched again, silenceGap the
	// longest time between two reports of one silence: a replica that has the agent's connections is
	// asked for them.
	silenceStep = time.Second
	silenceGap  = 3 * time.Second
)

// watchable is a *tunnel.Stream.
type watchable interface {
	OnUnresponsive(f func()) (stop func())
}

// silenceWatch watches the agent of a stream.
type silenceWatch struct {
	stream   watchable
	patience time.Duration
	cancel   context.CancelCauseFunc
	reason   error

	mu          sync.Mutex
	stopStream  func()
	timer       *time.Timer // nil = the agent responds
	since, last time.Time   // first and last report of the silence
	stopped     bool
}

// watchSilence cancels with the reason once the agent of the stream has not responded for as long as
// patience says, unless it is stopped before.
func watchSilence(s watchable, patience time.Duration, cancel context.CancelCauseFunc, reason error) *silenceWatch {
	w := &silenceWatch{stream: s, patience: patience, cancel: cancel, reason: reason}
	w.watch()
	return w
}

func (w *silenceWatch) watch() {
	stop := w.stream.OnUnresponsive(w.unresponsive) // may call it at once
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopStream = stop; w.stopped {
		stop()
	}
}

func (w *silenceWatch) unresponsive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.last) > silenceGap {
		w.since = now
	}
	w.last = now
	switch {
	case w.stopped:
	case now.Sub(w.since) >= w.patience:
		w.cancel(w.reason)
	default:
		w.timer = time.AfterFunc(silenceStep, w.watch)
	}
}

func (w *silenceWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.stopStream()
	if w.timer != nil {
		w.timer.Stop()
	}
}
