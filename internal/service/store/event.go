// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// maxEvents is how many events one call of EndpointEvents returns at most.
const maxEvents = 1000

// EndpointEvents implements account.EventLog.
func (s *Store) EndpointEvents(ctx context.Context, accountID string, v account.ResourceVersion,
	f account.EndpointFilter, limit int) (
	[]account.EndpointEvent, account.ResourceVersion, error) {
	if limit <= 0 || limit > maxEvents {
		limit = maxEvents
	}
	var found []account.EndpointEvent
	var upTo account.ResourceVersion
	err := s.read(ctx, "reading events", func(t *tx) error {
		seq, compacted, err := t.counters(accountID, "seq", "compacted_seq")
		if err != nil {
			return err
		}
		if err := t.checkVersion(v, seq, compacted); err != nil {
			return err
		}
		upTo = t.version(seq)
		events, more, err := t.eventsAfter(accountID, v.Seq, f, limit)
		if more {
			upTo = events[limit-1].ResourceVersion
		}
		found = events
		return err
	})
	if err != nil {
		return nil, account.ResourceVersion{}, err
	}
	return found, upTo, nil
}

// eventsAfter returns at most limit events of endpoints that match the filter. more reports that
// there are as many, so that others may follow. Rows do not tell the type of the endpoint, so those
// of other types count as read, and do not count for the limit.
func (t *tx) eventsAfter(
	accountID string, after int64, f account.EndpointFilter, limit int,
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
			e, err := t.scanEvent(from)
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

func (t *tx) checkVersion(v account.ResourceVersion, seq, compacted int64) error {
	var why string
	switch {
	case v.Epoch != t.epoch:
		why = "is of another store, or of this one before it was restored"
	case v.Seq > seq:
		why = "lies in the future"
	case v.Seq < compacted:
		why = "is too old: the events after it were compacted"
	default:
		return nil
	}
	return account.Errorf(account.CodeGone, "resource_version %s %s; list again and watch from the list's version", v,
		why)
}

func (t *tx) scanEvent(from scanner) (account.EndpointEvent, error) {
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
