// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
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
	before := micros(el.db.now().Add(-el.retention))
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
