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
	e.Type, e.OccurredAt, e.Principal, e.Object, e.ResourceVersion = account.AuditType(kind), fromMicros(at), refTo(by),
		refTo(object), t.version(seq)
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
