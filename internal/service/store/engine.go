// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// engine is what differs between databases: opening, column types, serialising writes, and what
// errors mean.
type engine interface {
	// open sets writer and reader of the store and migrates. Its errors are complete sentences.
	open(ctx context.Context, s *Store) error
	// schema returns the text of a migration with the engine's column types.
	schema(text string) string
	// lockWrites is the first statement of a write transaction: no other transaction of the store
	// writes from here until the end of this one.
	lockWrites(t *tx) error
	// beginTerm makes the server that holds the lock the only one that may write.
	beginTerm(ctx context.Context, s *Store) error
	// version returns the number of the newest migration that was applied, 0 for an empty database.
	// It waits for migrations of other processes.
	version(t *tx) (int, error)
	setVersion(t *tx, version int) error
	// lockServers keeps servers of the store away until unlock is called and the transaction has
	// ended; errServerLive while there is one.
	lockServers(t *tx) (unlock func() error, err error)
	// args converts the arguments of a statement to types that the driver accepts.
	args(args []any) []any
	// readTx returns the options of a transaction that reads one consistent snapshot.
	readTx() *sql.TxOptions
	// announce notifies other processes of committed changes of the accounts.
	announce(ctx context.Context, s *Store, accountIDs []string)
	// listen wakes those who wait for changes of other processes until ctx is done.
	listen(ctx context.Context, s *Store)
	// clock returns the time of the clock that all servers on the database share.
	clock(t *tx) (time.Time, error)
	// retryable reports whether a transaction that failed with err may run again from its start.
	retryable(err error) bool
	// classify reports whether an error of the driver means that the database is unavailable now;
	// known is false for errors of other origin.
	classify(err error) (unavailable, known bool)
}

const (
	// schemaVersion is the number of the newest file in migrations.
	schemaVersion = 19
	// compatibleFrom is the oldest schema version whose programs can use this one.
	compatibleFrom = 8
	// foldedSearchVersion is the migration after which foldUsers rewrites the searched columns.
	foldedSearchVersion = 5
)

// migrations are SQLite's statements; engine.schema translates them. Files of released versions
// never change: a database records only the number of the last one that was applied.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema to schemaVersion, forward only.
func (s *Store) migrate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	return s.mapError("preparing the store", s.transact(ctx, func(t *tx) (err error) {
		version, err := s.engine.version(t)
		if err != nil {
			return err
		}
		if version > schemaVersion {
			return t.checkCompatible(version)
		}
		fresh := version == 0
		if !fresh && version < schemaVersion && s.opt.Lock == nil {
			unlock, problem := s.engine.lockServers(t)
			if errors.Is(problem, errServerLive) {
				return olderSchemaError{found: version}
			}
			if problem != nil {
				return problem
			}
			defer func() { err = errors.Join(err, unlock()) }()
		}
		for version++; version <= schemaVersion; version++ {
			if err := t.applyMigration(version); err != nil {
				return err
			}
		}
		if !fresh {
			return nil
		}
		// The epoch begins with the clock, so that versions of a store that was lost and made anew
		// are foreign here.
		return t.exec(`INSERT INTO store (id, store_id, epoch, compatible_from) VALUES (1, $1, $2, $3)`,
			account.NewID(account.PrefixStore, t.now), t.now.Unix(), compatibleFrom)
	}))
}

// checkCompatible refuses a newer schema unless it states that this program can use it.
func (t *tx) checkCompatible(version int) error {
	var from int
	if err := t.row(`SELECT compatible_from FROM store`).Scan(&from); err != nil || from > schemaVersion {
		return newerSchemaError{found: version}
	}
	return nil
}

func (t *tx) applyMigration(version int) error {
	names, err := fs.Glob(migrations, fmt.Sprintf("migrations/%04d_*.sql", version))
	if err != nil || len(names) != 1 {
		return fmt.Errorf("finding migration %d: found %d files, %w", version, len(names), err)
	}
	text, err := migrations.ReadFile(names[0])
	if err != nil {
		return fmt.Errorf("reading migration %d: %w", version, err)
	}
	err = t.exec(t.s.engine.schema(string(text)))
	if err == nil && version == foldedSearchVersion {
		err = t.foldUsers()
	}
	if err != nil {
		return fmt.Errorf("applying migration %d: %w", version, err)
	}
	return t.s.engine.setVersion(t, version)
}

var errForeignDatabase = errors.New("it is not a database of fairlead-server")

type newerSchemaError struct{ found int }

func (e newerSchemaError) Error() string {
	return fmt.Sprintf("it has schema version %d and this program knows %d: it was written by a newer fairlead-server",
		e.found, schemaVersion)
}

var errServerLive = errors.New("a server uses the store")

// olderSchemaError refuses a command that would change the schema under a server that lives.
type olderSchemaError struct{ found int }

func (e olderSchemaError) Error() string {
	return fmt.Sprintf("it has schema version %d, with which a server is running, and this program knows %d: start "+
		"the server of this version first, or run the command with the program of that server", e.found, schemaVersion)
}

// mapError turns an error of the driver into a domain error; domain errors pass unchanged.
func (s *Store) mapError(doing string, err error) error {
	var domain *account.Error
	if err == nil || errors.As(err, &domain) {
		return err
	}
	unavailable := s.unavailable(err)
	if unavailable && DiskFull(err) {
		return &account.Error{Code: account.CodeUnavailable, Cause: fmt.Errorf("%s: %w", doing, err),
			Msg: "the disk that holds the store is full; writes go on as soon as there is room"}
	}
	if unavailable {
		return &account.Error{Code: account.CodeUnavailable, Msg: "the store is not available; try again",
			Cause: fmt.Errorf("%s: %w", doing, err)}
	}
	return &account.Error{Code: account.CodeInternal, Msg: "internal error", Cause: fmt.Errorf("%s: %w", doing, err)}
}

// unavailable reports whether an error means that the database cannot be used now.
func (s *Store) unavailable(err error) bool {
	unavailable, known := s.engine.classify(err)
	if known {
		return unavailable
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone)
}
