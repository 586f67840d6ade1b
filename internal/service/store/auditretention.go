// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Conditions of the two classes of audit events. Activity is what agents, people and clusters cause
// by their ordinary work, as often as they like: it must not displace what an account's
// administrators did.
const (
	activityEvent = `(type IN ('tunnel_session.started', 'tunnel_session.ended', 'application_session.created',
		'application_session.device_changed', 'backend.switched', 'cluster.token_refused')
		OR type IN ('endpoint.created', 'endpoint.updated', 'endpoint.deleted', 'kubernetes_operator.created',
			'kubernetes_operator.updated', 'kubernetes_operator.deleted') AND principal_id NOT LIKE 'ak-%'
		OR type IN ('application_session.revoked', 'application_session.cut') AND principal_id LIKE 'au-%')`
	securityEvent = `NOT ` + activityEvent
)

// auditCut says which events of an account are removed: those of a class up to a number.
type auditCut struct {
	accountID, class string
	upTo             int64
}

// sweep removes the audit events that are too old, and those that are too many of one class in one
// account: a twentieth of a class at a time, so that it seldom counts and writes.
func (al *AuditLog) sweep(ctx context.Context) error {
	al.mu.Lock()
	defer al.mu.Unlock()
	var cuts []auditCut
	err := al.db.read(ctx, "looking for old audit events", func(t *tx) (err error) {
		if cuts, err = al.outdated(t); err != nil {
			return err
		}
		excess, err := al.excess(t)
		cuts = append(cuts, excess...)
		return err
	})
	if err != nil || len(cuts) == 0 {
		return err
	}
	err = al.db.write(ctx, "removing old audit events", func(t *tx) error {
		for _, cut := range cuts {
			if err := cut.apply(t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		al.nextCount = nil // count again
	}
	return err
}

// outdated returns the cuts of events older than the age.
func (al *AuditLog) outdated(t *tx) (cuts []auditCut, err error) {
	return sqldb.List(t.Tx, func(cut *auditCut) []any {
		cut.class = `id <> ''`
		return []any{&cut.accountID, &cut.upTo}
	}, `SELECT account_id, MAX(seq) FROM audit_events WHERE at <= $1 GROUP BY account_id ORDER BY account_id`,
		micros(t.now.Add(-al.age)))
}

// excess returns the cuts that leave the most of a class.
func (al *AuditLog) excess(t *tx) (cuts []auditCut, err error) {
	most, slack := al.most, al.most/20
	due := map[string]int64{} // the last number, by account
	err = t.Each(func(from scanner) error {
		var id string
		var seq int64
		err := from.Scan(&id, &seq)
		if seq >= al.nextCount[id] {
			due[id] = seq
		}
		return err
	}, `SELECT id, audit_seq FROM accounts WHERE audit_seq > $1`, most+slack)
	if err != nil {
		return nil, err
	}
	if al.nextCount == nil {
		al.nextCount = map[string]int64{}
	}
	for id, seq := range due {
		var activity, all int64
		if err := t.Row(`SELECT COALESCE(SUM(CASE WHEN `+activityEvent+` THEN 1 ELSE 0 END), 0), COUNT(*)
			FROM audit_events WHERE account_id = $1`, id).Scan(&activity, &all); err != nil {
			return nil, err
		}
		largest := int64(0)
		for class, count := range map[string]int64{activityEvent: activity, securityEvent: all - activity} {
			if count > most+slack {
				cut := auditCut{accountID: id, class: class}
				if err := t.Row(`SELECT seq FROM audit_events WHERE account_id = $1 AND `+class+`
					ORDER BY seq DESC LIMIT 1 OFFSET $2`, id, most).Scan(&cut.upTo); err != nil {
					return nil, err
				}
				cuts, count = append(cuts, cut), most
			}
			largest = max(largest, count)
		}
		al.nextCount[id] = seq + most + slack - largest + 1
	}
	return cuts, nil
}

// apply removes the events. A watch that has not read all of them yet is told that they are gone.
func (c auditCut) apply(t *tx) error {
	err := t.Exec(`DELETE FROM audit_events WHERE account_id = $1 AND seq <= $2 AND `+c.class, c.accountID, c.upTo)
	if err != nil {
		return err
	}
	return t.Exec(`UPDATE accounts SET audit_compacted_seq = $1 WHERE id = $2 AND audit_compacted_seq < $1`, c.upTo,
		c.accountID)
}
