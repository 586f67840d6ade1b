// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// tx is one write transaction, or that of a call which shares it with others. Changes of endpoints
// are collected and numbered at the call's end.
type tx struct {
	ctx     context.Context
	s       *Store
	sql     *sql.Tx
	now     time.Time
	epoch   int64               // epoch of the versions that the transaction makes or reads
	changes map[string][]change // by account
	audits  map[string][]auditRecord
	joining bool   // the replica's row is not there yet
	by      string // the API key or authtoken that deletes endpoints; "" is the service
	log     txLog
}

type change struct {
	kind account.EventType
	row  *endpointRow
}

// retries bounds how often a write is tried again that the database ended in favour of another.
const retries = 4

// write runs fn in one transaction of its own, while no other writes, then numbers and logs its
// changes, commits and wakes those who wait for them. fn may run again from its start.
func (s *Store) write(ctx context.Context, doing string, fn func(*tx) error) error {
	return s.writeInTurn(ctx, doing, &writeCall{fn: fn})
}

// writeShared is write for what many agents do at once and is short: calls that wait for their turn
// at the same time have one transaction together.
func (s *Store) writeShared(ctx context.Context, doing string, fn func(*tx) error) error {
	return s.writeInTurn(ctx, doing, &writeCall{fn: fn, shared: true})
}

func (s *Store) writeInTurn(ctx context.Context, doing string, c *writeCall) (err error) {
	defer s.observe(ctx, CallWrite, time.Now(), &err)
	if err := s.opt.Lock.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	c.ctx, c.turn = ctx, make(chan bool, 1)
	hasTurn, err := s.writes.wait(c)
	switch {
	case hasTurn:
		err = s.runBatch(c)
	case err == nil:
		err = c.err
	}
	return s.mapError(doing, err)
}

func (t *tx) version(seq int64) account.ResourceVersion {
	return account.ResourceVersion{Epoch: t.epoch, Seq: seq}
}

// transact runs fn in one transaction of the writer.
func (s *Store) transact(ctx context.Context, fn func(*tx) error) error {
	for tries := 1; ; tries++ {
		err := s.try(ctx, fn)
		if err == nil || tries > retries || !s.engine.retryable(err) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(time.Duration(tries) * 20 * time.Millisecond)):
		}
	}
}

func (s *Store) try(ctx context.Context, fn func(*tx) error) error {
	begun, err := s.begin(ctx, s.writer, nil)
	if err != nil {
		return err
	}
	defer func() { _ = begun.Rollback() }() // after a commit it does nothing
	t := &tx{ctx: ctx, s: s, sql: begun, now: s.now(), epoch: s.epoch.Load(), changes: map[string][]change{},
		audits: map[string][]auditRecord{}, log: txLog{numbers: map[string]numbers{}}}
	if err := fn(t); err != nil {
		return err
	}
	err = begun.Commit()
	if err == nil {
		s.recordEpoch(t.epoch)
	}
	for accountID := range t.changes { // after an error, too: the commit may have got through
		s.wakes.wake(accountID)
	}
	for accountID := range t.audits {
		s.auditWakes.wake(accountID)
	}
	if err == nil {
		s.engine.announce(ctx, s, t.changedAccounts())
	}
	return err
}

// read runs fn in one read transaction: everything it reads is of one moment.
func (s *Store) read(ctx context.Context, doing string, fn func(*tx) error) (err error) {
	defer s.observe(ctx, CallRead, time.Now(), &err)
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	begun, err := s.begin(ctx, s.reader, s.engine.readTx())
	if err != nil {
		return s.mapError(doing, err)
	}
	defer func() { _ = begun.Rollback() }()
	return s.mapError(doing, fn(&tx{ctx: ctx, s: s, sql: begun, now: s.now(), epoch: s.epoch.Load()}))
}

// begin begins a transaction. It passes over connections that were lost while they were idle.
func (s *Store) begin(ctx context.Context, db *sql.DB, opt *sql.TxOptions) (*sql.Tx, error) {
	for tries := 0; ; tries++ {
		begun, err := db.BeginTx(ctx, opt)
		if err == nil || tries > postgresIdleReaders || !pgconn.SafeToRetry(err) {
			return begun, err
		}
	}
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.sql.ExecContext(t.ctx, query, t.s.engine.args(args)...)
	return err
}

func (t *tx) row(query string, args ...any) *sql.Row {
	return t.sql.QueryRowContext(t.ctx, query, t.s.engine.args(args)...)
}

// each calls scan for every row of the query.
func (t *tx) each(scan func(scanner) error, query string, args ...any) error {
	rows, err := t.sql.QueryContext(t.ctx, query, t.s.engine.args(args)...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// scanner is a *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

// changed notes that the row has to be written (or, for Deleted, was deleted) and that watchers
// hear of it.
func (t *tx) changed(kind account.EventType, row *endpointRow) {
	e := &row.e
	t.changes[e.AccountID] = append(t.changes[e.AccountID], change{kind: kind, row: row})
	details := map[string]string{"url": e.URL, "type": e.Type, "binding": e.Bindings[0]}
	switch kind {
	case account.Added:
		t.audit(account.Caller{AccountID: e.AccountID, PrincipalID: idOf(e.Principal)}, account.AuditEndpointCreated,
			e.ID,
			details)
	case account.Deleted:
		t.audit(account.Caller{AccountID: e.AccountID, PrincipalID: t.by}, account.AuditEndpointDeleted, e.ID, details)
	}
}
