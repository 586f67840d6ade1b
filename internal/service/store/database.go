// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"embed"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

const (
	// schemaVersion is the number of the newest file in migrations.
	schemaVersion = 23
	// compatibleFrom is the oldest schema version whose programs can use this one.
	compatibleFrom = 8
	// foldedSearchVersion is the migration after which foldUsers rewrites the searched columns.
	foldedSearchVersion = 5
)

// migrations are SQLite's statements. Identifiers and other columns that are compared or sorted are
// declared COLLATE BINARY.
//
//go:embed migrations/*.sql
var migrations embed.FS

func (d *database) schema() sqldb.Schema {
	return sqldb.Schema{Migrations: migrations, Version: schemaVersion, Tables: []string{"store", "accounts"},
		CompatibleFrom: `SELECT compatible_from FROM store`, Owner: d}
}

// Migrated makes the row of a fresh store, and folds what older ones search.
func (d *database) Migrated(begun sqldb.Tx, version int, fresh bool) error {
	now := d.Now()
	switch {
	case version == foldedSearchVersion:
		return foldUsers(begun)
	case version == schemaVersion && fresh:
		// The epoch begins with the clock, so that versions of a store that was lost and made anew
		// are foreign here.
		return begun.Exec(`INSERT INTO store (id, store_id, epoch, compatible_from) VALUES (1, $1, $2, $3)`,
			account.NewID(account.PrefixStore, now), now.Unix(), compatibleFrom)
	}
	return nil
}

// database makes the store's transactions. It implements sqldb.Owner and sqldb.Migrator.
type database struct {
	*sqldb.DB
	writes     *sqldb.Writes[*tx]
	opt        Options
	replicaID  string      // replicaID is "" where one server is alone.
	joined     atomic.Bool // joined makes each write check that the replica is not fenced.
	storeID    string
	epoch      atomic.Int64 // epoch is as the last transaction found it that read or began one.
	wakes      sqldb.Wakes  // wakes are by account.
	auditWakes sqldb.Wakes
}

// open opens the database and reads the store's id and epoch.
func (d *database) open(ctx context.Context, opt Options) (err error) {
	d.DB, err = sqldb.Open(ctx, sqldb.Options{DataDir: opt.DataDir, DatabaseURL: opt.DatabaseURL, Lock: opt.Lock,
		Schema: d.schema(), Observer: opt.Observer})
	if err != nil {
		return err
	}
	d.writes = sqldb.NewWrites(d.DB, d)
	var epoch int64
	if err := d.Row(ctx, `SELECT store_id, epoch FROM store`).Scan(&d.storeID, &epoch); err != nil {
		return errors.Join(d.ExplainOpenError(err), d.Close())
	}
	d.epoch.Store(epoch)
	return nil
}

// Begin implements sqldb.Owner.
func (d *database) Begin(t sqldb.Tx) *tx {
	return &tx{Tx: t, db: d, now: d.Now(), epoch: d.epoch.Load(), changes: map[string][]change{},
		audits: map[string][]auditRecord{}, log: txLog{numbers: map[string]numbers{}}}
}

// write runs fn in one transaction of its own, while no other writes, then numbers and logs its
// changes, commits and wakes those who wait for them. fn may run again from its start.
func (d *database) write(ctx context.Context, doing string, fn func(*tx) error) error {
	return d.writes.Do(ctx, doing, false, fn)
}

// writeShared is write for what many agents do at once and is short: calls that wait for their turn
// at the same time have one transaction together.
func (d *database) writeShared(ctx context.Context, doing string, fn func(*tx) error) error {
	return d.writes.Do(ctx, doing, true, fn)
}

// Write is write for transactions without events. It implements membership.Writer.
func (d *database) Write(ctx context.Context, doing string, fn func(sqldb.Tx) error) error {
	return d.write(ctx, doing, func(t *tx) error { return fn(t.Tx) })
}

// WriteUnlisted implements membership.Writer.
func (d *database) WriteUnlisted(ctx context.Context, fn func(sqldb.Tx) error) error {
	return d.writes.Transact(ctx, func(t *tx) error {
		t.joining = true
		if err := t.Lock(); err != nil {
			return err
		}
		return fn(t.Tx)
	})
}

// writeWhile runs write again and again while the query has a row: fn deletes a batch of the rows.
func (d *database) writeWhile(
	ctx context.Context, doing string, fn func(*tx) error, query string, args ...any,
) error {
	for {
		some, err := d.exists(ctx, query, args...)
		if err != nil || !some {
			return err
		}
		if err := d.write(ctx, doing, fn); err != nil {
			return err
		}
	}
}

// read runs fn in one read transaction: everything it reads is of one moment.
func (d *database) read(ctx context.Context, doing string, fn func(*tx) error) error {
	return d.Read(ctx, doing, func(t sqldb.Tx) error {
		return fn(&tx{Tx: t, db: d, now: d.Now(), epoch: d.epoch.Load()})
	})
}

func (d *database) exists(ctx context.Context, query string, args ...any) (bool, error) {
	return result(ctx, d, "looking for something to sweep", func(t *tx) (bool, error) {
		return t.Exists(query, args...)
	})
}

// result is read for what fn returns, which is the zero value after an error.
func result[V any](ctx context.Context, d *database, doing string, fn func(*tx) (V, error)) (V, error) {
	var found, none V
	err := d.read(ctx, doing, func(t *tx) (err error) {
		found, err = fn(t)
		return err
	})
	if err != nil {
		return none, err
	}
	return found, nil
}

// writeResult is write for what fn returns, which is the zero value after an error.
func writeResult[V any](ctx context.Context, d *database, doing string, fn func(*tx) (V, error)) (V, error) {
	var made, none V
	err := d.write(ctx, doing, func(t *tx) (err error) {
		made, err = fn(t)
		return err
	})
	if err != nil {
		return none, err
	}
	return made, nil
}

// Now returns the time in the precision that the database has.
func (d *database) Now() time.Time {
	now := time.Now()
	if d.opt.Clock != nil {
		now = d.opt.Clock()
	}
	return now.UTC().Truncate(time.Microsecond)
}

// recordEpoch records the epoch of a transaction that was committed. All watchers wake for another
// one.
func (d *database) recordEpoch(epoch int64) {
	if d.epoch.Swap(epoch) != epoch {
		d.wakes.WakeAll()
		d.auditWakes.WakeAll()
	}
}

// defaultPollInterval is how often a listening store looks for changes of which it was not
// notified.
const defaultPollInterval = time.Second

// Listen wakes the waiters for an account's changes when another process makes them, such as a
// command of fairlead-server, until ctx is done. PostgreSQL notifies; what a notification misses,
// and all changes with SQLite, are found within a second.
func (s *Store) Listen(ctx context.Context) { s.db.Listen(ctx, s.pollInterval, &poller{db: s.db}) }

// poller finds changes by the version numbers of the accounts that are waited for. It implements
// sqldb.Listener.
type poller struct {
	db    *database
	known map[string][2]int64 // by account: the numbers of endpoints' and of audit events
}

// Wake wakes those who wait for changes of the account.
func (p *poller) Wake(accountID string) {
	p.db.wakes.Wake(accountID)
	p.db.auditWakes.Wake(accountID)
}

// Poll wakes the waiting whose account has other numbers than before. The store's failures are
// reported by those who read it.
func (p *poller) Poll(ctx context.Context) {
	waited := append(p.db.wakes.Keys(), p.db.auditWakes.Keys()...)
	slices.Sort(waited)
	found, epoch := map[string][2]int64{}, p.db.epoch.Load()
	if len(waited) > 0 {
		err := p.db.read(ctx, "looking for changes", func(t *tx) error {
			return t.EachIn(slices.Compact(waited), 1, func(from scanner) error {
				var id string
				var numbers [2]int64
				err := from.Scan(&id, &numbers[0], &numbers[1], &epoch)
				found[id] = numbers
				return err
			}, `SELECT a.id, a.seq, a.audit_seq, s.epoch FROM accounts AS a, store AS s
				WHERE s.id = $1 AND a.id IN IDS`)
		})
		if err != nil {
			return
		}
		p.db.recordEpoch(epoch)
	}
	for accountID, now := range found {
		before, ok := p.known[accountID]
		if !ok || before[0] != now[0] {
			p.db.wakes.Wake(accountID)
		}
		if !ok || before[1] != now[1] {
			p.db.auditWakes.Wake(accountID)
		}
	}
	p.known = found
}
