// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"sync"
	"time"
)

// watchdog aborts an attempt whose client waits for an edge that does not respond: before the
// stream is open at once if the attempt can be repeated with another replica, and else at the
// session deadline; afterwards when an HTTP response is due and the edge has not responded for the
// timeout. Its methods are safe for concurrent use.
type watchdog struct {
	attempt *attempt
	timeout time.Duration // how long the edge may be unresponsive

	mu      sync.Mutex
	cancel  func() // ends the stream's notification; nil while disarmed
	stopped bool
}

// start arms the watchdog of an attempt whose stream the edge has yet to open.
func (u *watchdog) start(t *attempt, timeout time.Duration) {
	u.attempt, u.timeout = t, timeout
	u.arm()
}

// arm starts watching, unless it is armed: the client has sent something.
func (u *watchdog) arm() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cancel == nil && !u.stopped {
		u.cancel = u.attempt.stream.OnUnresponsive(u.onUnresponsive)
	}
}

// disarm stops watching: the edge has sent something.
func (u *watchdog) disarm() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cancel != nil {
		u.cancel()
		u.cancel = nil
	}
}

// stop disarms the watchdog permanently.
func (u *watchdog) stop() {
	u.disarm()
	u.mu.Lock()
	u.stopped = true
	u.mu.Unlock()
}

// onUnresponsive must not wait for mu: arm may be calling it.
func (u *watchdog) onUnresponsive() {
	if u.attempt.giveUp() || u.attempt.setOpenDeadline(u.attempt.SessionDeadline) {
		return
	}
	since, unresponsive := u.attempt.stream.Unresponsive()
	left := time.Until(since.Add(u.timeout))
	if unresponsive && left <= 0 { // the client has sent a request since: it waits as long as a new connection
		left = u.timeout
	}
	time.AfterFunc(left, u.abortIfUnresponsive)
}

// abortIfUnresponsive aborts the client's connection, unless the edge responds again; then it
// watches again.
func (u *watchdog) abortIfUnresponsive() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cancel == nil {
		return
	}
	if _, unresponsive := u.attempt.stream.Unresponsive(); unresponsive {
		_ = u.attempt.Abort()
		return
	}
	u.cancel()
	u.cancel = u.attempt.stream.OnUnresponsive(u.onUnresponsive)
}
