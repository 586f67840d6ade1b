// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// tx is one write transaction. Changes of endpoints are collected and numbered at its end.
type tx struct {
	ctx     context.Context
	s       *Store
	sql     *sql.Tx
	now     time.Time
	epoch   int64               // of the versions that the transaction makes or reads
	changes map[string][]change // by account
	audits  map[string][]auditRecord
	by      string // the API key or authtoken that deletes endpoints; "" is the service
}

type change struct {
	kind account.EventType
	row  *endpointRow
}

// retries bounds how often a write is tried again that the database ended in favour of another.
const retries = 4

// write runs fn in one transaction, while no other writes, then numbers and logs its changes,
// commits and wakes those who wait for them. fn may run again from its start.
func (s *Store) write(ctx context.Context, doing string, fn func(*tx) error) error {
	if err := s.opt.Lock.check(); err != nil {
		return err
	}
	return s.transact(ctx, doing, func(t *tx) error {
		if err := s.engine.lockWrites(t); err != nil {
			return err
		}
		if err := fn(t); err != nil {
			return err
		}
		if err := t.logChanges(); err != nil {
			return err
		}
		return t.logAudits()
	})
}

// changedAccounts returns the accounts that have new endpoint or audit events.
func (t *tx) changedAccounts() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(t.changes)), maps.Keys(t.audits))
	slices.Sort(all)
	return slices.Compact(all)
}

func (t *tx) version(seq int64) account.ResourceVersion {
	return account.ResourceVersion{Epoch: t.epoch, Seq: seq}
}

// transact runs fn in one transaction of the writer.
func (s *Store) transact(ctx context.Context, doing string, fn func(*tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	for tries := 1; ; tries++ {
		err := s.try(ctx, fn)
		if err == nil || tries > retries || !s.engine.retryable(err) {
			return s.mapError(doing, err)
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
		audits: map[string][]auditRecord{}}
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
func (s *Store) read(ctx context.Context, doing string, fn func(*tx) error) error {
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

// logChanges takes the numbers from each account's counter row, last in the transaction, and writes
// rows and events with them. It counts the account's endpoints, too.
func (t *tx) logChanges() error {
	for _, accountID := range slices.Sorted(maps.Keys(t.changes)) {
		changes := t.changes[accountID]
		var last int64
		err := t.row(`UPDATE accounts SET seq = seq + $1, endpoints = endpoints + $2 WHERE id = $3 RETURNING seq`,
			len(changes), growth(changes), accountID).Scan(&last)
		if err != nil {
			return fmt.Errorf("taking version numbers: %w", err)
		}
		for i, c := range changes {
			c.row.e.ResourceVersion = t.version(last - int64(len(changes)-1-i))
			if err := t.logChange(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// growth is how many endpoints more there are after the changes.
func growth(changes []change) (n int) {
	for _, c := range changes {
		switch c.kind {
		case account.Added:
			n++
		case account.Deleted:
			n--
		case account.Modified:
		}
	}
	return n
}

func (t *tx) logChange(c change) error {
	e := &c.row.e
	if c.kind != account.Deleted {
		if err := t.saveEndpoint(c.kind, c.row); err != nil {
			return fmt.Errorf("writing endpoint: %w", err)
		}
	}
	snapshot, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding event: %w", err)
	}
	return t.exec(
		`INSERT INTO events (account_id, seq, at, type, binding, url, snapshot) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		e.AccountID, e.ResourceVersion.Seq, micros(t.now), string(c.kind), e.Bindings[0], e.URL, string(snapshot))
}
