// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	databaseFile  = "fairlead.db"
	applicationID = 0x464c4431 // "FLD1" in the file's header
)

// sqliteEngine is a file in the data directory. One connection writes, and its transactions begin
// IMMEDIATE.
type sqliteEngine struct{}

func (sqliteEngine) open(ctx context.Context, s *Store) error {
	if err := prepareDataDir(s.opt.DataDir); err != nil {
		return err
	}
	path, err := filepath.Abs(filepath.Join(s.opt.DataDir, databaseFile))
	if err != nil {
		return fmt.Errorf("finding the data directory: %w", err)
	}
	if err := preparePrivateFile(path); err != nil {
		return err
	}
	s.place = path
	// The writer comes first: it turns the journal to WAL, which stays in the file.
	if s.writer, err = openDB(path,
		"_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"); err != nil {
		return err
	}
	s.writer.SetMaxOpenConns(1)
	if err := s.migrate(ctx); err != nil {
		return explainOpenError(path, err)
	}
	if s.reader, err = openDB(path, "_pragma=query_only(1)"); err != nil {
		return err
	}
	s.reader.SetMaxOpenConns(max(4, runtime.NumCPU()))
	s.reader.SetMaxIdleConns(max(4, runtime.NumCPU()))
	return s.readIdentity(ctx, func(err error) error { return explainOpenError(path, err) })
}

func openDB(path, parameters string) (*sql.DB, error) {
	absolute, err := filepath.Abs(path) // in a URL, data/x.db would mean the host data
	if err != nil {
		return nil, fmt.Errorf("opening database %s: %w", path, err)
	}
	name := (&url.URL{Scheme: "file", Path: absolute, RawQuery: "_busy_timeout=5000&" + parameters}).String()
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, fmt.Errorf("opening database %s: %w", path, err)
	}
	return db, nil
}

// prepareDataDir makes the directory, readable for its owner only.
func prepareDataDir(dir string) error {
	if dir == "" {
		return errors.New("no data directory is given: set --data-dir")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data directory %s cannot be made: %w; choose another with --data-dir", dir, err)
	}
	return nil
}

// preparePrivateFile makes the file before SQLite does, so that it and its companions are readable
// for their owner only.
func preparePrivateFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errReadOnlyFilesystem) {
		return fmt.Errorf(
			"data directory %s is not writable for user %d: %w; give it to that user, or choose another with "+
				"--data-dir",
			filepath.Dir(path), os.Getuid(), err)
	}
	if err != nil {
		return fmt.Errorf("opening database %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("opening database %s: %w", path, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil {
			return fmt.Errorf("database %s is readable for others and that cannot be changed: %w", path, err)
		}
	}
	return nil
}

func (sqliteEngine) version(t *tx) (int, error) {
	var app, version int
	if err := t.row(`PRAGMA application_id`).Scan(&app); err != nil {
		return 0, err
	}
	if err := t.row(`PRAGMA user_version`).Scan(&version); err != nil {
		return 0, err
	}
	if version <= schemaVersion && app != applicationID && (app != 0 || version != 0) {
		return 0, errForeignDatabase
	}
	return version, nil
}

func (sqliteEngine) setVersion(t *tx, version int) error {
	return t.exec(fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = %d`, applicationID, version))
}

// lockServers takes the server's lock of the data directory.
func (sqliteEngine) lockServers(t *tx) (unlock func() error, err error) {
	lock, err := lockDataDir(t.s.opt.DataDir)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

func (sqliteEngine) schema(text string) string { return text } // migrations are written for SQLite

func (sqliteEngine) beginTerm(context.Context, *Store) error { return nil } // a file's lock cannot be lost

func (sqliteEngine) announce(context.Context, *Store, []string) {} // a process finds them by polls
func (sqliteEngine) listen(ctx context.Context, s *Store)       { (&poller{s: s}).run(ctx) }

func (sqliteEngine) lockWrites(*tx) error           { return nil } // BEGIN IMMEDIATE has the lock
func (sqliteEngine) args(args []any) []any          { return args }
func (sqliteEngine) readTx() *sql.TxOptions         { return &sql.TxOptions{ReadOnly: true} }
func (sqliteEngine) clock(t *tx) (time.Time, error) { return t.s.now(), nil } // one machine has one clock
func (sqliteEngine) retryable(error) bool           { return false }          // _busy_timeout has waited

func (sqliteEngine) classify(err error) (unavailable, known bool) {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return false, false
	}
	return sqliteUnavailable(driver.Code()), true
}

// explainOpenError turns an error of opening into a sentence.
func explainOpenError(path string, err error) error {
	return explainFileError("database "+path, "choose another --data-dir",
		"restore it from a backup, or choose another --data-dir", err)
}

// explainFileError turns an error of a database file into a sentence. other tells what to do about
// a file that is not a store of this version, repair about a damaged one.
func explainFileError(what, other, repair string, err error) error {
	var newer newerSchemaError
	var older olderSchemaError
	var driver *sqlite.Error
	switch {
	case errors.As(err, &older):
		return fmt.Errorf("%s cannot be used: %w", what, older)
	case errors.As(err, &newer):
		return fmt.Errorf("%s cannot be used: %w; run that version or a newer one, or %s", what, newer, other)
	case errors.Is(err, errForeignDatabase):
		return fmt.Errorf("%s cannot be used: %w; %s", what, errForeignDatabase, other)
	case errors.As(err, &driver) &&
		(driver.Code()&0xff == sqlite3.SQLITE_NOTADB || driver.Code()&0xff == sqlite3.SQLITE_CORRUPT):
		return fmt.Errorf("%s cannot be used: it is no SQLite file or damaged; %s", what, repair)
	}
	return fmt.Errorf("opening %s: %w", what, err)
}

// sqliteUnavailable reports whether the code means that the database cannot be used now, not that
// the statement is wrong.
func sqliteUnavailable(code int) bool {
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}
