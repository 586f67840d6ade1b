// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"

	"github.com/fairlead-dev/fairlead/internal/account"
)

var errReadOnlyFilesystem = syscall.EROFS

// ServerLock makes its holder the only active server of a store. Commands use a nil *ServerLock,
// which locks nothing.
type ServerLock struct {
	file     *flock.Flock
	postgres *postgresLock // nil with SQLite
}

// LockServer makes the caller the only active server of the data directory, and of opt.DatabaseURL,
// until Release is called or the process ends. A second server gets an error with the reason. With
// opt.Replica it makes the caller one of the replicas of opt.DatabaseURL.
// Commands that administer the store while a server runs need no lock.
func LockServer(ctx context.Context, opt Options) (*ServerLock, error) {
	file, err := lockDataDir(opt.DataDir)
	if err != nil {
		return nil, err
	}
	lock := &ServerLock{file: file}
	if opt.DatabaseURL == "" {
		return lock, nil
	}
	if lock.postgres, err = lockPostgres(ctx, opt.DatabaseURL, opt.Replica); err != nil {
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
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errReadOnlyFilesystem) {
		return nil,
			fmt.Errorf(
				"data directory %s is not writable for user %d: %w; give it to that user, or choose another with "+
					"--data-dir",
				dataDir, os.Getuid(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("locking data directory %s: %w", dataDir, err)
	}
	if !locked {
		return nil,
			&openError{"data directory " + dataDir + " is in use by another fairlead-server; stop that one, or " +
				"choose another --data-dir", errServerLive}
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

// check returns CodeUnavailable while the lock is lost. It keeps servers of the other mode away
// from a replica, which writes without it: its row is what fences it.
func (l *ServerLock) check() error {
	if l == nil || l.postgres == nil || l.postgres.shared || l.postgres.locked.Load() {
		return nil
	}
	return account.Errorf(account.CodeUnavailable,
		"the store is not available: the server's lock of the database is lost; try again")
}

// checkTerm returns CodeUnavailable when another server has started on the store since this one
// did. The caller's transaction has locked the row with the term.
func (l *ServerLock) checkTerm(term int64) error {
	if l == nil || l.postgres == nil {
		return nil
	}
	return l.postgres.checkTerm(term)
}
