// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// tx is one transaction, or that of a call which shares a write transaction with others. Changes of
// endpoints are collected and numbered at the call's end. It implements sqldb.Transaction.
type tx struct {
	sqldb.Tx
	s       *Store
	now     time.Time
	epoch   int64               // epoch is that of the versions that the transaction makes or reads.
	changes map[string][]change // changes are by account.
	audits  map[string][]auditRecord
	joining bool   // joining is set where the replica's row is not there yet.
	by      string // by is the API key or authtoken that deletes endpoints; "" is the service.
	log     txLog
}

type change struct {
	kind account.EventType
	row  *endpointRow
}

type scanner = sqldb.Scanner

// write runs fn in one transaction of its own, while no other writes, then numbers and logs its
// changes, commits and wakes those who wait for them. fn may run again from its start.
func (s *Store) write(ctx context.Context, doing string, fn func(*tx) error) error {
	return s.writes.Do(ctx, doing, false, fn)
}

// writeShared is write for what many agents do at once and is short: calls that wait for their turn
// at the same time have one transaction together.
func (s *Store) writeShared(ctx context.Context, doing string, fn func(*tx) error) error {
	return s.writes.Do(ctx, doing, true, fn)
}

// read runs fn in one read transaction: everything it reads is of one moment.
func (s *Store) read(ctx context.Context, doing string, fn func(*tx) error) error {
	return s.db.Read(ctx, doing, func(t sqldb.Tx) error {
		return fn(&tx{Tx: t, s: s, now: s.now(), epoch: s.epoch.Load()})
	})
}

// result is read for what fn returns, which is the zero value after an error.
func result[V any](ctx context.Context, s *Store, doing string, fn func(*tx) (V, error)) (V, error) {
	var found, none V
	err := s.read(ctx, doing, func(t *tx) (err error) {
		found, err = fn(t)
		return err
	})
	if err != nil {
		return none, err
	}
	return found, nil
}

// owner makes the transactions of its store. It implements sqldb.Owner and sqldb.Migrator.
type owner struct{ s *Store }

func (o owner) Begin(t sqldb.Tx) *tx {
	return &tx{Tx: t, s: o.s, now: o.s.now(), epoch: o.s.epoch.Load(), changes: map[string][]change{},
		audits: map[string][]auditRecord{}, log: txLog{numbers: map[string]numbers{}}}
}

// Lock lets no other process write. On another timeline than the last write's an epoch begins. A
// replica locks its own row, too, which is gone once it is fenced.
func (t *tx) Lock() error {
	if t.s.opt.DatabaseURL == "" {
		return nil // the beginning of the transaction has locked the file
	}
	tables, args := `store AS s FOR UPDATE`, []any(nil)
	if t.s.joined.Load() && !t.joining {
		tables = `store AS s, replicas AS r WHERE r.id = $1 FOR UPDATE OF f, s FOR SHARE OF r`
		args = []any{t.s.opt.Replica.ID}
	}
	var recorded string
	now, err := t.LockWrites(`s.epoch, s.timeline`, tables, args, &t.epoch, &recorded)
	if errors.Is(err, sql.ErrNoRows) {
		return &account.Error{Code: account.CodeUnavailable, Cause: ErrFenced,
			Msg: "the store is not available: other servers took this one for dead"}
	}
	if err != nil || now == recorded || now == "" {
		return err
	}
	if recorded != "" {
		if err := t.beginEpoch(0); err != nil {
			return err
		}
	}
	return t.Exec(`UPDATE store SET timeline = $1`, now)
}

// Ended records the epoch and wakes those who wait for the changes.
func (t *tx) Ended(err error) {
	if err == nil {
		t.s.recordEpoch(t.epoch)
	}
	for accountID := range t.changes { // after an error, too: the commit may have got through
		t.s.wakes.Wake(accountID)
	}
	for accountID := range t.audits {
		t.s.auditWakes.Wake(accountID)
	}
	if err == nil {
		t.Announce(t.changedAccounts())
	}
}

func (t *tx) version(seq int64) account.ResourceVersion {
	return account.ResourceVersion{Epoch: t.epoch, Seq: seq}
}

// clock returns the time of the clock that all servers on the database share, or of Options.Clock.
func (t *tx) clock() (time.Time, error) {
	if t.s.opt.Clock != nil {
		return t.s.now(), nil
	}
	now, err := t.Time()
	return now.UTC().Truncate(time.Microsecond), err
}

// changed notes that the row has to be written (or, for Deleted, was deleted) and that watchers
// hear of it.
func (t *tx) changed(kind account.EventType, row *endpointRow) {
	e := &row.e
	t.changes[e.AccountID] = append(t.changes[e.AccountID], change{kind: kind, row: row})
	details := map[string]string{"url": e.URL, "type": e.Type, "binding": e.Bindings[0]}
	switch kind {
	case account.Added:
		t.audit(account.Caller{AccountID: e.AccountID, PrincipalID: idOf(e.Principal)}, account.AuditEndpointCreated,
			e.ID, details)
	case account.Deleted:
		t.audit(account.Caller{AccountID: e.AccountID, PrincipalID: t.by}, account.AuditEndpointDeleted, e.ID, details)
	}
}

// An epoch is a history of version numbers. Another one begins when numbers could be given out
// twice: after a restore, and on another timeline of PostgreSQL. Watchers of an earlier epoch list
// again.

// beginEpoch begins an epoch above the current and the given one. Its versions go on from the
// current numbers; there are no events of earlier ones.
func (t *tx) beginEpoch(above int64) error {
	t.epoch = max(t.epoch+1, above+1, t.now.Unix())
	for _, statement := range []string{`DELETE FROM events`, `UPDATE accounts SET compacted_seq = seq`} {
		if err := t.Exec(statement); err != nil {
			return err
		}
	}
	return t.Exec(`UPDATE store SET epoch = $1`, t.epoch)
}

// recordEpoch records the epoch of a transaction that was committed. All watchers wake for another
// one.
func (s *Store) recordEpoch(epoch int64) {
	if s.epoch.Swap(epoch) != epoch {
		s.wakes.WakeAll()
		s.auditWakes.WakeAll()
	}
}
