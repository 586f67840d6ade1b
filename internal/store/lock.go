// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
)

var errReadOnlyFilesystem = syscall.EROFS

// LockServer makes the caller the one active server of the data directory until release is called or the process ends. A second
// server gets an error that says why. Commands that administer the store while a server runs need no lock.
func LockServer(dataDir string) (release func() error, err error) {
	if err := prepareDataDir(dataDir); err != nil {
		return nil, err
	}
	path := filepath.Join(dataDir, "server.lock")
	lock := flock.New(path, flock.SetPermissions(0o600))
	held, err := lock.TryLock()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errReadOnlyFilesystem) {
		return nil, fmt.Errorf("data directory %s is not writable for user %d: %w; give it to that user, or choose another with --data-dir",
			dataDir, os.Getuid(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("locking data directory %s: %w", dataDir, err)
	}
	if !held {
		return nil, fmt.Errorf("data directory %s is in use by another fairlead-server; stop that one, or choose another --data-dir", dataDir)
	}
	return lock.Unlock, nil
}
