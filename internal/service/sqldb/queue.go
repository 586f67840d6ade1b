// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"slices"
	"sync"
)

// call is a call that writes.
type call[T any] struct {
	ctx    context.Context
	fn     func(T) error
	shared bool      // shared is set where other calls may be in its transaction.
	turn   chan bool // turn gets true with the turn, and false when a batch of another call has run it.

	// The batch that runs the call sets these.
	stopWatch func() bool // stopWatch ends the watch of ctx.
	err       error       // err is set when this call alone failed.
}

// queue gives the turn to write to one call of this process after the other, in the order in
// which they came. The call that has the turn may take others that wait into its batch.
type queue[T any] struct {
	mu      sync.Mutex
	busy    bool // busy is set while a call has the turn.
	waiting []*call[T]
}

// wait returns when the call has the turn, or when a batch of another call has run it. The error is
// that of the call's context, which ended before either.
func (q *queue[T]) wait(c *call[T]) (hasTurn bool, err error) {
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
func (q *queue[T]) enter(c *call[T]) (hasTurn bool) {
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
func (q *queue[T]) remove(c *call[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// pass gives the turn to the call that has waited longest.
func (q *queue[T]) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy = len(q.waiting) > 0; q.busy {
		q.waiting[0].turn <- true
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
}

// dequeue removes and returns up to n calls that may share a transaction, the oldest first.
func (q *queue[T]) dequeue(n int) (taken []*call[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(c *call[T]) bool {
		if !c.shared || len(taken) == n {
			return false
		}
		taken = append(taken, c)
		return true
	})
	return taken
}

// putBack makes calls the next ones that were taken and have not run.
func (q *queue[T]) putBack(calls []*call[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Insert(q.waiting, 0, calls...)
}

func (q *queue[T]) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
