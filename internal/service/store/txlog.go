// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

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
	call := &tx{Tx: t.Tx, db: t.db, now: t.db.now(), epoch: t.epoch, changes: map[string][]change{},
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
	if err := t.insertRows(`events (account_id, seq, at, type, binding, url, snapshot)`, t.log.events); err != nil {
		return fmt.Errorf("writing events: %w", err)
	}
	err := t.insertRows(`audit_events (id, account_id, seq, at, type, principal_id, object_id, details)`, t.log.audits)
	if err != nil {
		return fmt.Errorf("writing audit events: %w", err)
	}
	return nil
}

// maxInsertRows bounds the rows of one statement.
const maxInsertRows = 32

// insertRows inserts rows into "table (columns)". Statements have 1, 2, 4, … rows, so that there are
// few of them for the driver to remember.
func (t *tx) insertRows(into string, rows [][]any) error {
	for len(rows) > 0 {
		n := min(1<<(bits.Len(uint(len(rows)))-1), maxInsertRows)
		var text strings.Builder
		text.WriteString(`INSERT INTO ` + into + ` VALUES `)
		var args []any
		next := `(`
		for _, row := range rows[:n] {
			for _, value := range row {
				args = append(args, value)
				text.WriteString(next)
				text.WriteByte('$')
				text.WriteString(strconv.Itoa(len(args)))
				next = `,`
			}
			next = `),(`
		}
		text.WriteByte(')')
		if err := t.Exec(text.String(), args...); err != nil {
			return err
		}
		rows = rows[n:]
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
	t.log.events = append(t.log.events, []any{e.AccountID, e.ResourceVersion.Seq, micros(t.now), string(c.kind),
		e.Bindings[0], e.URL, string(snapshot)})
	return nil
}

func (t *tx) logAudit(accountID string, seq int64, r auditRecord) error {
	details, err := json.Marshal(r.details)
	if err != nil {
		return fmt.Errorf("encoding an audit event: %w", err)
	}
	t.log.audits = append(t.log.audits, []any{account.NewID(account.PrefixEvent, t.now), accountID, seq,
		micros(t.now), string(r.what), r.by, r.objectID, string(details)})
	return nil
}
