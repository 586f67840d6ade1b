// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"sync"
	"time"
)

// When a child that went down is tried again, and when it is back.
const (
	firstRetry    = time.Second
	lastRetry     = 30 * time.Second
	recoveryPace  = time.Second // between two live connections to a child that recovers
	recoverySpan  = 10 * time.Second
	recoveryCount = 3
	// probeLease is how long a live connection that tries a child keeps others from trying it too,
	// when nobody tells its outcome.
	probeLease = maxDuration
)

// health is what live connections have taught of one child of one backend. The zero value is up. It
// is safe for concurrent use.
type health struct {
	mu        sync.Mutex
	down      bool // not fully up
	successes int  // since it went down; more than 0 = it recovers
	// when it went down, began to recover or was back; outcomes of older attempts are out of date
	since  time.Time
	delay  time.Duration       // between the last failure and the next try
	next   time.Time           // when the next live connection may try it
	lease  time.Time           // until then one does
	votes  votes               // while it is up
	barred map[voter]time.Time // who may not try it until then; since it went down
}

// level is how far a child can be relied on.
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

// due says that a live connection may try the child now.
func (h *health) due(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dueLocked(now)
}

func (h *health) dueLocked(now time.Time) bool {
	return h.down && !now.Before(h.next) && !now.Before(h.lease)
}

// take makes the caller the one live connection that tries the child, and says whether it is.
func (h *health) take(now time.Time, by voter) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dueLocked(now) || now.Before(h.barred[by]) {
		return false
	}
	h.lease = now.Add(probeLease)
	return true
}

// release gives the turn of a probe without an outcome to the next.
func (h *health) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = time.Time{}
}

// success notes that an attempt that began at started got through, and says whether the level
// changed.
func (h *health) success(now, started time.Time, probe bool) bool {
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
	h.lease, h.next = time.Time{}, now.Add(recoveryPace)
	if h.successes >= recoveryCount && now.Sub(h.since) >= recoverySpan {
		h.down, h.successes, h.delay, h.since = false, 0, 0, now
		h.votes, h.barred = votes{}, nil
	}
	return h.levelLocked() != before
}

// failure notes that an attempt that began at started failed, and says whether the level changed.
// While the child is down only the probe counts, so that a thousand connections that fail at once
// put it off no longer than one.
func (h *health) failure(now, started time.Time, probe bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.levelLocked()
	switch {
	case probe && h.down:
	case started.Before(h.since) || before == levelDown:
		return false
	}
	h.delay = min(max(firstRetry, 2*h.delay), lastRetry)
	h.down, h.successes, h.lease, h.next = true, 0, time.Time{}, now.Add(h.delay)
	if before != levelDown {
		h.since = now
	}
	return before != levelDown
}
