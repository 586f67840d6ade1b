// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// sessionBinds are the binds of one session. Fields that are not set by newSessionBinds at once and
// for all are guarded by Agent.mu.
type sessionBinds struct {
	session *tunnel.Session
	legs    sessionLegs
	wake    chan struct{} // gets a token when queue has got something

	queue     []*endpoint
	notBefore time.Time // the server limits the rate until then
	ended     bool      // it binds nothing any more
	pending   int       // endpoints in work
	changed   chan struct{}
	results   map[*endpoint]error // the first attempts' results, until all are known; nil = not recorded
}

func newSessionBinds(s *tunnel.Session) *sessionBinds {
	return &sessionBinds{session: s, legs: sessionLegs{changed: make(chan struct{}, 1)},
		wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// push adds an endpoint to the queue. Agent.mu must be held.
func (h *sessionBinds) push(e *endpoint) {
	h.queue = append(h.queue, e)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// signal wakes waitFor. Agent.mu must be held.
func (h *sessionBinds) signal() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// trackSession records a new session, which will bind the endpoints, and forgets those that have
// ended.
func (a *Agent) trackSession(h *sessionBinds) (first []*endpoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.bindsBySession {
		select {
		case <-s.Done():
			delete(a.bindsBySession, s)
		default:
		}
	}
	a.bindsBySession[h.session], a.current = h, h
	a.sessionCount++
	if a.opt.KeepRunning {
		a.lastCause = ""
	} else {
		h.results = make(map[*endpoint]error, len(a.order))
	}
	for _, e := range a.order {
		e.failures = 0
		a.enqueue(e)
	}
	return a.order
}

// waitFor waits until holds, called with mu held, returns true. It returns false when the session
// or ctx ended first.
func (a *Agent) waitFor(ctx context.Context, h *sessionBinds, holds func() bool) bool {
	for {
		a.mu.Lock()
		ok, changed := holds(), h.changed
		a.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-h.session.Done():
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// next takes the next endpoint from the queue, whose work begins. It waits for one, and returns nil
// when the session binds nothing any more.
func (a *Agent) next(ctx context.Context, h *sessionBinds) *endpoint {
	for {
		e, pause := a.dequeue(h)
		if e != nil {
			return e
		}
		var due <-chan time.Time // nil: only a token wakes it
		if pause > 0 {
			due = time.After(pause)
		}
		select {
		case <-due:
		case <-h.wake:
		case <-ctx.Done():
			return nil
		case <-h.session.PeerDraining():
			return nil
		case <-a.shuttingDown:
			return nil
		}
	}
}

// dequeue removes and returns the next endpoint of the queue, or how long to wait for it; 0 = until
// there is one.
func (a *Agent) dequeue(h *sessionBinds) (e *endpoint, pause time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(h.queue) > 0 && !a.isShuttingDown() {
		if pause = time.Until(h.notBefore); pause > 0 {
			return nil, pause
		}
		e, h.queue = h.queue[0], h.queue[1:]
		e.queue = nil
		if !e.syncing {
			e.syncing, h.pending = true, h.pending+1
			return e, 0
		}
		e.again = true // an earlier session is binding it
	}
	return nil, 0
}

// endBinds ends the binding by a session: what was removed and is in its queue is released.
func (a *Agent) endBinds(h *sessionBinds) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.ended = true
	for _, e := range h.queue {
		if e.queue != h {
			continue
		}
		e.queue = nil
		a.enqueueOrRelease(e)
	}
	h.queue = nil
}
