// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// clusterSweep is how often exports of vanished clusters are looked for, and so how long exporters
// may take to use their keys after a server's start.
const clusterSweep = time.Hour

// ClusterIDs are the ids under which clusters export Services.
type ClusterIDs struct {
	db        *database
	endpoints *Endpoints
	uses      *lastUsedTimes
	grace     time.Duration // grace is how long exports of a vanished cluster are kept.
	due       atomic.Int64  // due is when these are looked for next, in microseconds.
}

// claim makes the cluster of the endpoint's owner the one that has the cluster id of its URL,
// if the binding is BindingClusterset. CodeInUse when another cluster has that id, or the cluster
// has another one, and has endpoints of BindingClusterset; an id without any is free.
func (ci *ClusterIDs) claim(t *tx, e *account.Endpoint) error {
	if e.Bindings[0] != account.BindingClusterset {
		return nil
	}
	id, uid, accountID := e.ParsedURL().ClusterID(), e.Owner.Cluster, e.AccountID
	claims, err := sqldb.List(t.Tx, func(c *clusterClaim) []any { return []any{&c.id, &c.uid} },
		`SELECT cluster_id, cluster_uid FROM cluster_ids
		WHERE account_id = $1 AND (cluster_id = $2 OR cluster_uid = $3) ORDER BY cluster_id`, accountID, id, uid)
	if err != nil || len(claims) == 1 && claims[0] == (clusterClaim{id, uid}) {
		return err
	}
	for _, c := range claims {
		if err := ci.endClaim(t, accountID, c, clusterClaim{id, uid}); err != nil {
			return err
		}
	}
	return t.Exec(`INSERT INTO cluster_ids (account_id, cluster_id, cluster_uid, seen_at) VALUES ($1, $2, $3, $4)`,
		accountID, id, uid, sqldb.Micros(t.now))
}

// clusterClaim is a row of cluster_ids.
type clusterClaim struct{ id, uid string }

// endClaim deletes a claim that is in the way of another one. CodeInUse when its cluster has
// endpoints of BindingClusterset.
func (ci *ClusterIDs) endClaim(t *tx, accountID string, held, wanted clusterClaim) error {
	row, err := ci.endpoints.find(t, `account_id = $1 AND owner_cluster <> '' AND owner_cluster = $2 AND binding = $3
		ORDER BY id LIMIT 1`, accountID, held.uid, account.BindingClusterset)
	if err != nil {
		return err
	}
	if row == nil {
		return t.Exec(`DELETE FROM cluster_ids WHERE account_id = $1 AND cluster_id = $2`, accountID, held.id)
	}
	details := map[string]string{"cluster_id": held.id, "cluster_uid": held.uid, "endpoint_id": row.e.ID}
	if held.uid == wanted.uid {
		return &account.Error{Code: account.CodeInUse, Details: details,
			Msg: fmt.Sprintf("this cluster exports Services under the cluster id %q (endpoint %s), so that it cannot "+
				"have the id %q; keep the id, or delete the cluster's ServiceExports first", held.id, row.e.ID,
				wanted.id)}
	}
	return &account.Error{Code: account.CodeInUse, Details: details,
		Msg: fmt.Sprintf("the cluster id %q is that of cluster %s, which exports Services under it (endpoint %s); "+
			"give this cluster another id, or, if that cluster is gone, delete its endpoints: fairlead api endpoints "+
			"list --binding clusterset --owner-cluster %s", held.id, held.uid, row.e.ID, held.uid)}
}

// sweep deletes exports that are older than OwnedGrace if no credential of their cluster
// was used for as long. After a server's start it waits clusterSweep, so that exporters can use
// theirs after an outage of any length.
func (ci *ClusterIDs) sweep(ctx context.Context) error {
	now := ci.db.Now()
	if sqldb.Micros(now) < ci.due.Load() {
		return nil
	}
	before := sqldb.Micros(now.Add(-ci.grace))
	if err := ci.recordUses(ctx, before); err != nil {
		return err
	}
	ci.due.Store(sqldb.Micros(now.Add(clusterSweep)))
	return ci.endpoints.deleteAll(ctx, "deleting the exports of vanished clusters", `binding = $2 AND type = $3
		AND owner_cluster <> '' AND created_at <= $1 AND EXISTS (SELECT 1 FROM cluster_ids AS c
			WHERE c.account_id = endpoints.account_id AND c.cluster_uid = endpoints.owner_cluster AND c.seen_at <= $1)`,
		`id`, before, account.BindingClusterset, account.TypeCloud)
}

// recordUses writes when a credential of each cluster was used last, which outlives the
// credential, and deletes the ids of unused clusters without endpoints.
func (ci *ClusterIDs) recordUses(ctx context.Context, before int64) error {
	some, err := ci.db.exists(ctx, `SELECT 1 FROM cluster_ids LIMIT 1`)
	if err != nil || !some {
		return err
	}
	if err := ci.uses.flush(ctx, true); err != nil {
		return err
	}
	return ci.db.write(ctx, "noting when clusters were seen", func(t *tx) error {
		const keysOf = `FROM (SELECT account_id, cluster_uid, last_used_at FROM api_keys
				UNION ALL SELECT account_id, cluster_uid, last_used_at FROM clusters) AS k
			WHERE k.account_id = cluster_ids.account_id AND k.cluster_uid = cluster_ids.cluster_uid`
		err := t.Exec(`UPDATE cluster_ids SET seen_at = (SELECT MAX(k.last_used_at) ` + keysOf + `)
			WHERE EXISTS (SELECT 1 ` + keysOf + ` AND k.last_used_at > cluster_ids.seen_at)`)
		if err != nil {
			return err
		}
		return t.Exec(`DELETE FROM cluster_ids WHERE seen_at <= $1 AND NOT EXISTS (SELECT 1 FROM endpoints AS e
			WHERE e.account_id = cluster_ids.account_id AND e.owner_cluster <> ''
			AND e.owner_cluster = cluster_ids.cluster_uid AND e.binding = $2)`, before, account.BindingClusterset)
	})
}
