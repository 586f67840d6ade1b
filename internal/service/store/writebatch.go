// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Bounds of one transaction that several calls share.
const (
	maxBatchCalls  = 64
	maxBatchEvents = 5 * sweepBatch // endpoint and audit events; the call that passes it is the last
)

// writeBatch is one transaction of one call, or of several that may share it. Each call sees what
// those before it have written, and numbers its changes before the next one runs, so all is as if
// they had had a transaction each. What a call that fails has written is undone; the error is its
// own. A transaction that fails is the failure of all: no outcome of a call is known before the
// commit, because it may rest on what an earlier call of the batch has written.
type writeBatch struct {
	s      *Store
	calls  []*writeCall
	ctx    context.Context // ends when those of all calls have ended
	cancel context.CancelFunc
	// Each call has a savepoint. The first attempt does without, which is faster, and is undone
	// when a call fails.
	savepoints bool

	mu   sync.Mutex
	live int  // calls whose contexts have not ended
	over bool // none is left
}

var (
	errCallFailed = errors.New("a call of the batch failed")
	errPanicked   = errors.New("a call of the batch panicked")
)

// runBatch runs the call, which has the turn, and those that wait and may share its transaction. It
// returns the call's error.
func (s *Store) runBatch(first *writeCall) error {
	b := &writeBatch{s: s}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(first.ctx))
	err := errPanicked
	defer func() {
		b.finish(first, err)
		s.writes.pass()
	}()
	if !b.add(first) {
		err = first.ctx.Err()
		return err
	}
	b.addWaiting()
	if err = s.transact(b.ctx, b.run); errors.Is(err, errCallFailed) {
		b.savepoints = true
		err = s.transact(b.ctx, b.run)
	}
	if err != nil {
		return err
	}
	return first.err
}

// finish tells the other calls how the transaction ended.
func (b *writeBatch) finish(first *writeCall, err error) {
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
func (b *writeBatch) add(c *writeCall) bool {
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
func (b *writeBatch) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live--; b.live == 0 {
		b.over = true
		b.cancel()
	}
}

// addWaiting adds the waiting calls that may share the transaction.
func (b *writeBatch) addWaiting() {
	if !b.calls[0].shared {
		return
	}
	taken := b.s.writes.dequeue(maxBatchCalls - len(b.calls))
	for i, c := range taken {
		if !b.add(c) {
			b.s.writes.putBack(taken[i:])
			return
		}
	}
}

// postpone leaves the calls from the i-th on to the next batch.
func (b *writeBatch) postpone(i int) {
	for _, c := range b.calls[i:] {
		if c.stopWatch() {
			b.expire()
		}
	}
	b.s.writes.putBack(b.calls[i:])
	b.calls = b.calls[:i]
}

// run is the transaction. It may run again from its start.
func (b *writeBatch) run(t *tx) error {
	if err := b.s.engine.lockWrites(t); err != nil {
		return err
	}
	b.addWaiting() // those that came while it waited for another process
	for i, c := range b.calls {
		if len(t.log.events)+len(t.log.audits) >= maxBatchEvents {
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
	return t.writeLog()
}

// runCall runs a call. The error is that of the transaction.
func (b *writeBatch) runCall(t *tx, c *writeCall) error {
	if b.savepoints {
		if err := t.exec(`SAVEPOINT one_call`); err != nil {
			return err
		}
	}
	own := t.call()
	err := c.fn(own)
	if err == nil {
		err = own.logEvents()
	}
	switch {
	case err == nil:
		t.add(own)
		if !b.savepoints {
			return nil
		}
		return t.exec(`RELEASE SAVEPOINT one_call`)
	case len(b.calls) == 1 || !b.s.isCallError(err):
		return err
	case !b.savepoints:
		return fmt.Errorf("%w: %w", errCallFailed, err)
	}
	c.err = err
	if undo := t.exec(`ROLLBACK TO SAVEPOINT one_call; RELEASE SAVEPOINT one_call`); undo != nil {
		return errors.Join(err, undo)
	}
	return nil
}

// isCallError reports whether an error is that of one call, so that the transaction can go on
// without the writes of the call.
func (s *Store) isCallError(err error) bool {
	var domain *account.Error
	return errors.As(err, &domain) || !s.unavailable(err)
}
