// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// ServerLock makes its holder the only active server of a store. Commands use a nil *ServerLock,
// which locks nothing.
type ServerLock struct {
	file     *flock.Flock
	postgres *postgresLock // postgres is nil with SQLite.
}

// LockServer makes the caller the only active server of the data directory, and of the PostgreSQL
// database, if it is not "", until Release is called or the process ends. A second server gets an
// error with the reason. With a member, whose life is locked under that name, the caller is one of
// several servers of the database.
// Commands that administer the store while a server runs need no lock.
func LockServer(ctx context.Context, dataDir, databaseURL, member string) (*ServerLock, error) {
	file, err := lockDataDir(dataDir)
	if err != nil {
		return nil, err
	}
	lock := &ServerLock{file: file}
	if databaseURL == "" {
		return lock, nil
	}
	if lock.postgres, err = lockPostgres(ctx, databaseURL, member); err != nil {
		return nil, errors.Join(err, file.Unlock())
	}
	return lock, nil
}

func lockDataDir(dataDir string) (*flock.Flock, error) {
	if err := prepareDataDir(dataDir); err != nil {
		return nil, err
	}
	path := filepath.Join(dataDir, "server.lock")
	lock := flock.New(path, flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if isNotWritable(err) {
		return nil, notWritableError(dataDir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("locking data directory %s: %w", dataDir, err)
	}
	if !locked {
		return nil, &openError{"data directory " + dataDir + " is in use by another fairlead-server; stop that one, " +
			"or choose another --data-dir", ErrServerLive}
	}
	return lock, nil
}

// Maintain keeps the lock until ctx is done, which is no error. A database's lock is lost with its
// connection: writes are then refused as CodeUnavailable until it is locked again; report is
// called for both. It gives up, with an error, when another server has had the store meanwhile.
func (l *ServerLock) Maintain(ctx context.Context, report func(locked bool, err error)) error {
	if l.postgres == nil {
		<-ctx.Done()
		return nil
	}
	return l.postgres.maintain(ctx, report)
}

// Release gives the lock back. Maintain has returned.
func (l *ServerLock) Release() error {
	var err error
	if l.postgres != nil {
		err = l.postgres.release()
	}
	return errors.Join(err, l.file.Unlock())
}

// Check returns CodeUnavailable while the lock is lost. It keeps servers of the other mode away
// from one of several, which writes without it: its row is what fences it.
func (l *ServerLock) Check() error {
	if l == nil || l.postgres == nil || l.postgres.shared || l.postgres.locked.Load() {
		return nil
	}
	return account.Errorf(account.CodeUnavailable,
		"the store is not available: the server's lock of the database is lost; try again")
}

// HasTerms reports whether a server that has lost the lock unnoticed is fenced by a term.
func (l *ServerLock) HasTerms() bool { return l != nil && l.postgres != nil }

// BeginTerm makes the term, of a transaction that was committed, that of this server.
func (l *ServerLock) BeginTerm(term int64) { l.postgres.term.Store(term) }
