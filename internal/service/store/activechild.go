// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// RecordActiveChild records that another child of a failover serves the new connections of this
// server, and writes the audit event of the switch.
//
// A server that is alone writes an event for each of its switches. Of replicas each finds out by
// itself which child serves; they share one recorded child, and only the transaction that changes
// it writes an event. A replica's switch changes it when the recorded child is the one from which
// the replica switched, or when no other replica has the recorded one. So of replicas that find the
// same switch one writes it, and one that differs from the others for a while writes nothing while
// the recorded child serves with another.
func (bs *Backends) RecordActiveChild(ctx context.Context, c account.ActiveChildChange) error {
	if bs.db.replicaID != "" {
		return bs.db.write(ctx, "recording the active child of a failover", func(t *tx) error {
			return bs.recordActiveChild(t, c)
		})
	}
	if c.From == nil || c.To == nil {
		return nil
	}
	return bs.db.write(ctx, "writing an audit event", func(t *tx) error {
		auditSwitch(t, c, *c.From)
		return nil
	})
}

func auditSwitch(t *tx, c account.ActiveChildChange, from string) {
	t.audit(account.Caller{AccountID: c.AccountID}, account.AuditBackendSwitched, c.BackendID,
		map[string]string{"from": from, "to": *c.To})
}

func (bs *Backends) recordActiveChild(t *tx, c account.ActiveChildChange) error {
	var recorded sql.NullString
	found, err := t.Row(`SELECT active_child FROM backends WHERE account_id = $1 AND id = $2`, c.AccountID,
		c.BackendID).Find(&recorded)
	if err != nil || !found { // deleted meanwhile
		return err
	}
	own, elsewhere, err := bs.haveActiveChild(t, c.BackendID, recorded.String)
	if err != nil {
		return err
	}
	if err := bs.saveActiveChild(t, c); err != nil || c.To == nil || recorded.Valid && recorded.String == *c.To {
		return err
	}
	// own is the replica's last switch that was recorded; one after it may have been lost
	follows := c.From != nil && (own || *c.From == recorded.String)
	if recorded.Valid && elsewhere && !follows {
		return nil
	}
	if c.From != nil {
		from := *c.From
		if recorded.Valid {
			from = recorded.String
		}
		auditSwitch(t, c, from)
	}
	return t.Exec(`UPDATE backends SET active_child = $1 WHERE id = $2`, *c.To, c.BackendID)
}

// haveActiveChild reports whether this replica and whether others have recorded the child as the
// one that serves with them.
func (bs *Backends) haveActiveChild(t *tx, backendID, childID string) (own, others bool, err error) {
	err = t.Each(func(from scanner) error {
		var replicaID string
		err := from.Scan(&replicaID)
		own, others = own || replicaID == bs.db.replicaID, others || replicaID != bs.db.replicaID
		return err
	}, `SELECT replica_id FROM active_children WHERE backend_id = $1 AND child_id = $2`, backendID, childID)
	return own, others, err
}

// saveActiveChild writes which child serves with this replica.
func (bs *Backends) saveActiveChild(t *tx, c account.ActiveChildChange) error {
	if c.To == nil {
		return t.Exec(`DELETE FROM active_children WHERE backend_id = $1 AND replica_id = $2`, c.BackendID,
			bs.db.replicaID)
	}
	return t.Exec(`INSERT INTO active_children (backend_id, replica_id, child_id) VALUES ($1, $2, $3)
		ON CONFLICT (backend_id, replica_id) DO UPDATE SET child_id = excluded.child_id`, c.BackendID,
		bs.db.replicaID, *c.To)
}

// ActiveChildren returns the children that serve with each replica, by failover and replica; none
// where one server is alone. Replicas that have not used a failover lately are missing.
func (bs *Backends) ActiveChildren(
	ctx context.Context, accountID string, backendIDs []string,
) (map[string]map[string]string, error) {
	const doing = "reading the active children of failovers"
	return result(ctx, bs.db, doing, func(t *tx) (map[string]map[string]string, error) {
		active := map[string]map[string]string{}
		return active, t.EachIn(backendIDs, accountID, func(from scanner) error {
			var backendID, replicaID, childID string
			err := from.Scan(&backendID, &replicaID, &childID)
			if active[backendID] == nil {
				active[backendID] = map[string]string{}
			}
			active[backendID][replicaID] = childID
			return err
		}, `SELECT a.backend_id, a.replica_id, a.child_id FROM active_children AS a
			JOIN backends AS b ON b.id = a.backend_id WHERE b.account_id = $1 AND a.backend_id IN IDS`)
	})
}
