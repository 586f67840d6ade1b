// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
		return s.write(ctx, "beginning a new epoch", func(t *tx) error {
			err := t.beginEpoch(above)
			if err == nil {
				err = t.endLogins()
			}
			if err == nil {
				r.Valid, err = t.credentials(newKeyRules)
			}
			if err != nil {
				return err
			}
			r.Epoch = t.epoch
			trusted, err := t.clusterCredentials()
			r.Valid = append(r.Valid, trusted...)
			return err
		})
	})
}

const (
	newKeyRules = `k.acl, k.cluster_uid`
	oldKeyRules = `'[]', ''` // for schemas without these columns
)

// credentials reads the API keys and authtokens of all accounts that have not expired.
// keyRules are the columns of the keys' rules and clusters.
func (t *tx) credentials(keyRules string) (all []Credential, err error) {
	err = t.Each(func(from scanner) error {
		var c Credential
		var made, expires int64
		var rules, acl, clusterUID string
		if err := from.Scan(&c.Kind, &c.ID, &c.Account, &c.Description, &rules, &acl, &clusterUID, &made,
			&expires); err != nil {
			return err
		}
		var more []string
		if err := errors.Join(json.Unmarshal([]byte(rules), &c.Rules), json.Unmarshal([]byte(acl), &more)); err != nil {
			return fmt.Errorf("reading the rules of %s: %w", c.ID, err)
		}
		if c.Rules = append(c.Rules, more...); clusterUID != "" {
			c.Rules = append(c.Rules, "cluster:"+clusterUID)
		}
		c.CreatedAt, c.ExpiresAt = fromMicros(made), timePointer(expires)
		all = append(all, c)
		return nil
	}, `SELECT 'api-key' AS kind, k.id, a.name, k.description, k.scopes, `+keyRules+`, k.created_at, k.expires_at
			FROM api_keys AS k JOIN accounts AS a ON a.id = k.account_id WHERE k.expires_at = 0 OR k.expires_at > $1
		UNION ALL SELECT 'authtoken', k.id, a.name, k.description, k.acl, '[]', '', k.created_at, k.expires_at
			FROM authtokens AS k JOIN accounts AS a ON a.id = k.account_id WHERE k.expires_at = 0 OR k.expires_at > $1
		ORDER BY 1, 2`, micros(t.now))
	return all, err
}

// clusterCredentials reads the clusters of all accounts.
func (t *tx) clusterCredentials() ([]Credential, error) {
	names := map[string]string{}
	err := t.Each(func(from scanner) error {
		var id, name string
		err := from.Scan(&id, &name)
		names[id] = name
		return err
	}, `SELECT id, name FROM accounts`)
	if err != nil {
		return nil, err
	}
	found, err := clusters.all(t, `id <> '' ORDER BY id`)
	all := make([]Credential, 0, len(found))
	for _, c := range found {
		one := Credential{Kind: "cluster", ID: c.ID, Account: names[c.AccountID], Description: c.Name,
			Rules: []string{"issuer:" + c.Issuer}, CreatedAt: c.CreatedAt}
		for _, k := range c.JWKS.Keys {
			one.Rules = append(one.Rules, "key:"+k.KeyID)
		}
		for _, s := range c.Subjects {
			one.Rules = append(one.Rules, string(s.Role)+":"+s.Namespace+"/"+s.ServiceAccount)
			one.Rules = append(one.Rules, s.ACL...)
		}
		all = append(all, one)
	}
	return all, err
}

// readCredentials reads the credentials of a store that is to be replaced: it may be old or
// damaged.
func readCredentials(ctx context.Context, dataDir string) (all []Credential, epoch int64, err error) {
	db, err := sqldb.OpenReplaced(dataDir)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s := &Store{db: db}
	err = s.read(ctx, "reading the replaced store", func(t *tx) (err error) {
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
		if all, err = t.credentials(rules); err != nil {
			return err
		}
		hasClusters, err := t.Exists(`SELECT 1 FROM sqlite_master WHERE name = 'clusters'`)
		if err != nil || !hasClusters {
			return err
		}
		trusted, err := t.clusterCredentials()
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
		case !slices.Equal(was.Rules, c.Rules) || microsOf(was.ExpiresAt) != microsOf(c.ExpiresAt):
			r.Changed = append(r.Changed, c)
		}
	}
	for _, c := range old {
		if _, left := before[c.ID]; left {
			r.Unknown = append(r.Unknown, c)
		}
	}
}
