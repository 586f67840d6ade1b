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
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	databaseFile  = "fairlead.db"
	applicationID = 0x464c4431 // "FLD1" in the file's header
	schemaVersion = 3          // number of the newest file in migrations/sqlite
)

//go:embed migrations/sqlite/*.sql
var migrations embed.FS

func (s *Store) openSQLite(ctx context.Context) error {
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
	// The writer comes first: it turns the journal to WAL, which stays in the file.
	if s.writer, err = openDB(path, "_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"); err != nil {
		return err
	}
	s.writer.SetMaxOpenConns(1)
	if err := s.migrate(ctx); err != nil {
		return sentence(path, err)
	}
	if s.reader, err = openDB(path, "_pragma=query_only(1)"); err != nil {
		return err
	}
	s.reader.SetMaxOpenConns(max(4, runtime.NumCPU()))
	s.reader.SetMaxIdleConns(max(4, runtime.NumCPU()))
	if err := s.reader.QueryRowContext(ctx, `SELECT store_id, epoch FROM store`).Scan(&s.storeID, &s.epoch); err != nil {
		return sentence(path, err)
	}
	return nil
}

func openDB(path, parameters string) (*sql.DB, error) {
	name := (&url.URL{Scheme: "file", Path: path, RawQuery: "_busy_timeout=5000&" + parameters}).String()
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

// preparePrivateFile makes the file before SQLite does, so that it and its companions are readable for their owner only.
func preparePrivateFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errReadOnlyFilesystem) {
		return fmt.Errorf("data directory %s is not writable for user %d: %w; give it to that user, or choose another with --data-dir",
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

// migrate brings the schema to schemaVersion, forward only.
func (s *Store) migrate(ctx context.Context) error {
	return s.write(ctx, "preparing the store", func(t *tx) error {
		var app, version int
		if err := t.row(`PRAGMA application_id`).Scan(&app); err != nil {
			return err
		}
		if err := t.row(`PRAGMA user_version`).Scan(&version); err != nil {
			return err
		}
		switch {
		case version > schemaVersion:
			return newerSchemaError{found: version}
		case app != applicationID && (app != 0 || version != 0):
			return errForeignDatabase
		}
		fresh := version == 0
		for version++; version <= schemaVersion; version++ {
			if err := t.applyMigration(version); err != nil {
				return err
			}
		}
		if !fresh {
			return nil
		}
		// The epoch begins with the clock, so that versions of a store that was lost and made anew are foreign here.
		return t.exec(`INSERT INTO store (id, store_id, epoch) VALUES (1, $1, $2)`, account.NewID(account.PrefixStore, t.now), t.now.Unix())
	})
}

func (t *tx) applyMigration(version int) error {
	names, err := fs.Glob(migrations, fmt.Sprintf("migrations/sqlite/%04d_*.sql", version))
	if err != nil || len(names) != 1 {
		return fmt.Errorf("finding migration %d: found %d files, %w", version, len(names), err)
	}
	text, err := migrations.ReadFile(names[0])
	if err != nil {
		return fmt.Errorf("reading migration %d: %w", version, err)
	}
	if err := t.exec(string(text)); err != nil {
		return fmt.Errorf("applying migration %d: %w", version, err)
	}
	return t.exec(fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = %d`, applicationID, version))
}

var errForeignDatabase = errors.New("it is not a database of fairlead-server")

type newerSchemaError struct{ found int }

func (e newerSchemaError) Error() string {
	return fmt.Sprintf("it has schema version %d and this program knows %d: it was written by a newer fairlead-server", e.found, schemaVersion)
}

// sentence explains an error of opening to whoever started the program.
func sentence(path string, err error) error {
	var newer newerSchemaError
	var driver *sqlite.Error
	switch {
	case errors.As(err, &newer):
		return fmt.Errorf("database %s cannot be used: %w; run that version or a newer one, or choose another --data-dir", path, newer)
	case errors.Is(err, errForeignDatabase):
		return fmt.Errorf("database %s cannot be used: %w; choose another --data-dir", path, errForeignDatabase)
	case errors.As(err, &driver) && driver.Code()&0xff == sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("database %s cannot be used: it is no SQLite file or damaged; restore it from a backup, or choose another --data-dir", path)
	}
	return fmt.Errorf("opening database %s: %w", path, err)
}

// mapError turns what the driver says into a domain error; domain errors pass unchanged.
func (s *Store) mapError(doing string, err error) error {
	var domain *account.Error
	var driver *sqlite.Error
	switch {
	case err == nil || errors.As(err, &domain):
		return err
	case errors.As(err, &driver) && !unavailable(driver.Code()):
		return &account.Error{Code: account.CodeInternal, Msg: "internal error", Cause: fmt.Errorf("%s: %w", doing, err)}
	case errors.As(err, &driver), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone):
		return &account.Error{Code: account.CodeUnavailable, Msg: "the store is not available; try again", Cause: fmt.Errorf("%s: %w", doing, err)}
	}
	return &account.Error{Code: account.CodeInternal, Msg: "internal error", Cause: fmt.Errorf("%s: %w", doing, err)}
}

// unavailable says whether the code means that the database cannot be used now, not that the statement is wrong.
func unavailable(code int) bool {
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}
