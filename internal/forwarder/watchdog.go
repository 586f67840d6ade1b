// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"sync"
	"time"
)

// unanswered watches over a stream while the client waits for the edge: a connection that the edge
// has not opened is given up at the end of its hold, and one that waits for an HTTP answer when the
// edge has not responded for as long. Its methods are safe for concurrent use.
type unanswered struct {
	trial *trial
	hold  time.Duration // how long the edge may be unresponsive

	mu    sync.Mutex
	stop  func() // of the watch on the stream; nil while the client does not wait
	ended bool
}

// begin begins to watch a trial whose stream the edge has yet to open.
func (u *unanswered) begin(t *trial, hold time.Duration) {
	u.trial, u.hold = t, hold
	u.asked()
}

// asked begins to watch, unless that has begun: the client has sent something.
func (u *unanswered) asked() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stop == nil && !u.ended {
		u.stop = u.trial.far.OnUnresponsive(u.unresponsive)
	}
}

// answered ends the watch: the edge has sent something.
func (u *unanswered) answered() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stop != nil {
		u.stop()
		u.stop = nil
	}
}

// end ends the watch for good.
func (u *unanswered) end() {
	u.answered()
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
}

// unresponsive must not wait for mu: asked may be calling it.
func (u *unanswered) unresponsive() {
	if u.trial.waitUntil(u.trial.caller.hold) {
		return
	}
	since, _ := u.trial.far.Unresponsive()
	time.AfterFunc(time.Until(since.Add(u.hold)), u.giveUp)
}

// giveUp aborts the client's connection, unless the edge responds again: then it is watched again.
func (u *unanswered) giveUp() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stop == nil {
		return
	}
	if _, yes := u.trial.far.Unresponsive(); yes {
		_ = u.trial.Abort()
		return
	}
	u.stop()
	u.stop = u.trial.far.OnUnresponsive(u.unresponsive)
}
