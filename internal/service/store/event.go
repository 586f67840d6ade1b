// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// maxEvents is how many events one call of EndpointEvents returns at most.
const maxEvents = 1000

// EventLog has the events of endpoints, until they are compacted.
type EventLog struct {
	db        *database
	retention time.Duration // retention is how long events are kept.
}

// EndpointEvents implements account.EventLog.
func (el *EventLog) EndpointEvents(ctx context.Context, accountID string, v account.ResourceVersion,
	f account.EndpointFilter, limit int) (
	[]account.EndpointEvent, account.ResourceVersion, error) {
	if limit <= 0 || limit > maxEvents {
		limit = maxEvents
	}
	var found []account.EndpointEvent
	var upTo account.ResourceVersion
	err := el.db.read(ctx, "reading events", func(t *tx) (err error) {
		if upTo, err = t.newestAfter(v, accountID, "seq", "compacted_seq"); err != nil {
			return err
		}
		var more bool
		if found, more, err = el.after(t, accountID, v.Seq, f, limit); more {
			upTo = found[limit-1].ResourceVersion
		}
		return err
	})
	if err != nil {
		return nil, account.ResourceVersion{}, err
	}
	return found, upTo, nil
}

// after returns at most limit events of endpoints that match the filter. more reports that
// there are as many, so that others may follow. Rows do not tell the type of the endpoint, so those
// of other types count as read, and do not count for the limit.
func (el *EventLog) after(
	t *tx, accountID string, after int64, f account.EndpointFilter, limit int,
) (found []account.EndpointEvent, more bool, err error) {
	for {
		q := query{args: []any{accountID, after}, text: `account_id = $1 AND seq > $2`}
		q.andIn(`binding`, f.Bindings)
		q.andIf(f.URL != "", `url = `, f.URL)
		read := 0
		err := t.Each(func(from scanner) error {
			if read++; len(found) == limit {
				return nil
			}
			e, err := el.scan(t, from)
			if after = e.ResourceVersion.Seq; err == nil && (f.Type == "" || e.Endpoint.Type == f.Type) {
				found = append(found, e)
			}
			return err
		}, `SELECT seq, type, snapshot FROM events WHERE `+q.text+fmt.Sprintf(` ORDER BY seq LIMIT %d`, limit),
			q.args...)
		if more = len(found) == limit; err != nil || more || read < limit {
			return found, more, err
		}
	}
}

func (el *EventLog) scan(t *tx, from scanner) (account.EndpointEvent, error) {
	var e account.EndpointEvent
	var seq int64
	var kind, snapshot string
	if err := from.Scan(&seq, &kind, &snapshot); err != nil {
		return e, err
	}
	e.Type, e.ResourceVersion, e.Endpoint = account.EventType(kind), t.version(seq), &account.Endpoint{}
	if err := json.Unmarshal([]byte(snapshot), e.Endpoint); err != nil {
		return e, fmt.Errorf("decoding event %d: %w", seq, err)
	}
	return e, nil
}

// Subscribe implements account.EventLog.
func (el *EventLog) Subscribe(accountID string) (wake <-chan struct{}, cancel func()) {
	return el.db.wakes.Subscribe(accountID)
}

func (el *EventLog) sweep(ctx context.Context) error {
	before := sqldb.Micros(el.db.Now().Add(-el.retention))
	compact := func(t *tx) error { return el.compact(t, before) }
	return el.db.writeWhile(ctx, "compacting events", compact, `SELECT 1 FROM events WHERE at <= $1 LIMIT 1`, before)
}

// compact removes a batch of one account's oldest events. What stays is a whole tail of the log,
// whatever the clock did.
func (el *EventLog) compact(t *tx, before int64) error {
	var accountID string
	var last, first int64
	err := t.Row(`SELECT account_id, MAX(seq) FROM events WHERE at <= $1 GROUP BY account_id LIMIT 1`, before).
		Scan(&accountID, &last)
	if err != nil {
		return err
	}
	if err := t.Row(`SELECT MIN(seq) FROM events WHERE account_id = $1`, accountID).Scan(&first); err != nil {
		return err
	}
	last = min(last, first+50*sweepBatch)
	if err := t.Exec(`DELETE FROM events WHERE account_id = $1 AND seq <= $2`, accountID, last); err != nil {
		return err
	}
	return t.Exec(`UPDATE accounts SET compacted_seq = $1 WHERE id = $2`, last, accountID)
}

// txLog collects the events and audit records that a transaction writes at its end.
type txLog struct {
	numbers        map[string]numbers // by account
	events, audits [][]any            // the rows
}

// numbers are those that a transaction has given out last, of an account.
type numbers struct {
	seq, auditSeq int64
	// what the account's row does not have yet: of all calls of the transaction but the first
	owedSeq, owedAuditSeq, owedEndpoints int
}

// BeginCall returns the transaction for one of the calls that share it.
func (t *tx) BeginCall() *tx {
	call := &tx{Tx: t.Tx, db: t.db, now: t.db.Now(), epoch: t.epoch, changes: map[string][]change{},
		audits: map[string][]auditRecord{}, log: t.log}
	call.log.numbers = maps.Clone(t.log.numbers)
	return call
}

// EndCall numbers and logs what a call has changed, and adds it.
func (t *tx) EndCall(call *tx) error {
	if err := call.logEvents(); err != nil {
		return err
	}
	t.epoch, t.log = call.epoch, call.log
	for accountID, changes := range call.changes {
		t.changes[accountID] = append(t.changes[accountID], changes...)
	}
	for accountID, audits := range call.audits {
		t.audits[accountID] = append(t.audits[accountID], audits...)
	}
	return nil
}

// maxBatchEvents bounds the endpoint and audit events of a transaction that calls share; the call
// that passes it is the last.
const maxBatchEvents = 5 * sweepBatch

// Full reports whether the calls have so many events that no other call may share the transaction.
func (t *tx) Full() bool { return len(t.log.events)+len(t.log.audits) >= maxBatchEvents }

// changedAccounts returns the accounts that have new endpoint or audit events.
func (t *tx) changedAccounts() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(t.changes)), maps.Keys(t.audits))
	slices.Sort(all)
	return slices.Compact(all)
}

// logEvents gives the call's changes their numbers and writes rows with them, after all else of the
// call.
func (t *tx) logEvents() error {
	for _, accountID := range t.changedAccounts() {
		changes, audits := t.changes[accountID], t.audits[accountID]
		n, err := t.count(accountID, len(changes), growth(changes), len(audits))
		if err != nil {
			return fmt.Errorf("taking numbers of events: %w", err)
		}
		for i, c := range changes {
			c.row.e.ResourceVersion = t.version(n.seq - int64(len(changes)-1-i))
			if err := t.logChange(c); err != nil {
				return err
			}
		}
		for i, r := range audits {
			if err := t.logAudit(accountID, n.auditSeq-int64(len(audits)-1-i), r); err != nil {
				return err
			}
		}
	}
	return nil
}

// count takes the numbers of so many changes and audit events of an account, and counts its
// endpoints. The first call of a transaction takes them from the account's row, which no other
// transaction can change until this one has ended; writeLog writes those of the next calls.
func (t *tx) count(accountID string, changes, endpoints, audits int) (numbers, error) {
	n, known := t.log.numbers[accountID]
	if known {
		n.seq += int64(changes)
		n.auditSeq += int64(audits)
		n.owedSeq += changes
		n.owedEndpoints += endpoints
		n.owedAuditSeq += audits
	} else if err := t.Numbers(`UPDATE accounts
		SET seq = seq + $1, endpoints = endpoints + $2, audit_seq = audit_seq + $3
		WHERE id = $4 RETURNING seq, audit_seq`, []any{changes, endpoints, audits, accountID},
		&n.seq, &n.auditSeq); err != nil {
		return n, err
	}
	t.log.numbers[accountID] = n
	return n, nil
}

// Flush writes the events of all calls, and what the accounts' rows lack, at the end of the
// transaction. No call reads them before.
func (t *tx) Flush() error {
	for _, accountID := range slices.Sorted(maps.Keys(t.log.numbers)) {
		n := t.log.numbers[accountID]
		if n.owedSeq == 0 && n.owedAuditSeq == 0 {
			continue
		}
		err := t.Exec(`UPDATE accounts SET seq = seq + $1, endpoints = endpoints + $2, audit_seq = audit_seq + $3
			WHERE id = $4`, n.owedSeq, n.owedEndpoints, n.owedAuditSeq, accountID)
		if err != nil {
			return fmt.Errorf("writing the numbers of events: %w", err)
		}
	}
	if err := t.InsertRows(`events (account_id, seq, at, type, binding, url, snapshot)`, t.log.events); err != nil {
		return fmt.Errorf("writing events: %w", err)
	}
	err := t.InsertRows(`audit_events (id, account_id, seq, at, type, principal_id, object_id, details)`, t.log.audits)
	if err != nil {
		return fmt.Errorf("writing audit events: %w", err)
	}
	return nil
}

// growth is how many endpoints more there are after the changes.
func growth(changes []change) (n int) {
	for _, c := range changes {
		switch c.kind {
		case account.Added:
			n++
		case account.Deleted:
			n--
		case account.Modified:
		}
	}
	return n
}

func (t *tx) logChange(c change) error {
	e := &c.row.e
	if c.kind != account.Deleted {
		if err := c.row.save(t, c.kind); err != nil {
			return fmt.Errorf("writing endpoint: %w", err)
		}
	}
	snapshot, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding event: %w", err)
	}
	t.log.events = append(t.log.events, []any{e.AccountID, e.ResourceVersion.Seq, sqldb.Micros(t.now), string(c.kind),
		e.Bindings[0], e.URL, string(snapshot)})
	return nil
}

func (t *tx) logAudit(accountID string, seq int64, r auditRecord) error {
	details, err := json.Marshal(r.details)
	if err != nil {
		return fmt.Errorf("encoding an audit event: %w", err)
	}
	t.log.audits = append(t.log.audits, []any{account.NewID(account.PrefixEvent, t.now), accountID, seq,
		sqldb.Micros(t.now), string(r.what), r.by, r.objectID, string(details)})
	return nil
}
