// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Credential is an API key, an authtoken or a cluster whose ServiceAccounts are trusted, for review
// after a restore.
type Credential struct {
	Kind        string     `json:"kind"` // "api-key", "authtoken" or "cluster"
	ID          string     `json:"id"`
	Account     string     `json:"account"` // its name
	Description string     `json:"description"`
	Rules       []string   `json:"rules"` // scopes, ACL, cluster:<UID>; of a cluster key:<kid> and its subjects
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
}

// Restored is the result of a restore.
type Restored struct {
	Epoch        int64  // epoch of the versions that watches get from now on
	ReplacedFile string // where the store that was there before is kept; "" when there was none
	Compared     bool   // that store could be read; without it Valid has every credential and the other lists are empty
	Valid        []Credential
	Reactivated  []Credential // valid again: deleted since the backup
	Changed      []Credential // as they were at the backup: their rules or expiry were changed since
	Unknown      []Credential // unknown: made since the backup
}

// Backup writes a copy of the SQLite store in dataDir, of one moment, to a new file. A server may
// run meanwhile, and goes on writing. The file has hashes of secrets and is readable for its owner
// only. Its errors are sentences.
func Backup(ctx context.Context, dataDir, file string) error {
	return sqldb.Backup(ctx, dataDir, file, schemaVersion)
}

// Restore puts a file that Backup wrote in the place of the SQLite store in opt.DataDir, as
// NewEpoch leaves it. It refuses while a server runs there. The store that it replaces is kept
// beside it. Until the last step, a rename, nothing has changed.
func Restore(ctx context.Context, opt Options, file string) (restored *Restored, err error) {
	lock, err := LockServer(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	restored = &Restored{}
	old, oldEpoch, problem := readCredentials(ctx, opt.DataDir)
	restored.Compared = problem == nil

	work, err := os.MkdirTemp(opt.DataDir, ".restore-*")
	if err != nil {
		return nil, fmt.Errorf("restoring: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := sqldb.CopyBackup(ctx, file, work, schemaVersion); err != nil {
		return nil, err
	}
	dataDir := opt.DataDir
	opt.DataDir = work
	if err := restored.renew(ctx, opt, oldEpoch); err != nil {
		return nil, err
	}
	restored.compare(old)
	restored.ReplacedFile, err = sqldb.PutInPlace(work, dataDir, time.Now())
	return restored, err
}

// NewEpoch begins a new epoch, so that watchers list again, and ends all stored sessions. A store
// needs it after its database was restored by other means, such as pg_restore.
// It refuses while a server runs. The result has every valid credential.
func NewEpoch(ctx context.Context, opt Options) (*Restored, error) {
	restored := &Restored{}
	return restored, restored.renew(ctx, opt, 0)
}

// renew gives the store an epoch above its own and the given one, and reads what is valid then.
func (r *Restored) renew(ctx context.Context, opt Options, above int64) error {
	return administer(ctx, opt, func(s *Store) error {
		return s.db.write(ctx, "beginning a new epoch", func(t *tx) error {
			err := t.beginEpoch(above)
			if err == nil {
				err = s.revokeAll(t)
			}
			if err == nil {
				r.Valid, err = s.Credentials.valid(t, newKeyRules)
			}
			if err != nil {
				return err
			}
			r.Epoch = t.epoch
			trusted, err := s.Clusters.trusted(t)
			r.Valid = append(r.Valid, trusted...)
			return err
		})
	})
}

// readCredentials reads the credentials of a store that is to be replaced: it may be old or
// damaged.
func readCredentials(ctx context.Context, dataDir string) (all []Credential, epoch int64, err error) {
	db, err := sqldb.OpenReplaced(dataDir)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s := newStore(&database{DB: db}, &Options{})
	err = s.db.read(ctx, "reading the replaced store", func(t *tx) (err error) {
		if err := t.Row(`SELECT epoch FROM store`).Scan(&epoch); err != nil {
			return err
		}
		hasRules, err := t.Exists(`SELECT 1 FROM pragma_table_info('api_keys') WHERE name = 'cluster_uid'`)
		if err != nil {
			return err
		}
		rules := oldKeyRules
		if hasRules {
			rules = newKeyRules
		}
		if all, err = s.Credentials.valid(t, rules); err != nil {
			return err
		}
		hasClusters, err := t.Exists(`SELECT 1 FROM sqlite_master WHERE name = 'clusters'`)
		if err != nil || !hasClusters {
			return err
		}
		trusted, err := s.Clusters.trusted(t)
		all = append(all, trusted...)
		return err
	})
	return all, epoch, err
}

// compare compares the valid credentials with those of the replaced store.
func (r *Restored) compare(old []Credential) {
	if !r.Compared {
		return
	}
	before := map[string]Credential{}
	for _, c := range old {
		before[c.ID] = c
	}
	for _, c := range r.Valid {
		was, known := before[c.ID]
		delete(before, c.ID)
		switch {
		case !known:
			r.Reactivated = append(r.Reactivated, c)
		case !slices.Equal(was.Rules, c.Rules) || !reflect.DeepEqual(was.ExpiresAt, c.ExpiresAt):
			r.Changed = append(r.Changed, c)
		}
	}
	for _, c := range old {
		if _, left := before[c.ID]; left {
			r.Unknown = append(r.Unknown, c)
		}
	}
}

// UseOneServer ends that the store is used by several servers, whose sessions end. It refuses while
// one lives. changed is false when it was used by one already.
func UseOneServer(ctx context.Context, opt Options) (changed bool, err error) {
	err = administer(ctx, opt, func(s *Store) (err error) {
		changed, err = writeResult(ctx, s.db, "changing to one server", func(t *tx) (bool, error) {
			return t.Exists(`UPDATE store SET mode = '' WHERE mode <> '' RETURNING id`)
		})
		return err
	})
	return changed, err
}

// administer runs fn on a store that no server uses meanwhile, in whichever mode it was used.
func administer(ctx context.Context, opt Options, fn func(*Store) error) (err error) {
	if opt.Lock, err = LockServer(ctx, opt); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opt.Lock.Release()) }()
	opt.anyMode = true
	s, err := Open(ctx, opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.BeginServerTerm(ctx); err != nil {
		return err
	}
	return fn(s)
}
