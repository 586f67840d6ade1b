// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"sync"
)

// writeCall is a call that writes.
type writeCall struct {
	ctx    context.Context
	fn     func(*tx) error
	shared bool      // other calls may be in its transaction
	turn   chan bool // true: it has the turn; false: a batch of another call has run it

	// set by the batch that runs the call
	stopWatch func() bool // ends the watch of ctx
	err       error       // set when this call alone failed
}

// writeQueue gives the turn to write to one call of this process after the other, in the order in
// which they came. The call that has the turn may take others that wait into its batch.
type writeQueue struct {
	mu      sync.Mutex
	busy    bool // a call has the turn
	waiting []*writeCall
}

// wait returns when the call has the turn, or when a batch of another call has run it. The error is
// that of the call's context, which ended before either.
func (q *writeQueue) wait(c *writeCall) (hasTurn bool, err error) {
	if q.enter(c) {
		return true, nil
	}
	select {
	case hasTurn = <-c.turn:
		return hasTurn, nil
	case <-c.ctx.Done():
	}
	if q.remove(c) {
		return false, c.ctx.Err()
	}
	return <-c.turn, nil
}

// enter gives the turn to the call, or appends it to those that wait for it.
func (q *writeQueue) enter(c *writeCall) (hasTurn bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy {
		q.waiting = append(q.waiting, c)
		return false
	}
	q.busy = true
	return true
}

// remove reports whether the call waited until now.
func (q *writeQueue) remove(c *writeCall) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// pass gives the turn to the call that has waited longest.
func (q *writeQueue) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy = len(q.waiting) > 0; q.busy {
		q.waiting[0].turn <- true
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
}

// dequeue removes and returns up to n calls that may share a transaction, the oldest first.
func (q *writeQueue) dequeue(n int) (taken []*writeCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(c *writeCall) bool {
		if !c.shared || len(taken) == n {
			return false
		}
		taken = append(taken, c)
		return true
	})
	return taken
}

// putBack makes calls the next ones that were taken and have not run.
func (q *writeQueue) putBack(calls []*writeCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Insert(q.waiting, 0, calls...)
}
