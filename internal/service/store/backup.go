// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Backup writes a copy of the SQLite store in dataDir, of one moment, to a new file. A server may
// run meanwhile, and goes on writing. The file has hashes of secrets and is readable for its owner
// only. Its errors are sentences.
func Backup(ctx context.Context, dataDir, file string) (err error) {
	path := filepath.Join(dataDir, databaseFile)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("there is no database to back up: %w; give the server's directory with --data-dir", err)
	}
	if err := checkOurs(ctx, path, func(err error) error { return explainOpenError(path, err) }); err != nil {
		return err
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
	db, err := openDB(path, "mode=rw")
	if err != nil {
		return err
	}
	if _, err = db.ExecContext(ctx, `VACUUM INTO $1`, file); err != nil {
		err = fmt.Errorf("writing backup file %s: %w", file, err)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	return out.Sync()
}

// checkOurs returns why the file is not a store that this program can read; explain words
// it.
func checkOurs(ctx context.Context, path string, explain func(error) error) (err error) {
	db, err := openDB(path, "mode=rw")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var app, version int
	err = errors.Join(db.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&app),
		db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version))
	switch {
	case err != nil:
		return explain(err)
	case version > schemaVersion:
		return explain(newerSchemaError{found: version})
	case app != applicationID:
		return explain(errForeignDatabase)
	}
	return nil
}

// checkWhole looks for damage, which a copy that broke off has.
func checkWhole(ctx context.Context, path, name string, explain func(error) error) (err error) {
	db, err := openDB(path, "mode=rw")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var found string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found); err != nil {
		return explain(err)
	}
	if found != "ok" {
		return fmt.Errorf("%s is damaged: %s; take another backup", name, found)
	}
	return nil
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

// readCredentials reads the credentials of a database file that is not opened as a store: it may be
// old or damaged.
func readCredentials(ctx context.Context, path string) (all []Credential, epoch int64, err error) {
	s := &Store{engine: sqliteEngine{}}
	s.opt.setDefaults()
	if s.reader, err = openDB(path, "mode=rw&_pragma=query_only(1)"); err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, s.reader.Close()) }()
	err = s.read(ctx, "reading the replaced store", func(t *tx) (err error) {
		if err := t.row(`SELECT epoch FROM store`).Scan(&epoch); err != nil {
			return err
		}
		var hasRules bool
		err = t.row(`SELECT COUNT(*) > 0 FROM pragma_table_info('api_keys') WHERE name = 'cluster_uid'`).Scan(&hasRules)
		if err != nil {
			return err
		}
		rules := oldKeyRules
		if hasRules {
			rules = newKeyRules
		}
		if all, err = t.credentials(rules); err != nil {
			return err
		}
		var hasClusters bool
		err = t.row(`SELECT COUNT(*) > 0 FROM sqlite_master WHERE name = 'clusters'`).Scan(&hasClusters)
		if err != nil || !hasClusters {
			return err
		}
		trusted, err := t.clusterCredentials()
		all = append(all, trusted...)
		return err
	})
	return all, epoch, err
}
