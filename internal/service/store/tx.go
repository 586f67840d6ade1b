// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"database/sql"
	"errors"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
)

// tx is one transaction, or that of a call which shares a write transaction with others. Changes of
// endpoints are collected and numbered at the call's end. It implements sqldb.Transaction.
type tx struct {
	sqldb.Tx
	db      *database
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

// Lock lets no other process write. On another timeline than the last write's an epoch begins. A
// replica locks its own row, too, which is gone once it is fenced.
func (t *tx) Lock() error {
	if t.db.opt.DatabaseURL == "" {
		return nil // the beginning of the transaction has locked the file of SQLite
	}
	tables, args := `store AS s FOR UPDATE`, []any(nil)
	if t.db.joined.Load() && !t.joining {
		tables = `store AS s, replicas AS r WHERE r.id = $1 FOR UPDATE OF f, s FOR SHARE OF r`
		args = []any{t.db.replicaID}
	}
	var recorded string
	now, err := t.LockWrites(`s.epoch, s.timeline`, tables, args, &t.epoch, &recorded)
	if errors.Is(err, sql.ErrNoRows) {
		return &account.Error{Code: account.CodeUnavailable, Cause: membership.ErrFenced,
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
		t.db.recordEpoch(t.epoch)
	}
	for accountID := range t.changes { // after an error, too: the commit may have got through
		t.db.wakes.Wake(accountID)
	}
	for accountID := range t.audits {
		t.db.auditWakes.Wake(accountID)
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
	if t.db.opt.Clock != nil {
		return t.db.Now(), nil
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

// auditRecord is an audit event of a transaction, not numbered yet.
type auditRecord struct {
	what         account.AuditType
	by, objectID string
	details      map[string]string
}

// audit notes that something happened to an object. Details hold no secrets.
func (t *tx) audit(by account.Caller, what account.AuditType, objectID string, details map[string]string) {
	t.audits[by.AccountID] = append(t.audits[by.AccountID], auditRecord{what, by.PrincipalID, objectID, details})
}

// checkLimit refuses one more row of the account in a table that has as many as it may.
func (t *tx) checkLimit(table, nouns, accountID string, most int, remedy string) error {
	var count int
	if err := t.Row(`SELECT COUNT(*) FROM `+table+` WHERE account_id = $1`, accountID).Scan(&count); err != nil {
		return err
	}
	if count >= most {
		return account.Errorf(account.CodeLimit, "the account has %d %s, which is its limit; %s", count, nouns, remedy)
	}
	return nil
}

const deleteUnused = "delete unused ones"

// counters reads two of the account's version numbers, and the epoch that they are of.
func (t *tx) counters(accountID, current, compacted string) (seq, compactedSeq int64, err error) {
	found, err := t.Row(`SELECT a.`+current+`, a.`+compacted+`, s.epoch FROM accounts AS a, store AS s WHERE a.id = $1`,
		accountID).Find(&seq, &compactedSeq, &t.epoch)
	if err == nil && !found {
		err = notFound("account", accountID)
	}
	return seq, compactedSeq, err
}

// newestAfter returns the account's newest version, by the columns of counters. CodeGone unless all
// events from the given version to it are there.
func (t *tx) newestAfter(
	v account.ResourceVersion, accountID, current, compacted string,
) (account.ResourceVersion, error) {
	seq, compactedSeq, err := t.counters(accountID, current, compacted)
	if err != nil {
		return v, err
	}
	var why string
	switch {
	case v.Epoch != t.epoch:
		why = "is of another store, or of this one before it was restored"
	case v.Seq > seq:
		why = "lies in the future"
	case v.Seq < compactedSeq:
		why = "is too old: the events after it were compacted"
	default:
		return t.version(seq), nil
	}
	return v, account.Errorf(account.CodeGone, "resource_version %s %s; list again and watch from the list's version",
		v, why)
}
