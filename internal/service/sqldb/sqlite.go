// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

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
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

const (
	databaseFile  = "fairlead.db"
	applicationID = 0x464c4431 // "FLD1" in the file's header
)

// sqliteEngine is a file in the data directory. One connection writes, and its transactions begin
// IMMEDIATE.
type sqliteEngine struct{}

func (sqliteEngine) open(ctx context.Context, db *DB) error {
	if err := prepareDataDir(db.opt.DataDir); err != nil {
		return err
	}
	path, err := filepath.Abs(filepath.Join(db.opt.DataDir, databaseFile))
	if err != nil {
		return fmt.Errorf("finding the data directory: %w", err)
	}
	if err := preparePrivateFile(path); err != nil {
		return err
	}
	db.name = path
	// The writer comes first: it turns the journal to WAL, which stays in the file.
	if db.writer, err = openFile(path,
		"_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"); err != nil {
		return err
	}
	db.writer.SetMaxOpenConns(1)
	if err := db.migrate(ctx); err != nil {
		return db.ExplainOpenError(err)
	}
	if db.reader, err = openFile(path, "_pragma=query_only(1)"); err != nil {
		return err
	}
	db.reader.SetMaxOpenConns(max(4, runtime.NumCPU()))
	db.reader.SetMaxIdleConns(max(4, runtime.NumCPU()))
	return nil
}

func openFile(path, parameters string) (*sql.DB, error) {
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
	if isNotWritable(err) {
		return notWritableError(filepath.Dir(path), err)
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
		// A volume that came from a pod with another UID is the pod's group's: only the owner could
		// change its mode.
		if err := f.Chmod(0o600); err != nil && info.Mode().Perm()&0o007 != 0 {
			return fmt.Errorf("database %s is readable for others and that cannot be changed: %w", path, err)
		}
	}
	return nil
}

func isNotWritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func notWritableError(dataDir string, err error) error {
	return fmt.Errorf("data directory %s is not writable for user %d: %w; give it to that user, or choose another "+
		"with --data-dir", dataDir, os.Getuid(), err)
}

func (sqliteEngine) version(t Tx) (int, error) {
	var app, version int
	if err := t.Row(`PRAGMA application_id`).Scan(&app); err != nil {
		return 0, err
	}
	if err := t.Row(`PRAGMA user_version`).Scan(&version); err != nil {
		return 0, err
	}
	if version <= t.db.opt.Schema.Version && app != applicationID && (app != 0 || version != 0) {
		return 0, errForeignDatabase
	}
	return version, nil
}

func (sqliteEngine) setVersion(t Tx, version int) error {
	return t.Exec(fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = %d`, applicationID, version))
}

// lockServers takes the server's lock of the data directory.
func (sqliteEngine) lockServers(t Tx) (unlock func() error, err error) {
	lock, err := lockDataDir(t.db.opt.DataDir)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

func (sqliteEngine) schema(text string) string { return text } // migrations are written for SQLite

func (sqliteEngine) announce(context.Context, *DB, []string) {} // a process finds them by polls

func (sqliteEngine) listen(ctx context.Context, _ *DB, every time.Duration, l Listener) {
	for timer.Sleep(ctx, every) {
		l.Poll(ctx)
	}
}

func (sqliteEngine) args(args []any) []any { return args }
func (sqliteEngine) beginWrite(ctx context.Context, db *DB) (Tx, error) {
	return db.begin(ctx, db.writer, nil)
}

func (sqliteEngine) readTx() *sql.TxOptions      { return &sql.TxOptions{ReadOnly: true} }
func (sqliteEngine) clock(Tx) (time.Time, error) { return time.Now(), nil } // one machine has one clock
func (sqliteEngine) retryable(error) bool        { return false }           // _busy_timeout has waited

func (sqliteEngine) classify(err error) (unavailable, known bool) {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return false, false
	}
	return sqliteUnavailable(driver.Code()), true
}

func (sqliteEngine) explain(name string, err error) error {
	return explainFileError("database "+name, "choose another --data-dir",
		"restore it from a backup, or choose another --data-dir", err)
}

// explainFileError turns an error of a database file into a sentence. other tells what to do about
// a file that is not a store of this version, repair about a damaged one.
func explainFileError(what, other, repair string, err error) error {
	var driver *sqlite.Error
	switch explained := explainSchemaError(what, other, err); {
	case explained != nil:
		return explained
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
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}
