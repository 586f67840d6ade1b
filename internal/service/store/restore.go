// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
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

// Restore puts a file that Backup wrote in the place of the SQLite store in opt.DataDir, as
// NewEpoch leaves it. It refuses while a server runs there. The store that it replaces is kept
// beside it. Until the last step, a rename, nothing has changed.
func Restore(ctx context.Context, opt Options, file string) (restored *Restored, err error) {
	lock, err := LockServer(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	path := filepath.Join(opt.DataDir, databaseFile)
	restored = &Restored{}
	old, oldEpoch, problem := readCredentials(ctx, path)
	restored.Compared = problem == nil

	work, err := os.MkdirTemp(opt.DataDir, ".restore-*")
	if err != nil {
		return nil, fmt.Errorf("restoring: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	fresh := filepath.Join(work, databaseFile)
	if err := copyFile(file, fresh); err != nil {
		return nil, err
	}
	explain := func(err error) error {
		return explainFileError("backup "+file, "give a file that `fairlead-server backup` wrote",
			"take another backup", err)
	}
	if err := checkOurs(ctx, fresh, explain); err != nil {
		return nil, err
	}
	if err := checkWhole(ctx, fresh, "backup "+file, explain); err != nil {
		return nil, err
	}
	opt.DataDir = work
	if restored.Epoch, restored.Valid, err = renew(ctx, opt, oldEpoch); err != nil {
		return nil, err
	}
	if info, err := os.Stat(fresh + "-wal"); err == nil && info.Size() > 0 {
		return nil, errors.New("restoring: the restored store has a journal that could not be written back; try again")
	}
	restored.compare(old)
	restored.ReplacedFile, err = putInPlace(fresh, path, time.Now())
	return restored, err
}

// NewEpoch begins a new epoch, so that watchers list again, and ends all stored sessions. A store
// needs it after its database was restored by other means, such as pg_restore.
// It refuses while a server runs. The result has every valid credential.
func NewEpoch(ctx context.Context, opt Options) (restored *Restored, err error) {
	if opt.Lock, err = LockServer(ctx, opt); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opt.Lock.Release()) }()
	restored = &Restored{}
	opt.anyMode = true
	restored.Epoch, restored.Valid, err = renew(ctx, opt, 0)
	return restored, err
}

// renew opens the store and gives it an epoch above its own and the given one.
func renew(ctx context.Context, opt Options, above int64) (epoch int64, valid []Credential, err error) {
	s, err := Open(ctx, opt)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.BeginServerTerm(ctx); err != nil {
		return 0, nil, err
	}
	err = s.write(ctx, "beginning a new epoch", func(t *tx) (err error) {
		if err := t.beginEpoch(above); err != nil {
			return err
		}
		if err := t.endLogins(); err != nil {
			return err
		}
		valid, err = t.credentials(newKeyRules)
		if err != nil {
			return err
		}
		trusted, err := t.clusterCredentials()
		valid = append(valid, trusted...)
		return err
	})
	return s.epoch.Load(), valid, err
}

const (
	newKeyRules = `k.acl, k.cluster_uid`
	oldKeyRules = `'[]', ''` // for schemas without these columns
)

// credentials reads the API keys and authtokens of all accounts that have not expired.
// keyRules are the columns of the keys' rules and clusters.
func (t *tx) credentials(keyRules string) (all []Credential, err error) {
	err = t.each(func(from scanner) error {
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
	err := t.each(func(from scanner) error {
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

// putInPlace renames the restored file to path and keeps what was there, with its journal, under
// the name that it returns.
func putInPlace(fresh, path string, now time.Time) (replaced string, err error) {
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
