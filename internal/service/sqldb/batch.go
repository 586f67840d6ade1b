// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// MaxBatchCalls bounds the calls that share one transaction.
const MaxBatchCalls = 64

// batch is one transaction of one call, or of several that may share it. Each call sees what those
// before it have written, and ends before the next one runs, so all is as if they had had a
// transaction each. What a call that fails has written is undone; the error is its own. A
// transaction that fails is the failure of all: no outcome of a call is known before the commit,
// because it may rest on what an earlier call of the batch has written.
type batch[T Transaction[T]] struct {
	w      *Writes[T]
	calls  []*call[T]
	ctx    context.Context // ctx ends when those of all calls have ended.
	cancel context.CancelFunc
	// savepoints gives each call one. The first attempt does without, which is faster, and is
	// undone when a call fails.
	savepoints bool
	ran        bool // ran is set while all calls have run, and only the commit is left.

	mu   sync.Mutex
	live int  // live counts the calls whose contexts have not ended.
	over bool // over is set when none is left.
}

var (
	errCallFailed = errors.New("a call of the batch failed")
	errPanicked   = errors.New("a call of the batch panicked")
)

// runBatch runs the call, which has the turn, and those that wait and may share its transaction. It
// returns the call's error.
func (w *Writes[T]) runBatch(first *call[T]) error {
	b := &batch[T]{w: w}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(first.ctx))
	err := errPanicked
	defer func() {
		b.finish(first, err)
		w.queue.pass()
	}()
	if !b.add(first) {
		err = first.ctx.Err()
		return err
	}
	b.addWaiting()
	err = w.Transact(b.ctx, b.run)
	if errors.Is(err, errCallFailed) || b.ran && len(b.calls) > 1 && err != nil && w.db.isCallError(err) {
		b.savepoints = true
		err = w.Transact(b.ctx, b.run)
	}
	if err != nil {
		return err
	}
	return first.err
}

// finish tells the other calls how the transaction ended.
func (b *batch[T]) finish(first *call[T], err error) {
	for _, c := range b.calls {
		c.stopWatch()
		if err != nil {
			c.err = err
		}
		if c != first {
			c.turn <- false
		}
	}
	b.cancel()
}

// add adds the call unless the batch is given up, because the contexts of all its calls have ended.
func (b *batch[T]) add(c *call[T]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return false
	}
	b.live++
	b.calls = append(b.calls, c)
	c.stopWatch = context.AfterFunc(c.ctx, b.expire)
	return true
}

// expire counts a call as one whose context has ended.
func (b *batch[T]) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live--; b.live == 0 {
		b.over = true
		b.cancel()
	}
}

// addWaiting adds the waiting calls that may share the transaction.
func (b *batch[T]) addWaiting() {
	if !b.calls[0].shared {
		return
	}
	taken := b.w.queue.dequeue(MaxBatchCalls - len(b.calls))
	for i, c := range taken {
		if !b.add(c) {
			b.w.queue.putBack(taken[i:])
			return
		}
	}
}

// postpone leaves the calls from the i-th on to the next batch.
func (b *batch[T]) postpone(i int) {
	for _, c := range b.calls[i:] {
		if c.stopWatch() {
			b.expire()
		}
	}
	b.w.queue.putBack(b.calls[i:])
	b.calls = b.calls[:i]
}

// run is the transaction. It may run again from its start.
func (b *batch[T]) run(t T) (err error) {
	b.ran = false
	defer func() { b.ran = err == nil }()
	if err := t.Lock(); err != nil {
		return err
	}
	b.addWaiting() // those that came while it waited for another process
	for i, c := range b.calls {
		if t.Full() {
			b.postpone(i)
			break
		}
		if c.err = c.ctx.Err(); c.err != nil {
			continue
		}
		if err := b.runCall(t, c); err != nil {
			return err
		}
	}
	return t.Flush()
}

// runCall runs a call. The error is that of the transaction.
func (b *batch[T]) runCall(t T, c *call[T]) error {
	if b.savepoints {
		if err := t.Savepoint(); err != nil {
			return err
		}
	}
	own := t.BeginCall()
	err := c.fn(own)
	if err == nil {
		err = t.EndCall(own)
	}
	if err == nil && b.savepoints {
		err = t.Release()
	}
	switch {
	case err == nil:
		return nil
	case len(b.calls) == 1 || !b.w.db.isCallError(err):
		return err
	case !b.savepoints:
		return fmt.Errorf("%w: %w", errCallFailed, err)
	}
	c.err = err
	return t.Undo()
}
