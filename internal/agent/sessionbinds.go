// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"reflect"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// sessionBinds are the binds of one session. Fields that are not set by newSessionBinds at once and
// for all are guarded by endpointSet.mu.
type sessionBinds struct {
	session *tunnel.Session
	legs    sessionLegs
	wake    chan struct{} // gets a token when queue has got something

	queue     []*endpoint
	notBefore time.Time           // the server limits the rate until then
	ended     bool                // it binds nothing any more
	pending   int                 // endpoints in work
	binding   map[*endpoint]*spec // the versions whose bind is not answered yet
	changed   chan struct{}
	results   map[*endpoint]error // the first attempts' results, until all are known; nil = not recorded
}

func newSessionBinds(s *tunnel.Session) *sessionBinds {
	return &sessionBinds{session: s, legs: sessionLegs{changed: make(chan struct{}, 1)},
		wake: make(chan struct{}, 1), binding: make(map[*endpoint]*spec), changed: make(chan struct{})}
}

// changesUpstream reports whether the session is binding another upstream for an endpoint that is
// served. endpointSet.mu must be held.
func (h *sessionBinds) changesUpstream(e *endpoint) bool {
	if h == nil || h.binding[e] == nil {
		return false
	}
	return !reflect.DeepEqual(h.binding[e].Upstream, e.bound.Upstream)
}

// trackSession records a new session, which will bind the endpoints, and forgets those that have
// ended.
func (t *endpointSet) trackSession(h *sessionBinds) (first []*endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.bindsBySession {
		select {
		case <-s.Done():
			delete(t.bindsBySession, s)
		default:
		}
	}
	t.bindsBySession[h.session], t.current = h, h
	if !t.opt.KeepRunning {
		h.results = make(map[*endpoint]error, len(t.order))
	}
	for _, e := range t.order {
		e.failures = 0
		t.enqueue(e)
	}
	return t.order
}

// waitFor waits until holds, called with mu held, returns true. It returns false when the session
// or ctx ended first.
func (t *endpointSet) waitFor(ctx context.Context, h *sessionBinds, holds func() bool) bool {
	for {
		t.mu.Lock()
		ok, changed := holds(), h.changed
		t.mu.Unlock()
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
func (t *endpointSet) next(ctx context.Context, h *sessionBinds) *endpoint {
	for {
		e, pause := t.dequeue(h)
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
		case <-t.stopping.Done():
			return nil
		}
	}
}

// dequeue removes and returns the next endpoint of the queue, or how long to wait for it; 0 = until
// there is one.
func (t *endpointSet) dequeue(h *sessionBinds) (e *endpoint, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(h.queue) > 0 && !t.isStopping() {
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
func (t *endpointSet) endBinds(h *sessionBinds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.ended = true
	for _, e := range h.queue {
		if e.queue != h {
			continue
		}
		e.queue = nil
		t.enqueueOrRelease(e)
	}
	h.queue = nil
}

// bindsOf returns the binds of a session; nil = it is not tracked yet.
func (t *endpointSet) bindsOf(s *tunnel.Session) *sessionBinds {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bindsBySession[s]
}

// latestSession returns the binds of the session that came up last; nil = none did.
func (t *endpointSet) latestSession() *sessionBinds {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// shutDown ends the binding and returns the latest session's binds; nil = there was none.
func (t *endpointSet) shutDown() *sessionBinds {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
	return t.current
}

// boundIDs returns the ids of what the session holds. others reports whether the server may have
// further endpoints of earlier sessions.
func (t *endpointSet) boundIDs(h *sessionBinds) (ids []string, others bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.endpoints {
		if e.session == h {
			ids = append(ids, e.id)
		} else if e.session != nil {
			others = true
		}
	}
	return ids, others
}

func (t *endpointSet) isStopping() bool { return t.stopping.Err() != nil }

// bindPlan is what a session has to do for an endpoint. Without done and unbind it binds spec.
type bindPlan struct {
	done, unbind     bool
	spec             *spec
	id, resumeSecret string // id and resumeSecret are the latest bind's.
}

// plan returns what the session has to do for an endpoint, and records the version that it binds.
func (t *endpointSet) plan(h *sessionBinds, e *endpoint) bindPlan {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := e.session == h
	p := bindPlan{spec: e.spec, id: e.id, resumeSecret: e.resumeSecret, unbind: e.removed,
		done: held && !e.removed && sameBind(e.bound, e.spec) || e.removed && !held || t.isStopping()}
	if delete(h.binding, e); !p.done && !p.unbind {
		h.binding[e] = p.spec
	}
	return p
}

// setBound records that an endpoint is bound, and reports whether it was before.
func (t *endpointSet) setBound(h *sessionBinds, e *endpoint, s *spec, bound tunnel.Bound) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	again = e.everOnline
	if e.id != bound.EndpointID {
		t.forgetID(e)
	}
	e.bound, e.session, e.id, e.resumeSecret = s, h, bound.EndpointID, bound.ResumeSecret
	e.everOnline, e.refusal = true, ""
	t.byID[e.id] = e
	return again
}

// setUnbound records that an endpoint was unbound.
func (t *endpointSet) setUnbound(e *endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.session, e.resumeSecret = nil, ""
}

// setRefused records why a bind was refused. It reports whether that is news, and whether the
// endpoint is still bound as before.
func (t *endpointSet) setRefused(e *endpoint, cause string) (news, bound bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news = e.refusal != cause
	e.refusal = cause
	return news, e.bound != nil && e.session == t.current
}

// finish records the end of a session's work on an endpoint, and begins what is to follow. It
// reports whether the endpoint was removed and unbound, so that its streams are to be drained.
func (t *endpointSet) finish(ctx context.Context, h *sessionBinds, e *endpoint, err error) (unbound bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.syncing = false
	delete(h.binding, e)
	h.pending--
	if _, again := h.results[e]; h.results != nil && !again {
		h.results[e] = err
	}
	close(h.changed) // wakes waitFor
	h.changed = make(chan struct{})
	limited := codeOf(err) == tunnel.CodeRateLimited
	if limited {
		h.notBefore = time.Now().Add(t.opt.pause(0, maxRebind))
	}
	switch {
	case e.again || limited:
		e.again = false
		t.enqueueOrRelease(e)
	case err == nil && e.removed && !t.isStopping():
		t.release(e)
		return true
	case err == nil:
		e.failures = 0
	case ctx.Err() == nil:
		e.retry = time.AfterFunc(t.opt.pause(e.failures, t.opt.longestPause(err)), func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.enqueueOrRelease(e)
		})
		e.failures++
	case e.removed:
		t.forgetID(e)
		t.release(e)
	}
	return false
}
