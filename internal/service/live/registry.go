// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
)

// Registry holds the requests that are being served, by session. It is safe for concurrent use. It
// remembers the ids of aborted sessions only while a request is in progress that registered before
// the abort and has not named its session.
//
// With a lease, requests are served only while it is valid.
type Registry struct {
	lease *lease.Lease // lease bounds the serving of sessions; nil = it is always valid.

	mu         sync.Mutex
	abortCount uint64 // abortCount counts the calls of Abort.
	listCount  uint64 // listCount counts the calls of Sessions.
	leaseEnded int    // leaseEnded counts the requests that ended with the lease since Run reported them last.
	sessions   map[string]map[*Entry]struct{}
	pending    list.List         // pending has the *Entry values without a session, the oldest in front.
	aborts     []abortRecord     // aborts begins with the oldest record.
	abortedAt  map[string]uint64 // abortedAt is the abortCount of the latest record of each session.
}

// abortRecord is an ended session and the abortCount of its abort.
type abortRecord struct {
	id string
	at uint64
}

// New returns an empty Registry. Without replicas the lease is nil.
func New(l *lease.Lease) *Registry {
	return &Registry{lease: l, sessions: make(map[string]map[*Entry]struct{}), abortedAt: make(map[string]uint64)}
}

// Lease returns the lease of what is served; nil = it is always valid.
func (r *Registry) Lease() *lease.Lease { return r.lease }

// Entry is one request that is being served. Its methods must not be called concurrently.
type Entry struct {
	registry *Registry
	since    uint64        // since is the registry's abortCount at Register.
	listed   uint64        // listed is the registry's listCount at Register.
	element  *list.Element // element is in the registry's pending; nil once the session is named.
	session  string
	unlisted bool // unlisted is set if Sessions was called between Register and SetSession.
	counted  bool // counted is set once leaseEnded counts the request.

	mu      sync.Mutex // mu is held during Abort, so that Done waits for it.
	request Aborter    // request is nil once it was aborted.
	done    bool
}

// Register adds a request before its session is read. Its Abort must not block. It is called at most
// once, and never after Done has returned.
func (r *Registry) Register(request Aborter) *Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &Entry{registry: r, since: r.abortCount, listed: r.listCount, request: request}
	e.element = r.pending.PushBack(e)
	return e
}

// SetSession sets the request's session, once. It returns false when that session was aborted
// since Register: the request must not go on.
func (e *Entry) SetSession(sessionID string) (ok bool) {
	r := e.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	aborted := r.abortedAt[sessionID] > e.since
	r.removePending(e)
	if aborted {
		return false
	}
	e.session = sessionID
	e.unlisted = r.listCount != e.listed
	if r.sessions[sessionID] == nil {
		r.sessions[sessionID] = make(map[*Entry]struct{})
	}
	r.sessions[sessionID][e] = struct{}{}
	return true
}

// MissedComparison reports whether a comparison with the store began between Register and
// SetSession of a registry with a lease. It left out the request's session, which may have ended
// since it was read: it has to be read again.
func (e *Entry) MissedComparison() bool { return e.registry.lease != nil && e.unlisted }

// Done removes the request, which has ended. It waits for an abort that is in progress. It may be
// called more than once.
func (e *Entry) Done() {
	r := e.registry
	r.mu.Lock()
	r.removePending(e)
	if all := r.sessions[e.session]; all != nil {
		r.countLeaseEnded(e)
		if delete(all, e); len(all) == 0 {
			delete(r.sessions, e.session)
		}
	}
	r.mu.Unlock()
	e.mu.Lock()
	e.done = true
	e.mu.Unlock()
}

// removePending removes e from pending, and the abort records that no pending request is older
// than. mu must be held.
func (r *Registry) removePending(e *Entry) {
	if e.element == nil {
		return
	}
	r.pending.Remove(e.element)
	e.element = nil
	oldest := r.pending.Front()
	for len(r.aborts) > 0 && (oldest == nil || r.aborts[0].at <= oldest.Value.(*Entry).since) {
		if a := r.aborts[0]; r.abortedAt[a.id] == a.at {
			delete(r.abortedAt, a.id)
		}
		r.aborts = r.aborts[1:]
	}
	if len(r.aborts) == 0 {
		r.aborts = nil
	}
}

// Abort aborts all requests of the sessions, and makes SetSession return false for those that
// registered before. It returns the number of aborted requests, after all of them were aborted.
func (r *Registry) Abort(sessionIDs []string) (requests int) {
	if len(sessionIDs) == 0 {
		return 0
	}
	var all []*Entry
	r.mu.Lock()
	r.abortCount++
	for _, id := range sessionIDs {
		for e := range r.sessions[id] {
			all = append(all, e)
		}
		if r.pending.Len() > 0 {
			r.aborts = append(r.aborts, abortRecord{id, r.abortCount})
			r.abortedAt[id] = r.abortCount
		}
	}
	r.mu.Unlock()
	return abortAll(all)
}

// abortAll aborts the requests at the same time, and returns the number of those that were still
// being served.
func abortAll(all []*Entry) (requests int) {
	var n atomic.Int64
	var aborting sync.WaitGroup
	for _, e := range all {
		aborting.Go(func() {
			if e.runAbort() {
				n.Add(1)
			}
		})
	}
	aborting.Wait()
	return int(n.Load())
}

// runAbort aborts the request and reports whether it was still being served.
func (e *Entry) runAbort() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done || e.request == nil {
		return false
	}
	e.request.Abort()
	e.request = nil
	return true
}

// Sessions returns the ids of the sessions with requests that are being served, in no order, for a
// comparison with the store.
func (r *Registry) Sessions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listCount++
	ids := make([]string, 0, len(r.sessions))
	for id := range r.sessions {
		ids = append(ids, id)
	}
	return slices.Clip(ids)
}

// Counts returns the number of sessions with requests that are being served, and of those requests.
func (r *Registry) Counts() (sessions, requests int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.sessions {
		requests += len(all)
	}
	return len(r.sessions), requests
}

// leaseInterval is the time between two checks of the lease by Run: how late it aborts idle
// requests.
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
		if n := r.resetLeaseEnded(); n > 0 {
			ended(n, first)
			first = false
		}
		first = first || valid
	}
}

// untilLeaseCheck returns the time until Run has to check the lease.
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

// resetLeaseEnded returns the number of requests that Run reports next, and sets it to 0.
func (r *Registry) resetLeaseEnded() (requests int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests, r.leaseEnded = r.leaseEnded, 0
	return requests
}
