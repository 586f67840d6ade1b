// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// sessionBinds are the endpoints that one session holds and its unanswered binds. Safe for
// concurrent use.
type sessionBinds struct {
	session *tunnel.Session
	legs    sessionLegs

	mu      sync.Mutex
	ids     map[int]string // by index of the endpoint: the id of what the session holds
	pending int            // binds that are not answered
	changed chan struct{}  // closed and replaced by each answer
}

func newSessionBinds(s *tunnel.Session) *sessionBinds {
	return &sessionBinds{session: s, legs: sessionLegs{changed: make(chan struct{}, 1)}, ids: map[int]string{},
		changed: make(chan struct{})}
}

// addPending counts a bind that is about to be sent.
func (h *sessionBinds) addPending() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending++
}

// setAnswer records the answer to a bind; id is "" when it was refused.
func (h *sessionBinds) setAnswer(index int, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending--
	if id != "" {
		h.ids[index] = id
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// missing returns the indexes below n that the session does not hold.
func (h *sessionBinds) missing(n int) []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []int
	for i := range n {
		if h.ids[i] == "" {
			out = append(out, i)
		}
	}
	return out
}

// allIDs waits until every bind is answered and returns the ids that the session holds. ok is false
// when ctx or the session ended first.
func (h *sessionBinds) allIDs(ctx context.Context) (ids []string, ok bool) {
	ok = h.waitFor(ctx, func() bool { return h.pending == 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range h.ids {
		ids = append(ids, id)
	}
	return ids, ok
}

// indexOf returns the index of the endpoint with this id. A stream can arrive before the answer to
// its bind, so indexOf waits for pending binds.
func (h *sessionBinds) indexOf(ctx context.Context, id string) (index int, ok bool) {
	h.waitFor(ctx, func() bool {
		for i, have := range h.ids {
			if have == id {
				index, ok = i, true
			}
		}
		return ok || h.pending == 0
	})
	return index, ok
}

// waitFor waits until holds, called with mu held, returns true. It returns false when the session
// or ctx ended first.
func (h *sessionBinds) waitFor(ctx context.Context, holds func() bool) bool {
	for {
		h.mu.Lock()
		ok, changed := holds(), h.changed
		h.mu.Unlock()
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
