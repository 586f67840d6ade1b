// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// held is what one session holds.
type held struct {
	session *tunnel.Session

	mu      sync.Mutex
	ids     map[int]string // by index of the endpoint: the id of what the session holds
	waiting int            // binds that are not answered
	changed chan struct{}  // closed and replaced by each answer
}

func newHeld(s *tunnel.Session) *held {
	return &held{session: s, ids: map[int]string{}, changed: make(chan struct{})}
}

// asked counts a bind that is about to be sent.
func (h *held) asked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting++
}

// answered notes the answer to a bind; id is "" when it was refused.
func (h *held) answered(index int, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting--
	if id != "" {
		h.ids[index] = id
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// missing returns the indexes below n of what the session does not hold.
func (h *held) missing(n int) []int {
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

// all returns the ids of what the session holds once every bind is answered. ok is false when that
// did not happen.
func (h *held) all(ctx context.Context) (ids []string, ok bool) {
	ok = h.until(ctx, func() bool { return h.waiting == 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range h.ids {
		ids = append(ids, id)
	}
	return ids, ok
}

// index finds an endpoint by its id. A stream can overtake the answer to the bind that made it
// possible, so it waits for binds that are not answered.
func (h *held) index(ctx context.Context, id string) (index int, ok bool) {
	h.until(ctx, func() bool {
		for i, have := range h.ids {
			if have == id {
				index, ok = i, true
			}
		}
		return ok || h.waiting == 0
	})
	return index, ok
}

// until waits for a condition, which is looked at under the lock. It returns false when the session
// or ctx ended first.
func (h *held) until(ctx context.Context, holds func() bool) bool {
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
