// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Schema is the tables of the database's owner, as its programs make them.
type Schema struct {
	// Migrations has the files migrations/NNNN_NAME.sql, in SQLite's words; the engine translates
	// them. Files of released versions never change: a database records only the number of the last
	// one that was applied.
	Migrations fs.FS
	Version    int      // Version is the number of the newest migration.
	Tables     []string // Tables are names that only a database of the owner has.
	// CompatibleFrom is a query for the oldest version whose programs can use a newer schema.
	CompatibleFrom string
	Owner          Migrator
}

// Migrator does what a migration needs beside its statements.
type Migrator interface {
	// Migrated is called after each migration, in its transaction; fresh means that the database
	// was empty before the first one.
	Migrated(t Tx, version int, fresh bool) error
}

// migrate brings the schema to its newest version, forward only.
func (db *DB) migrate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	return db.MapError("preparing the store", db.transact(ctx, db.opt.Schema.bring, func(error) {}))
}

// bring applies the missing migrations.
func (s Schema) bring(t Tx) (err error) {
	version, err := t.db.engine.version(t)
	if err != nil {
		return err
	}
	if version > s.Version {
		return s.checkCompatible(t, version)
	}
	fresh := version == 0
	if !fresh && version < s.Version && t.db.opt.Lock == nil {
		unlock, problem := t.LockServers()
		if errors.Is(problem, ErrServerLive) {
			return schemaError{msg: fmt.Sprintf("it has schema version %d, with which a server is running, and "+
				"this program knows %d: start the server of this version first, or run the command with the program "+
				"of that server", version, s.Version)}
		}
		if problem != nil {
			return problem
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	for version++; version <= s.Version; version++ {
		if err := s.apply(t, version, fresh); err != nil {
			return err
		}
	}
	return nil
}

// checkCompatible refuses a newer schema unless it states that this program can use it.
func (s Schema) checkCompatible(t Tx, version int) error {
	var from int
	if err := t.Row(s.CompatibleFrom).Scan(&from); err != nil || from > s.Version {
		return newerSchemaError(version, s.Version)
	}
	return nil
}

func (s Schema) apply(t Tx, version int, fresh bool) error {
	names, err := fs.Glob(s.Migrations, fmt.Sprintf("migrations/%04d_*.sql", version))
	if err != nil || len(names) != 1 {
		return fmt.Errorf("finding migration %d: found %d files, %w", version, len(names), err)
	}
	text, err := fs.ReadFile(s.Migrations, names[0])
	if err != nil {
		return fmt.Errorf("reading migration %d: %w", version, err)
	}
	if err = t.execNow(t.db.engine.schema(string(text))); err == nil {
		err = s.Owner.Migrated(t, version, fresh)
	}
	if err != nil {
		return fmt.Errorf("applying migration %d: %w", version, err)
	}
	return t.db.engine.setVersion(t, version)
}

// ErrServerLive means that a server uses the database.
var ErrServerLive = errors.New("a server uses the store")

// schemaError refuses a database for its schema. The remedy follows the message in a sentence; %s
// in it is what to do about a database that is not of this version.
type schemaError struct{ msg, remedy string }

func (e schemaError) Error() string { return e.msg }

var errForeignDatabase = schemaError{"it is not a database of fairlead-server", "; %s"}

func newerSchemaError(found, known int) error {
	return schemaError{fmt.Sprintf("it has schema version %d and this program knows %d: it was written by a newer "+
		"fairlead-server", found, known), "; run that version or a newer one, or %s"}
}

// explainSchemaError turns an error of the schema into a sentence; nil for others.
func explainSchemaError(what, other string, err error) error {
	var schema schemaError
	if !errors.As(err, &schema) {
		return nil
	}
	return fmt.Errorf("%s cannot be used: %w%s", what, schema, strings.ReplaceAll(schema.remedy, "%s", other))
}
