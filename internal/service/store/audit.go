// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// AuditLog has the audit events.
type AuditLog struct {
	db   *database
	age  time.Duration // age is how old events get.
	most int64         // most bounds the events of a class of an account.
	mu   sync.Mutex    // mu guards what follows.
	// nextCount is, by account, the number of the audit event from which a class can have too many.
	nextCount map[string]int64
}

// RecordAudit writes an audit event of something that is no change of the store.
func (al *AuditLog) RecordAudit(
	ctx context.Context, by account.Caller, what account.AuditType, objectID string, details map[string]string,
) error {
	return al.db.write(ctx, "writing an audit event", func(t *tx) error {
		t.audit(by, what, objectID, details)
		return nil
	})
}

const auditColumns = `id, seq, at, type, principal_id, object_id, details`

func (al *AuditLog) scan(t *tx, from scanner) (account.AuditEvent, error) {
	var e account.AuditEvent
	var seq, at int64
	var kind, by, object, details string
	if err := from.Scan(&e.ID, &seq, &at, &kind, &by, &object, &details); err != nil {
		return e, err
	}
	e.Type, e.OccurredAt, e.Principal, e.Object, e.ResourceVersion = account.AuditType(kind), sqldb.FromMicros(at),
		refTo(by), refTo(object), t.version(seq)
	if err := json.Unmarshal([]byte(details), &e.Details); err != nil {
		return e, fmt.Errorf("decoding audit event %s: %w", e.ID, err)
	}
	return e, nil
}

// AuditEvent implements account.AuditLog.
func (al *AuditLog) AuditEvent(ctx context.Context, accountID, id string) (*account.AuditEvent, error) {
	return result(ctx, al.db, "reading an audit event", func(t *tx) (*account.AuditEvent, error) {
		found, err := al.scan(t, t.Row(`SELECT `+auditColumns+` FROM audit_events WHERE account_id = $1 AND id = $2`,
			accountID, id))
		if errors.Is(err, sql.ErrNoRows) {
			return nil, notFound("event", id)
		}
		return &found, err
	})
}

// AuditEvents implements account.AuditLog.
func (al *AuditLog) AuditEvents(
	ctx context.Context, accountID string, f account.AuditFilter, p account.Page,
) (*account.AuditPage, error) {
	limit := pageLimit(p)
	return result(ctx, al.db, "listing audit events", func(t *tx) (*account.AuditPage, error) {
		seq, _, err := t.counters(accountID, "audit_seq", "audit_compacted_seq")
		if err != nil {
			return nil, err
		}
		q := auditQuery(accountID, f)
		if p.BeforeID != "" { // events of one moment have ids in no order, so the position is that of their number
			q.args = append(q.args, p.BeforeID)
			q.text += fmt.Sprintf(
				` AND seq < COALESCE((SELECT MAX(seq) FROM audit_events WHERE account_id = $1 AND id = $%d),
				(SELECT MIN(seq) FROM audit_events WHERE account_id = $1 AND id > $%d), %d)`, len(q.args), len(q.args),
				seq+1)
		}
		found, err := al.rows(t, q.text+fmt.Sprintf(` ORDER BY seq DESC LIMIT %d`, limit+1), q.args)
		page := &account.AuditPage{Version: t.version(seq)}
		page.Events, page.More = cut(found, limit)
		return page, err
	})
}

// AuditEventsAfter implements account.AuditLog.
func (al *AuditLog) AuditEventsAfter(ctx context.Context, accountID string, v account.ResourceVersion,
	f account.AuditFilter, limit int) (
	[]account.AuditEvent, account.ResourceVersion, error) {
	if limit <= 0 || limit > maxEvents {
		limit = maxEvents
	}
	var events []account.AuditEvent
	var upTo account.ResourceVersion
	err := al.db.read(ctx, "reading audit events", func(t *tx) (err error) {
		if upTo, err = t.newestAfter(v, accountID, "audit_seq", "audit_compacted_seq"); err != nil {
			return err
		}
		q := auditQuery(accountID, f)
		q.andIf(true, `seq > `, v.Seq)
		events, err = al.rows(t, q.text+fmt.Sprintf(` ORDER BY seq LIMIT %d`, limit), q.args)
		return err
	})
	if err != nil {
		return nil, account.ResourceVersion{}, err
	}
	if len(events) == limit {
		upTo = events[limit-1].ResourceVersion // more may follow
	}
	return events, upTo, nil
}

func auditQuery(accountID string, f account.AuditFilter) query {
	q := query{args: []any{accountID}, text: `account_id = $1`}
	q.andIf(f.Type != "", `type = `, string(f.Type))
	q.andIf(f.ObjectID != "", `object_id = `, f.ObjectID)
	return q
}

func (al *AuditLog) rows(t *tx, condition string, args []any) ([]account.AuditEvent, error) {
	return sqldb.Collect(t.Tx, func(from scanner) (account.AuditEvent, error) {
		return al.scan(t, from)
	}, `SELECT `+auditColumns+` FROM audit_events WHERE `+condition, args...)
}

// SubscribeAudit implements account.AuditLog.
func (al *AuditLog) SubscribeAudit(accountID string) (wake <-chan struct{}, cancel func()) {
	return al.db.auditWakes.Subscribe(accountID)
}

// Conditions of the two classes of audit events. Activity is what agents, people and clusters cause
// by their ordinary work, as often as they like: it must not displace what an account's
// administrators did.
const (
	activityEvent = `(type IN ('tunnel_session.started', 'tunnel_session.ended', 'application_session.created',
		'application_session.device_changed', 'backend.switched', 'cluster.token_refused',
		'cluster.seal_refused')
		OR type IN ('endpoint.created', 'endpoint.updated', 'endpoint.deleted', 'endpoint.seal_changed',
			'kubernetes_operator.created', 'kubernetes_operator.updated', 'kubernetes_operator.deleted')
			AND principal_id NOT LIKE 'ak-%'
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
		sqldb.Micros(t.now.Add(-al.age)))
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
