// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

var clusters = newTable(table[account.Cluster]{
	name: "clusters", noun: "cluster",
	columns: func(c *account.Cluster) []sqldb.Column {
		return []sqldb.Column{
			sqldb.Fixed("id", &c.ID),
			sqldb.Fixed("account_id", &c.AccountID),
			sqldb.Updatable("name", &c.Name),
			sqldb.Updatable("issuer", &c.Issuer),
			sqldb.Updatable("jwks", sqldb.JSONField(&c.JWKS)),
			sqldb.Updatable("key_source", (*string)(&c.KeySource)),
			sqldb.Updatable("subjects", sqldb.JSONField(&c.Subjects)),
			sqldb.Updatable("cluster_uid", &c.ClusterUID),
			sqldb.Updatable("description", &c.Description),
			sqldb.Updatable("metadata", &c.Metadata),
			sqldb.Fixed("created_at", sqldb.TimeField(&c.CreatedAt)),
			sqldb.Updatable("updated_at", sqldb.TimeField(&c.UpdatedAt)),
			sqldb.Fixed("last_used_at", sqldb.OptionalTimeField(&c.LastUsedAt)),
		}
	},
	created: account.AuditClusterCreated, updated: account.AuditClusterUpdated, deleted: account.AuditClusterDeleted,
	details: func(c *account.Cluster) map[string]string {
		return map[string]string{"name": c.Name, "issuer": c.Issuer, "keys": strconv.Itoa(len(c.JWKS.Keys)),
			"subjects": strconv.Itoa(len(c.Subjects))}
	},
	updatedAt: func(c *account.Cluster) *time.Time { return &c.UpdatedAt },
})

// Clusters are the clusters whose ServiceAccounts are trusted, and what their tokens do.
type Clusters struct {
	db       *database
	accounts *Accounts
	uses     *lastUsedTimes
	max      int // max bounds the clusters of an account.
}

// CreateCluster implements account.Clusters. CodeNotFound for an unknown account.
func (cs *Clusters) CreateCluster(
	ctx context.Context, by account.Caller, p account.ClusterPatch,
) (*account.Cluster, error) {
	return writeResult(ctx, cs.db, "creating a cluster", func(t *tx) (*account.Cluster, error) {
		if err := cs.accounts.exists(t, by.AccountID); err != nil {
			return nil, err
		}
		if err := clusters.checkLimit(t, by.AccountID, cs.max, deleteUnused); err != nil {
			return nil, err
		}
		c, err := p.Apply(account.Cluster{ID: account.NewID(account.PrefixCluster, t.now), AccountID: by.AccountID,
			Issuer: account.DefaultIssuer, Subjects: []account.ClusterSubject{}, CreatedAt: t.now,
			UpdatedAt: t.now}, t.now)
		if err == nil {
			err = cs.check(t, &c)
		}
		if err != nil {
			return nil, err
		}
		clusters.audit(t, by, clusters.created, &c)
		if err := clusters.insert(t, &c); err != nil {
			return nil, err
		}
		return &c, cs.index(t, &c)
	})
}

// check returns CodeInUse when another cluster of the account has the name or one of the keys.
func (cs *Clusters) check(t *tx, c *account.Cluster) error {
	other, err := clusters.first(t, `account_id = $1 AND name = $2 AND id <> $3`, c.AccountID, c.Name, c.ID)
	if err != nil {
		return err
	}
	if other != nil {
		return &account.Error{Code: account.CodeInUse, Details: map[string]string{"cluster_id": other.ID},
			Msg: "name \"" + c.Name + "\" is that of cluster " + other.ID +
				"; choose another name, or change that cluster"}
	}
	for _, k := range c.JWKS.Keys {
		var id string
		taken, err := t.Row(`SELECT cluster_id FROM cluster_keys
			WHERE account_id = $1 AND key_id = $2 AND cluster_id <> $3`, c.AccountID, k.KeyID, c.ID).Find(&id)
		if err != nil {
			return err
		}
		if taken {
			return &account.Error{Code: account.CodeInUse, Details: map[string]string{"cluster_id": id, "kid": k.KeyID},
				Msg: "the key with the kid \"" + account.Shorten(k.KeyID) + "\" is one of cluster " + id + "; a key " +
					"belongs to one cluster: change or delete that cluster first"}
		}
	}
	return nil
}

// index makes the cluster known by its keys and subjects, and by no others.
func (cs *Clusters) index(t *tx, c *account.Cluster) error {
	if err := cs.unindex(t, c); err != nil {
		return err
	}
	var keys, subjects [][]any
	for _, k := range c.JWKS.Keys {
		keys = append(keys, []any{c.AccountID, k.KeyID, c.ID})
	}
	for _, subject := range c.Subjects {
		subjects = append(subjects, []any{subject.ID, c.ID})
	}
	if err := t.InsertRows(`cluster_keys (account_id, key_id, cluster_id)`, keys); err != nil {
		return err
	}
	return t.InsertRows(`cluster_subjects (id, cluster_id)`, subjects)
}

func (cs *Clusters) unindex(t *tx, c *account.Cluster) error {
	if err := t.Exec(`DELETE FROM cluster_keys WHERE cluster_id = $1`, c.ID); err != nil {
		return err
	}
	return t.Exec(`DELETE FROM cluster_subjects WHERE cluster_id = $1`, c.ID)
}

// Cluster implements account.Clusters.
func (cs *Clusters) Cluster(ctx context.Context, accountID, id string) (*account.Cluster, error) {
	return readRow(ctx, cs.db, &clusters, accountID, id)
}

// ListClusters implements account.Clusters.
func (cs *Clusters) ListClusters(
	ctx context.Context, accountID string, p account.Page,
) (page []account.Cluster, more bool, err error) {
	return readPage(ctx, cs.db, &clusters, accountID, p)
}

// PatchCluster implements account.Clusters.
func (cs *Clusters) PatchCluster(
	ctx context.Context, by account.Caller, id string, p account.ClusterPatch,
) (*account.Cluster, error) {
	return patchRow(ctx, cs.db, &clusters, by, id, func(t *tx, c account.Cluster) (account.Cluster, error) {
		patched, err := p.Apply(c, t.now)
		if err == nil {
			err = cs.check(t, &patched)
		}
		if err == nil {
			err = cs.index(t, &patched)
		}
		return patched, err
	})
}

// DeleteCluster implements account.Clusters.
func (cs *Clusters) DeleteCluster(ctx context.Context, by account.Caller, id string) error {
	return deleteRow(ctx, cs.db, &clusters, by, id, cs.unindex)
}

// trusted reads the clusters of all accounts.
func (cs *Clusters) trusted(t *tx) ([]Credential, error) {
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
