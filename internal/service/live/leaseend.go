// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// leaseInterval is how often Run asks for the lease: how late it aborts idle requests.
const leaseInterval = 250 * time.Millisecond

// Run aborts all requests while the lease is not valid, also those that pass nothing on, until ctx
// is done. It returns at once without a lease. ended is called after requests have ended with the
// lease, with their number; first is true for the first time since the lease was valid.
func (r *Registry) Run(ctx context.Context, ended func(requests int, first bool)) {
	if r.lease == nil {
		return
	}
	first := true
	for timer.Sleep(ctx, r.untilLeaseCheck()) {
		valid := r.lease.Valid()
		if !valid {
			r.abortLeaseEnded()
		}
		if n := r.takeLeaseEnded(); n > 0 {
			ended(n, first)
			first = false
		}
		first = first || valid
	}
}

// untilLeaseCheck returns how long the lease need not be asked for.
func (r *Registry) untilLeaseCheck() time.Duration {
	if left := r.lease.Remaining(); left > 0 {
		return min(left, leaseInterval)
	}
	return leaseInterval
}

// abortLeaseEnded aborts all requests that have a session. It is no end of the sessions: a request
// that has not named its session goes on.
func (r *Registry) abortLeaseEnded() {
	var all []*Entry
	r.mu.Lock()
	for _, entries := range r.sessions {
		for e := range entries {
			r.countLeaseEnded(e)
			all = append(all, e)
		}
	}
	r.mu.Unlock()
	abortAll(all)
}

// countLeaseEnded counts a request that ends, once, if the lease is not valid; mu must be held.
func (r *Registry) countLeaseEnded(e *Entry) {
	if !e.counted && !r.lease.Valid() {
		e.counted = true
		r.leaseEnded++
	}
}

func (r *Registry) takeLeaseEnded() (requests int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests, r.leaseEnded = r.leaseEnded, 0
	return requests
}
