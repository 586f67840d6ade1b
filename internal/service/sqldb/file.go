// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Backup writes a copy of the SQLite database in dataDir, of one moment, to a new file. A server
// may run meanwhile, and goes on writing. The file has hashes of secrets and is readable for its
// owner only. Schemas after version are refused. Its errors are sentences.
func Backup(ctx context.Context, dataDir, file string, version int) (err error) {
	path := filepath.Join(dataDir, databaseFile)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("there is no database to back up: %w; give the server's directory with --data-dir", err)
	}
	if err := checkOurs(ctx, path, version); err != nil {
		return sqliteEngine{}.explain(path, err)
	}
	out, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("backup file %s exists already; choose another name, or remove it", file)
	}
	if err != nil {
		return fmt.Errorf("making backup file: %w", err)
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = errors.Join(err, os.Remove(file)) // half a backup is none
		}
	}()
	if err := withFile(path, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, `VACUUM INTO $1`, file)
		return err
	}); err != nil {
		return fmt.Errorf("writing backup file %s: %w", file, err)
	}
	return out.Sync()
}

// CopyBackup copies a backup into dir, readable for its owner only, and checks that the copy is a
// whole database with a schema of at most the version.
func CopyBackup(ctx context.Context, file, dir string, version int) error {
	fresh, what := filepath.Join(dir, databaseFile), "backup "+file
	if err := copyFile(file, fresh); err != nil {
		return err
	}
	err := checkOurs(ctx, fresh, version)
	var found string
	if err == nil { // a copy that broke off is damaged
		err = withFile(fresh, func(db *sql.DB) error {
			return db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found)
		})
	}
	switch {
	case err != nil:
		return explainFileError(what, "give a file that `fairlead-server backup` wrote", "take another backup", err)
	case found != "ok":
		return fmt.Errorf("%s is damaged: %s; take another backup", what, found)
	}
	return nil
}

// OpenReplaced opens the database in dataDir, which may be old or damaged, for reads, as it is.
func OpenReplaced(dataDir string) (*DB, error) {
	reader, err := openFile(filepath.Join(dataDir, databaseFile), "mode=rw&_pragma=query_only(1)")
	return &DB{engine: sqliteEngine{}, reader: reader}, err
}

// withFile calls fn with the database file, which is not made or migrated.
func withFile(path string, fn func(*sql.DB) error) error {
	db, err := openFile(path, "mode=rw")
	if err != nil {
		return err
	}
	return errors.Join(fn(db), db.Close())
}

// checkOurs returns why the file is not a database that this program can read.
func checkOurs(ctx context.Context, path string, version int) error {
	return withFile(path, func(db *sql.DB) error {
		var app, found int
		err := errors.Join(db.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&app),
			db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&found))
		switch {
		case err != nil:
			return err
		case found > version:
			return newerSchemaError(found, version)
		case app != applicationID:
			return errForeignDatabase
		}
		return nil
	})
}

// copyFile copies a backup into a new file that only its owner can read.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("opening backup: %w", err)
	}
	defer func() { _ = in.Close() }()
	if info, err := os.Stat(from + "-wal"); err == nil && info.Size() > 0 {
		return fmt.Errorf(
			"%s is a database in use, or its bare copy: there is %s-wal beside it; give a file that `fairlead-server "+
				"backup` wrote", from, from)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("copying backup: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copying backup: %w", err)
	}
	return nil
}

// PutInPlace moves the restored database in dir, which was closed, to dataDir and keeps what was
// there, with its journal, under the name that it returns.
func PutInPlace(dir, dataDir string, now time.Time) (replaced string, err error) {
	fresh, path := filepath.Join(dir, databaseFile), filepath.Join(dataDir, databaseFile)
	if info, err := os.Stat(fresh + "-wal"); err == nil && info.Size() > 0 {
		return "", errors.New("restoring: the restored store has a journal that could not be written back; try again")
	}
	if _, err := os.Stat(path); err == nil {
		replaced = path + ".replaced-" + now.UTC().Format("20060102T150405.000Z")
		for _, suffix := range []string{"-wal", "-shm"} { // a journal beside another database would damage it
			if err := os.Rename(path+suffix, replaced+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("keeping the replaced store: %w", err)
			}
		}
		if err := os.Link(path, replaced); err != nil { // a file system without links
			if err := os.Rename(path, replaced); err != nil {
				return "", fmt.Errorf("keeping the replaced store: %w", err)
			}
		}
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", fmt.Errorf("putting the restored store in its place: %w", err)
	}
	return replaced, syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("writing directory %s: %w", dir, err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("writing directory %s: %w", dir, err)
	}
	return nil
}
