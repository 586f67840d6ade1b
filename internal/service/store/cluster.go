// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

var clusters = newTable(table[account.Cluster]{
	name: "clusters", noun: "cluster",
	columns: func(c *account.Cluster) []column {
		return []column{
			{"id", &c.ID, insertOnly},
			{"account_id", &c.AccountID, insertOnly},
			{"name", &c.Name, updatable},
			{"issuer", &c.Issuer, updatable},
			{"jwks", jsonField(&c.JWKS), updatable},
			{"key_source", (*string)(&c.KeySource), updatable},
			{"subjects", jsonField(&c.Subjects), updatable},
			{"cluster_uid", &c.ClusterUID, updatable},
			{"description", &c.Description, updatable},
			{"metadata", &c.Metadata, updatable},
			{"created_at", timeField(&c.CreatedAt), insertOnly},
			{"updated_at", timeField(&c.UpdatedAt), updatable},
			{"last_used_at", optionalTimeField(&c.LastUsedAt), insertOnly},
		}
	},
	created: account.AuditClusterCreated, updated: account.AuditClusterUpdated, deleted: account.AuditClusterDeleted,
	details: func(c *account.Cluster) map[string]string {
		return map[string]string{"name": c.Name, "issuer": c.Issuer, "keys": strconv.Itoa(len(c.JWKS.Keys)),
			"subjects": strconv.Itoa(len(c.Subjects))}
	},
	updatedAt: func(c *account.Cluster) *time.Time { return &c.UpdatedAt },
})

// CreateCluster implements account.Clusters. CodeNotFound for an unknown account.
func (s *Store) CreateCluster(
	ctx context.Context, by account.Caller, p account.ClusterPatch,
) (made *account.Cluster, err error) {
	err = s.write(ctx, "creating a cluster", func(t *tx) error {
		if err := t.accountExists(by.AccountID); err != nil {
			return err
		}
		if err := clusters.checkLimit(t, by.AccountID, s.opt.MaxClusters, deleteUnused); err != nil {
			return err
		}
		c, err := p.Apply(account.Cluster{ID: account.NewID(account.PrefixCluster, t.now), AccountID: by.AccountID,
			Issuer: account.DefaultIssuer, Subjects: []account.ClusterSubject{}, CreatedAt: t.now,
			UpdatedAt: t.now}, t.now)
		if err != nil {
			return err
		}
		if err := t.checkCluster(&c); err != nil {
			return err
		}
		made = &c
		clusters.audit(t, by, clusters.created, &c)
		if err := clusters.insert(t, &c); err != nil {
			return err
		}
		return t.indexCluster(&c)
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// checkCluster returns CodeInUse when another cluster of the account has the name or one of the
// keys.
func (t *tx) checkCluster(c *account.Cluster) error {
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

// indexCluster makes the cluster known by its keys and subjects, and by no others.
func (t *tx) indexCluster(c *account.Cluster) error {
	if err := t.unindexCluster(c); err != nil {
		return err
	}
	for _, k := range c.JWKS.Keys {
		if err := t.Exec(`INSERT INTO cluster_keys (account_id, key_id, cluster_id) VALUES ($1, $2, $3)`, c.AccountID,
			k.KeyID, c.ID); err != nil {
			return err
		}
	}
	for _, subject := range c.Subjects {
		if err := t.Exec(`INSERT INTO cluster_subjects (id, cluster_id) VALUES ($1, $2)`, subject.ID,
			c.ID); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) unindexCluster(c *account.Cluster) error {
	if err := t.Exec(`DELETE FROM cluster_keys WHERE cluster_id = $1`, c.ID); err != nil {
		return err
	}
	return t.Exec(`DELETE FROM cluster_subjects WHERE cluster_id = $1`, c.ID)
}

// Cluster implements account.Clusters.
func (s *Store) Cluster(ctx context.Context, accountID, id string) (*account.Cluster, error) {
	return readRow(ctx, s, &clusters, accountID, id)
}

// ListClusters implements account.Clusters.
func (s *Store) ListClusters(ctx context.Context, accountID string, p account.Page) (*account.ClusterPage, error) {
	found, more, err := readPage(ctx, s, &clusters, accountID, p)
	if err != nil {
		return nil, err
	}
	return &account.ClusterPage{Clusters: found, More: more}, nil
}

// PatchCluster implements account.Clusters.
func (s *Store) PatchCluster(
	ctx context.Context, by account.Caller, id string, p account.ClusterPatch,
) (*account.Cluster, error) {
	return patchRow(ctx, s, &clusters, by, id, func(t *tx, c account.Cluster) (account.Cluster, error) {
		patched, err := p.Apply(c, t.now)
		if err == nil {
			err = t.checkCluster(&patched)
		}
		if err == nil {
			err = t.indexCluster(&patched)
		}
		return patched, err
	})
}

// DeleteCluster implements account.Clusters.
func (s *Store) DeleteCluster(ctx context.Context, by account.Caller, id string) error {
	return deleteRow(ctx, s, &clusters, by, id, (*tx).unindexCluster)
}
