// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// auditRecord is an audit event of a transaction, not numbered yet.
type auditRecord struct {
	what         account.AuditType
	by, objectID string
	details      map[string]string
}

// audit notes that something happened to an object. Details hold no secrets.
func (t *tx) audit(by account.Caller, what account.AuditType, objectID string, details map[string]string) {
	t.audits[by.AccountID] = append(t.audits[by.AccountID],
		auditRecord{what: what, by: by.PrincipalID, objectID: objectID,
			details: details})
}

// RecordAudit writes an audit event of something that is no change of the store.
func (s *Store) RecordAudit(
	ctx context.Context, by account.Caller, what account.AuditType, objectID string, details map[string]string,
) error {
	return s.write(ctx, "writing an audit event", func(t *tx) error {
		t.audit(by, what, objectID, details)
		return nil
	})
}

const auditColumns = `id, seq, at, type, principal_id, object_id, details`

func (t *tx) scanAudit(from scanner) (account.AuditEvent, error) {
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
func (s *Store) AuditEvent(ctx context.Context, accountID, id string) (*account.AuditEvent, error) {
	return result(ctx, s, "reading an audit event", func(t *tx) (*account.AuditEvent, error) {
		found, err := t.scanAudit(t.Row(`SELECT `+auditColumns+` FROM audit_events WHERE account_id = $1 AND id = $2`,
			accountID, id))
		if errors.Is(err, sql.ErrNoRows) {
			return nil, notFound("event", id)
		}
		return &found, err
	})
}

// AuditEvents implements account.AuditLog.
func (s *Store) AuditEvents(
	ctx context.Context, accountID string, f account.AuditFilter, p account.Page,
) (*account.AuditPage, error) {
	limit := pageLimit(p)
	page := &account.AuditPage{Events: []account.AuditEvent{}}
	err := s.read(ctx, "listing audit events", func(t *tx) error {
		seq, _, err := t.auditCounters(accountID)
		if err != nil {
			return err
		}
		page.Version = t.version(seq)
		q := auditQuery(accountID, f)
		if p.BeforeID != "" { // events of one moment have ids in no order, so the position is that of their number
			q.args = append(q.args, p.BeforeID)
			q.text += fmt.Sprintf(
				` AND seq < COALESCE((SELECT MAX(seq) FROM audit_events WHERE account_id = $1 AND id = $%d),
				(SELECT MIN(seq) FROM audit_events WHERE account_id = $1 AND id > $%d), %d)`, len(q.args), len(q.args),
				seq+1)
		}
		page.Events, err = t.auditRows(q.text+fmt.Sprintf(` ORDER BY seq DESC LIMIT %d`, limit+1), q.args)
		return err
	})
	if err != nil {
		return nil, err
	}
	if page.More = len(page.Events) > limit; page.More {
		page.Events = page.Events[:limit]
	}
	return page, nil
}

// AuditEventsAfter implements account.AuditLog.
func (s *Store) AuditEventsAfter(ctx context.Context, accountID string, v account.ResourceVersion,
	f account.AuditFilter, limit int) (
	[]account.AuditEvent, account.ResourceVersion, error) {
	if limit <= 0 || limit > maxEvents {
		limit = maxEvents
	}
	var events []account.AuditEvent
	var upTo account.ResourceVersion
	err := s.read(ctx, "reading audit events", func(t *tx) error {
		seq, compacted, err := t.auditCounters(accountID)
		if err != nil {
			return err
		}
		if err := t.checkVersion(v, seq, compacted); err != nil {
			return err
		}
		upTo = t.version(seq)
		q := auditQuery(accountID, f)
		q.andIf(true, `seq > `, v.Seq)
		events, err = t.auditRows(q.text+fmt.Sprintf(` ORDER BY seq LIMIT %d`, limit), q.args)
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

func (t *tx) auditRows(condition string, args []any) ([]account.AuditEvent, error) {
	return sqldb.Collect(t.Tx, t.scanAudit, `SELECT `+auditColumns+` FROM audit_events WHERE `+condition, args...)
}

func (t *tx) auditCounters(accountID string) (seq, compacted int64, err error) {
	return t.counters(accountID, "audit_seq", "audit_compacted_seq")
}

// SubscribeAudit implements account.AuditLog.
func (s *Store) SubscribeAudit(accountID string) (wake <-chan struct{}, cancel func()) {
	return s.auditWakes.Subscribe(accountID)
}
