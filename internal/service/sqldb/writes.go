// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"time"
)

// Transaction is what the owner of the database makes of a Tx that writes, with what it has to
// write before the commit and to tell after it. A transaction that several calls share has one for
// itself and one for each call.
type Transaction[T any] interface {
	// Savepoint, Release and Undo are those of the Tx.
	Savepoint() error
	Release() error
	Undo() error
	// Lock is called first. After it no other process writes until the end of the transaction.
	Lock() error
	// BeginCall returns the transaction for one of the calls.
	BeginCall() T
	// EndCall writes what the call has left to its end, and adds what it has changed. After an
	// error nothing is added, and the call has failed.
	EndCall(call T) error
	// Full reports whether no further call may share the transaction.
	Full() bool
	// Flush writes what all calls have left to the end.
	Flush() error
	// Ended is called after the commit, which may have got through although it failed.
	Ended(err error)
}

// Owner makes transactions.
type Owner[T any] interface {
	// Begin returns a transaction of the owner's over one of the database.
	Begin(t Tx) T
}

// Writes runs the writes of one process, one after the other, in the order in which they came.
type Writes[T Transaction[T]] struct {
	db    *DB
	owner Owner[T]
	queue queue[T]
}

// NewWrites returns the writes of a database. There is one for each DB.
func NewWrites[T Transaction[T]](db *DB, owner Owner[T]) *Writes[T] {
	return &Writes[T]{db: db, owner: owner}
}

// Do runs fn in one transaction, while no other writes; a shared one may have the transaction
// together with others that wait for their turn at the same time. fn may run again from its start.
// doing is for errors.
func (w *Writes[T]) Do(ctx context.Context, doing string, shared bool, fn func(T) error) (err error) {
	defer w.db.observe(ctx, CallWrite, time.Now(), &err)
	if err := w.db.opt.Lock.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	c := &call[T]{ctx: ctx, fn: fn, shared: shared, turn: make(chan bool, 1)}
	hasTurn, err := w.queue.wait(c)
	switch {
	case hasTurn:
		err = w.runBatch(c)
	case err == nil:
		err = c.err
	}
	return w.db.MapError(doing, err)
}

// Transact runs fn in a transaction that waits for no turn and locks nothing by itself. Its errors
// are the driver's.
func (w *Writes[T]) Transact(ctx context.Context, fn func(T) error) error {
	var t T
	return w.db.transact(ctx, func(begun Tx) error {
		t = w.owner.Begin(begun)
		return fn(t)
	}, func(err error) { t.Ended(err) })
}

// Waiting returns how many calls wait for their turn.
func (w *Writes[T]) Waiting() int { return w.queue.len() }
