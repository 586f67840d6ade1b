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

	"github.com/fairlead-dev/fairlead/internal/account"
)

// engine is what differs between databases: opening, migrating, taking turns in writing, and what
// errors mean.
type engine interface {
	// open sets writer and reader of the store and migrates. Its errors are sentences for whoever
	// started the program.
	open(ctx context.Context, s *Store) error
	// turn is the first thing of a write transaction: from here on to its end no other transaction of
	// the store writes.
	turn(t *tx) error
	// begin makes the server that holds the lock the one that may write.
	begin(ctx context.Context, s *Store) error
	// version returns the number of the schema's newest migration, 0 for an empty database; it waits
	// until nobody else migrates.
	version(t *tx) (int, error)
	setVersion(t *tx, version int) error
	// args gives the arguments of a statement the types that the driver wants.
	args(args []any) []any
	// readTx are the options of a transaction that reads everything of one moment.
	readTx() *sql.TxOptions
	// again says whether a transaction that failed so may be tried again from its start.
	again(err error) bool
	// verdict says what an error of the driver means: that the database cannot be used now, or that
	// the statement is wrong (in both cases known is true).
	verdict(err error) (unavailable, known bool)
}

// schemaVersion is the number of the newest file in migrations/<engine>. The files of one number
// make the same tables in all engines.
const schemaVersion = 5

//go:embed migrations/*/*.sql
var migrations embed.FS

// migrate brings the schema to schemaVersion, forward only.
func (s *Store) migrate(ctx context.Context, files string) error {
	return s.transact(ctx, "preparing the store", func(t *tx) error {
		version, err := s.engine.version(t)
		if err != nil {
			return err
		}
		if version > schemaVersion {
			return newerSchemaError{found: version}
		}
		fresh := version == 0
		for version++; version <= schemaVersion; version++ {
			if err := t.applyMigration(files, version); err != nil {
				return err
			}
		}
		if !fresh {
			return nil
		}
		// The epoch begins with the clock, so that versions of a store that was lost and made anew are
		// foreign here.
		return t.exec(`INSERT INTO store (id, store_id, epoch) VALUES (1, $1, $2)`, account.NewID(account.PrefixStore, t.now),
			t.now.Unix())
	})
}

func (t *tx) applyMigration(files string, version int) error {
	names, err := fs.Glob(migrations, fmt.Sprintf("migrations/%s/%04d_*.sql", files, version))
	if err != nil || len(names) != 1 {
		return fmt.Errorf("finding migration %d: found %d files, %w", version, len(names), err)
	}
	text, err := migrations.ReadFile(names[0])
	if err != nil {
		return fmt.Errorf("reading migration %d: %w", version, err)
	}
	err = t.exec(string(text))
	if err == nil && version == 5 {
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

// mapError turns what the driver says into a domain error; domain errors pass unchanged.
func (s *Store) mapError(doing string, err error) error {
	var domain *account.Error
	if err == nil || errors.As(err, &domain) {
		return err
	}
	unavailable, known := s.engine.verdict(err)
	if !known {
		unavailable = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone)
	}
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
