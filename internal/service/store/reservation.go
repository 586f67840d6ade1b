// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// newRow makes an endpoint the row of a slot that has none, with the ids that are reserved for the
// slot and its hostname.
func (es *Endpoints) newRow(t *tx, e account.Endpoint, slot string) (*endpointRow, error) {
	var count int
	if err := t.Row(`SELECT endpoints FROM accounts WHERE id = $1`, e.AccountID).Scan(&count); err != nil {
		return nil, err
	}
	if count += t.log.numbers[e.AccountID].owedEndpoints; count >= es.max {
		return nil, account.Errorf(account.CodeLimit,
			"the account has %d endpoints, which is its limit; end some of them first", count)
	}
	var err error
	if e.ID, err = es.slotID(t, &e, slot); err != nil {
		return nil, err
	}
	if e.ProjectionID, err = es.projectionID(t, &e); err != nil {
		return nil, err
	}
	e.CreatedAt, e.UpdatedAt = t.now, t.now
	e.TrafficPolicy, e.BackendID = "", "" // setPolicy writes them
	row := &endpointRow{e: e}
	row.repeatURL()
	return row, nil
}

// slotID returns the id reserved for the slot and ends the reservation, or makes an id.
func (es *Endpoints) slotID(t *tx, e *account.Endpoint, slot string) (string, error) {
	var id string
	var expires int64
	_, err := t.Row(
		`DELETE FROM slot_reservations WHERE account_id = $1 AND binding = $2 AND host = $3 AND port = $4 AND slot = $5
		RETURNING endpoint_id, expires_at`, e.AccountID, e.Bindings[0], e.Host, e.Port, slot).Find(&id, &expires)
	if err == nil && expires <= sqldb.Micros(t.now) {
		id = account.NewID(account.PrefixEndpoint, t.now)
	}
	return id, err
}

// projectionID returns the id that the hostname is projected by: that of its first endpoint. The
// hostname is in use from now on.
func (es *Endpoints) projectionID(t *tx, e *account.Endpoint) (string, error) {
	var projection string
	err := t.Row(
		`INSERT INTO hostnames (account_id, binding, host, projection_id, expires_at) VALUES ($1, $2, $3, $4, 0)
		ON CONFLICT (account_id, binding, host) DO UPDATE SET expires_at = 0, projection_id =
			CASE WHEN hostnames.expires_at <> 0 AND hostnames.expires_at <= $5
				THEN excluded.projection_id ELSE hostnames.projection_id END
		RETURNING projection_id`, e.AccountID, e.Bindings[0], e.Host, e.ID, sqldb.Micros(t.now)).Scan(&projection)
	return projection, err
}

// delete deletes the row and reserves its id for the slot, and the hostname's projection id
// when it was the last.
func (es *Endpoints) delete(t *tx, row *endpointRow) error {
	e := &row.e
	if err := t.Exec(`DELETE FROM endpoints WHERE id = $1`, e.ID); err != nil {
		return err
	}
	expires := sqldb.Micros(t.now.Add(es.reserve))
	err := t.Exec(`INSERT INTO slot_reservations (account_id, binding, host, port, slot, endpoint_id, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (account_id, binding, host, port, slot)
		DO UPDATE SET endpoint_id = excluded.endpoint_id, expires_at = excluded.expires_at`,
		e.AccountID, e.Bindings[0], e.Host, e.Port, row.slot, e.ID, expires)
	if err != nil {
		return err
	}
	err = t.Exec(`UPDATE hostnames SET expires_at = $1 WHERE account_id = $2 AND binding = $3 AND host = $4
		AND NOT EXISTS (SELECT 1 FROM endpoints WHERE account_id = $2 AND binding = $3 AND host = $4)`, expires,
		e.AccountID, e.Bindings[0], e.Host)
	if err != nil {
		return err
	}
	t.changed(account.Deleted, row)
	return nil
}

// sweepReservations drops the reservations that have ended.
func (es *Endpoints) sweepReservations(ctx context.Context) error {
	now := sqldb.Micros(es.db.Now())
	return es.db.writeWhile(ctx, "dropping reservations", func(t *tx) error {
		if err := t.Exec(`DELETE FROM slot_reservations WHERE expires_at <= $1`, now); err != nil {
			return err
		}
		return t.Exec(`DELETE FROM hostnames WHERE expires_at BETWEEN 1 AND $1`, now)
	}, `SELECT 1 WHERE EXISTS (SELECT 1 FROM slot_reservations WHERE expires_at <= $1)
		OR EXISTS (SELECT 1 FROM hostnames WHERE expires_at BETWEEN 1 AND $1)`, now)
}
