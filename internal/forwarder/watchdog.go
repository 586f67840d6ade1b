// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"sync"
	"time"
)

// watchdog watches over a stream while the client waits for the edge: a connection that the edge
// has not opened is given up at the end of its hold, and one that waits for an HTTP answer when the
// edge has not responded for as long. Its methods are safe for concurrent use.
type watchdog struct {
	attempt *attempt
	timeout time.Duration // how long the edge may be unresponsive

	mu      sync.Mutex
	cancel  func() // of the watch on the stream; nil while the client does not wait
	stopped bool
}

// start begins to watch a trial whose stream the edge has yet to open.
func (u *watchdog) start(t *attempt, hold time.Duration) {
	u.attempt, u.timeout = t, hold
	u.arm()
}

// arm begins to watch, unless that has begun: the client has sent something.
func (u *watchdog) arm() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cancel == nil && !u.stopped {
		u.cancel = u.attempt.stream.OnUnresponsive(u.onUnresponsive)
	}
}

// disarm ends the watch: the edge has sent something.
func (u *watchdog) disarm() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cancel != nil {
		u.cancel()
		u.cancel = nil
	}
}

// stop ends the watch for good.
func (u *watchdog) stop() {
	u.disarm()
	u.mu.Lock()
	u.stopped = true
	u.mu.Unlock()
}

// onUnresponsive must not wait for mu: asked may be calling it.
func (u *watchdog) onUnresponsive() {
	if u.attempt.setOpenDeadline(u.attempt.clientConn.sessionDeadline) {
		return
	}
	since, _ := u.attempt.stream.Unresponsive()
	time.AfterFunc(time.Until(since.Add(u.timeout)), u.abortIfUnresponsive)
}

// abortIfUnresponsive aborts the client's connection, unless the edge responds again: then it is watched again.
func (u *watchdog) abortIfUnresponsive() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cancel == nil {
		return
	}
	if _, yes := u.attempt.stream.Unresponsive(); yes {
		_ = u.attempt.Abort()
		return
	}
	u.cancel()
	u.cancel = u.attempt.stream.OnUnresponsive(u.onUnresponsive)
}
