// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	instancePrefix = "in"
	maxInstances   = 256 // processes of one user at a time; the next one gets an id that is not kept
)

// Instance is the name of this process among the agents of an account. It is kept in the state
// directory for the next process. Until Release no other process of the machine gets it.
type Instance struct {
	ID   string
	lock *flock.Flock
}

// NewInstance makes an Instance whose id is random and not kept.
func NewInstance() *Instance { return &Instance{ID: account.NewID(instancePrefix, time.Now())} }

// AcquireInstance locks the first id in dir that no live process holds, and creates one when there
// is none. With an error the Instance is that of NewInstance, which is usable.
func AcquireInstance(dir string) (*Instance, error) {
	unkept := NewInstance()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unkept, fmt.Errorf("making the state directory: %w", err)
	}
	for i := range maxInstances {
		path := filepath.Join(dir, fmt.Sprintf("instance-%d", i))
		lock := flock.New(path + ".lock")
		ok, err := lock.TryLock()
		if err != nil {
			return unkept, fmt.Errorf("locking the instance id: %w", err)
		}
		if !ok {
			continue
		}
		id, err := readOrMakeID(path)
		if err != nil {
			return unkept, errors.Join(err, lock.Unlock())
		}
		return &Instance{ID: id, lock: lock}, nil
	}
	return unkept, fmt.Errorf("all %d instance ids in %q are in use", maxInstances, dir)
}

// readOrMakeID is called under the lock of path.
func readOrMakeID(path string) (string, error) {
	if data, _, err := readLimited(path); err == nil {
		if id := strings.TrimSpace(string(data)); account.ValidID(instancePrefix, id) {
			return id, nil
		}
	}
	id := account.NewID(instancePrefix, time.Now())
	if err := writeAtomic(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("keeping the instance id: %w", err)
	}
	return id, nil
}

// Release unlocks the id for the next process.
func (i *Instance) Release() error {
	if i.lock == nil {
		return nil
	}
	return i.lock.Unlock()
}
