// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"sync"
	"time"
)

// When a child that went down is tried again, and when it is back.
const (
	firstRetry       = time.Second
	lastRetry        = 30 * time.Second
	recoveryInterval = time.Second // between two live connections to a child that recovers
	recoverySpan     = 10 * time.Second
	recoveryCount    = 3
	// probeLease is how long a probe without a result keeps other connections from probing the
	// child.
	probeLease = maxDuration
)

// health is the state of one child of one backend, learnt from live connections. The zero value is
// up. It is safe for concurrent use.
type health struct {
	mu        sync.Mutex
	down      bool // not fully up
	successes int  // since it went down; more than 0 = recovering
	// when it went down, began to recover or was up again; results of older attempts are ignored
	since         time.Time
	retryDelay    time.Duration // between the last failure and the next probe
	retryAt       time.Time     // when the next live connection may probe it
	probeLeaseEnd time.Time     // until then a probe is running
	statuses      statusWindow  // while it is up
	// clients that may not probe it until then; since it went down
	blocked map[clientKey]time.Time
}

// level is how healthy a child is.
type level int

const (
	levelDown level = iota
	levelRecovering
	levelUp
)

func (h *health) level() level {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.levelLocked()
}

func (h *health) levelLocked() level {
	switch {
	case !h.down:
		return levelUp
	case h.successes > 0:
		return levelRecovering
	}
	return levelDown
}

// probeDue reports whether a live connection may probe the child now.
func (h *health) probeDue(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.probeDueLocked(now)
}

func (h *health) probeDueLocked(now time.Time) bool {
	return h.down && !now.Before(h.retryAt) && !now.Before(h.probeLeaseEnd)
}

// acquireProbe makes the caller the one live connection that probes the child. It returns false
// when it may not.
func (h *health) acquireProbe(now time.Time, client clientKey) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.probeDueLocked(now) || now.Before(h.blocked[client]) {
		return false
	}
	h.probeLeaseEnd = now.Add(probeLease)
	return true
}

// releaseProbe lets another connection probe instead of one without a result.
func (h *health) releaseProbe() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probeLeaseEnd = time.Time{}
}

// recordSuccess records the success of an attempt that began at started. It reports whether the
// level changed.
func (h *health) recordSuccess(now, started time.Time, probe bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.down || !probe && started.Before(h.since) {
		return false
	}
	before := h.levelLocked()
	h.successes++
	if before == levelDown {
		h.since = now
	}
	h.probeLeaseEnd, h.retryAt = time.Time{}, now.Add(recoveryInterval)
	if h.successes >= recoveryCount && now.Sub(h.since) >= recoverySpan {
		h.down, h.successes, h.retryDelay, h.since = false, 0, 0, now
		h.statuses, h.blocked = statusWindow{}, nil
	}
	return h.levelLocked() != before
}

// recordFailure records the failure of an attempt that began at started. It reports whether the
// level changed. While the child is down only the probe counts, so that a thousand connections that
// fail at once delay the next probe no more than one.
func (h *health) recordFailure(now, started time.Time, probe bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.levelLocked()
	switch {
	case probe && h.down:
	case started.Before(h.since) || before == levelDown:
		return false
	}
	h.retryDelay = min(max(firstRetry, 2*h.retryDelay), lastRetry)
	h.down, h.successes, h.probeLeaseEnd, h.retryAt = true, 0, time.Time{}, now.Add(h.retryDelay)
	if before != levelDown {
		h.since = now
	}
	return before != levelDown
}
