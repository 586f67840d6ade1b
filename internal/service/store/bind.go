// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Bind implements account.Binder.
func (s *Store) Bind(ctx context.Context, r account.BindRequest) (*account.BindResult, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	result := &account.BindResult{ResumeSecret: account.NewSecret(account.ResumePrefix)}
	var row *endpointRow
	err := s.writeShared(ctx, "binding an endpoint", func(t *tx) (err error) {
		row, err = t.bind(r, result)
		return err
	})
	if err != nil {
		return nil, err
	}
	result.Endpoint = row.e // with the version that the transaction's end gave it
	return result, nil
}

// bind gives the session of the bind its row, and sets all of the result but the endpoint.
func (t *tx) bind(r account.BindRequest, result *account.BindResult) (*endpointRow, error) {
	at, err := t.placeOf(r)
	if err != nil {
		return nil, err
	}
	if err := t.mayHaveHost(r.AccountID, r.Binding, r.URL); err != nil {
		return nil, err
	}
	if err := t.claimClusterID(r); err != nil {
		return nil, err
	}
	if err := t.refuseOthers(r, at); err != nil {
		return nil, err
	}
	chosen, err := t.chooseRow(r, at)
	if err != nil {
		return nil, err
	}
	row, kind, before := chosen.row, account.Modified, account.Endpoint{}
	if row == nil {
		kind = account.Added
		if row, err = t.newEndpoint(r, chosen.slot); err != nil {
			return nil, err
		}
	} else {
		before = row.e
		at.endpoints--
	}
	result.ReplacedSessionID, result.OwnerEndpointID = chosen.replaced, ""
	if r.Owner != nil {
		result.OwnerEndpointID = cmp.Or(chosen.oldest, row.e.ID)
	}
	row.slot = chosen.slot
	row.assign(r, at.region, result.ResumeSecret, t.now)
	newPolicy, replaced, err := t.bindPolicy(row, r, at.endpoints > 0)
	if err != nil {
		return nil, err
	}
	result.PolicyReplaced = newPolicy && (kind == account.Modified || r.ReplacePoolPolicy) || replaced
	if kind == account.Modified && !newPolicy && !differs(before, row.e) {
		return row, t.Exec(`UPDATE endpoints SET resume_hash = $1 WHERE id = $2`, row.resumeHash, row.e.ID)
	}
	row.e.UpdatedAt = t.now
	t.changed(kind, row)
	return row, nil
}

// chooseRow chooses the row of the bind.
func (t *tx) chooseRow(r account.BindRequest, at bindPlace) (c rowChoice, err error) {
	if r.Owner != nil {
		return t.ownerRow(r, at)
	}
	if c.slot, err = requestedSlot(r, at.instanceID); err != nil || at.endpoints == 0 {
		return c, err
	}
	c.row, err = t.rowFor(r, c.slot, poolMemberSlot(r.Name, at.instanceID))
	if err == nil && c.row != nil {
		c.replaced, err = t.checkHolder(c.row, r)
	}
	return c, err
}

// bindPlace is what a bind finds: its session, and how many endpoints have the host and port of its
// URL, and how many of them may be in its way.
type bindPlace struct {
	region, instanceID   string
	endpoints, conflicts int
}

// placeOf reads what the bind finds by one statement. A session that has ended cannot bind: its
// endpoint would stay online for ever.
func (t *tx) placeOf(r account.BindRequest) (at bindPlace, err error) {
	cluster, object := ownerKey(r.Owner)
	err = t.Row(`SELECT s.region, s.instance_id, COUNT(e.id),
			COUNT(CASE WHEN e.scheme <> $6 OR e.type = $7 OR `+othersOwner(8)+` THEN 1 END)
		FROM tunnel_sessions AS s LEFT JOIN endpoints AS e
			ON e.account_id = s.account_id AND e.binding = $3 AND e.host = $4 AND e.port = $5
		WHERE s.id = $1 AND s.account_id = $2 GROUP BY s.id, s.region, s.instance_id`,
		r.SessionID, r.AccountID, r.Binding, r.URL.Host, r.URL.Port, r.URL.Scheme, account.TypeCloud,
		cluster, object, r.PoolingEnabled).
		Scan(&at.region, &at.instanceID, &at.endpoints, &at.conflicts)
	if errors.Is(err, sql.ErrNoRows) {
		err = errSessionOver(r.SessionID)
	}
	return at, err
}

// refuseOthers refuses a bind beside endpoints that do not share host and port.
func (t *tx) refuseOthers(r account.BindRequest, at bindPlace) error {
	if at.conflicts == 0 {
		return nil
	}
	if err := t.refuseOtherScheme(r); err != nil {
		return err
	}
	if err := t.refuseCloud(r); err != nil {
		return err
	}
	return t.refuseOtherOwner(r)
}

// liveSession returns the region of a live session. An ended session may not bind: its rows would
// never be deleted.
func (t *tx) liveSession(accountID, sessionID string) (region string, err error) {
	err = t.Row(`SELECT region FROM tunnel_sessions WHERE id = $1 AND account_id = $2`, sessionID, accountID).
		Scan(&region)
	if errors.Is(err, sql.ErrNoRows) {
		return "", errSessionOver(sessionID)
	}
	return region, err
}

func errSessionOver(id string) error {
	return account.Errorf(account.CodeNotFound, "tunnel session %s has ended", account.Shorten(id))
}

// refuseOtherScheme holds the rule that one host and port has one scheme in an account.
func (t *tx) refuseOtherScheme(r account.BindRequest) error {
	var id, url string
	found, err := t.Row(`SELECT id, url FROM endpoints
		WHERE account_id = $1 AND binding = $2 AND host = $3 AND port = $4 AND scheme <> $5 LIMIT 1`,
		r.AccountID, r.Binding, r.URL.Host, r.URL.Port, r.URL.Scheme).Find(&id, &url)
	if err != nil || !found {
		return err
	}
	return &account.Error{Code: account.CodeURLTaken, Details: map[string]string{"endpoint_id": id, "url": url},
		Msg: fmt.Sprintf(
			"%s cannot be bound: host and port belong to %s (endpoint %s), and one host and port has one scheme; "+
				"choose another port, or end that endpoint", r.URL, url, id)}
}

// newEndpoint makes the row of a slot that has none, with the ids that are reserved for the slot
// and its hostname.
func (t *tx) newEndpoint(r account.BindRequest, slot string) (*endpointRow, error) {
	var count int
	if err := t.Row(`SELECT endpoints FROM accounts WHERE id = $1`, r.AccountID).Scan(&count); err != nil {
		return nil, err
	}
	if count += t.log.numbers[r.AccountID].owedEndpoints; count >= t.s.opt.MaxEndpoints {
		return nil, account.Errorf(account.CodeLimit,
			"the account has %d endpoints, which is its limit; end some of them first", count)
	}
	id, err := t.slotID(r, slot)
	if err != nil {
		return nil, err
	}
	projection, err := t.projectionID(r, id)
	if err != nil {
		return nil, err
	}
	return &endpointRow{e: account.Endpoint{
		ID: id, AccountID: r.AccountID, URL: r.URL.String(), PublicURL: r.URL.String(), Proto: r.URL.Scheme,
		Scheme:   r.URL.Scheme,
		HostPort: r.URL.HostPort(), Host: r.URL.Host, Port: r.URL.Port, Type: account.TypeAgent,
		Bindings:     []string{r.Binding},
		ProjectionID: projection, CreatedAt: t.now, UpdatedAt: t.now,
	}}, nil
}

// slotID returns the id reserved for the slot and ends the reservation, or makes an id.
func (t *tx) slotID(r account.BindRequest, slot string) (string, error) {
	var id string
	var expires int64
	_, err := t.Row(
		`DELETE FROM slot_reservations WHERE account_id = $1 AND binding = $2 AND host = $3 AND port = $4 AND slot = $5
		RETURNING endpoint_id, expires_at`, r.AccountID, r.Binding, r.URL.Host, r.URL.Port, slot).Find(&id, &expires)
	if err == nil && expires <= micros(t.now) {
		id = account.NewID(account.PrefixEndpoint, t.now)
	}
	return id, err
}

// projectionID returns the id that the hostname is projected by: that of its first endpoint. The
// hostname is in use from now on.
func (t *tx) projectionID(r account.BindRequest, endpointID string) (string, error) {
	var projection string
	err := t.Row(
		`INSERT INTO hostnames (account_id, binding, host, projection_id, expires_at) VALUES ($1, $2, $3, $4, 0)
		ON CONFLICT (account_id, binding, host) DO UPDATE SET expires_at = 0, projection_id =
			CASE WHEN hostnames.expires_at <> 0 AND hostnames.expires_at <= $5
				THEN excluded.projection_id ELSE hostnames.projection_id END
		RETURNING projection_id`, r.AccountID, r.Binding, r.URL.Host, endpointID, micros(t.now)).Scan(&projection)
	return projection, err
}

// checkHolder returns CodeURLTaken unless the session of the bind may take over the existing row.
// tookFrom is the live session that loses it; "" = none.
func (t *tx) checkHolder(row *endpointRow, r account.BindRequest) (tookFrom string, err error) {
	if !row.online() {
		return "", nil
	}
	holder := idOf(row.e.TunnelSession)
	if holder == r.SessionID && (r.Holds == nil || !r.Holds(row.e.ID)) {
		return "", nil // the answer to its own bind was lost, and with it the resume secret
	}
	if len(row.resumeHash) == 0 || subtle.ConstantTimeCompare(row.resumeHash, account.HashSecret(r.ResumeSecret)) != 1 {
		return "", t.urlTaken(row, holder, r)
	}
	if holder == r.SessionID {
		return "", nil
	}
	return holder, nil
}

// urlTaken is the refusal of a bind at the URL of an endpoint without an owner that is online.
func (t *tx) urlTaken(row *endpointRow, holder string, r account.BindRequest) error {
	var ip string
	_, err := t.Row(`SELECT ip FROM tunnel_sessions WHERE id = $1 AND account_id = $2`, holder, row.e.AccountID).
		Find(&ip)
	if err != nil {
		return err
	}
	if ip == "" {
		ip = "an unknown address"
	}
	since := row.onlineSince.Format(time.RFC3339)
	return &account.Error{
		Code: account.CodeURLTaken,
		Msg: fmt.Sprintf("%s is taken by tunnel session %s from %s since %s; %s", row.e.URL, holder, ip, since,
			remedy(row.e.PoolingEnabled, r)),
		Details: map[string]string{"endpoint_id": row.e.ID, "session_id": holder, "ip": ip, "since": since},
	}
}

// assign gives the row to the session of the bind.
func (row *endpointRow) assign(r account.BindRequest, region, resumeSecret string, now time.Time) {
	e := &row.e
	if !row.online() || idOf(e.TunnelSession) != r.SessionID {
		row.onlineSince = now
	}
	e.Name, e.Description, e.Metadata = r.Name, r.Description, r.Metadata
	e.PoolingEnabled = r.PoolingEnabled
	if e.Owner = nil; r.Owner != nil {
		owner := *r.Owner
		e.Owner = &owner
	}
	e.UpstreamURL, e.UpstreamProtocol, e.HostMode, e.Region = r.UpstreamURL, r.UpstreamProtocol, r.HostMode, region
	e.Status, e.OfflineSince, e.TunnelSession, e.Principal = account.StatusOnline, nil, refTo(r.SessionID),
		refTo(r.CredentialID)
	row.graceFrom, row.resumeHash = time.Time{}, account.HashSecret(resumeSecret)
}

// Unbind implements account.Binder.
func (s *Store) Unbind(ctx context.Context, accountID, endpointID, sessionID string) error {
	return s.writeShared(ctx, "unbinding an endpoint", func(t *tx) error {
		row, err := t.endpointWhere(`account_id = $1 AND id = $2 AND session_id = $3`, accountID, endpointID, sessionID)
		if err != nil || row == nil || sessionID == "" {
			return err
		}
		t.by = idOf(row.e.Principal)
		if err := t.deleteEndpoint(row); err != nil || row.e.Owner == nil {
			return err
		}
		return t.deleteLeftBehind(row)
	})
}

// EndSession implements account.Binder.
func (s *Store) EndSession(ctx context.Context, accountID, sessionID string, end account.SessionEnd) error {
	return s.writeShared(ctx, "ending a tunnel session", func(t *tx) error {
		return t.endSession(accountID, sessionID, end)
	})
}

// endSession ends a session, its endpoints and its tunnels.
func (t *tx) endSession(accountID, sessionID string, end account.SessionEnd) error {
	if err := t.endSessions(end, `id = $1 AND account_id = $2`, sessionID, accountID); err != nil {
		return err
	}
	if err := t.Exec(`DELETE FROM tunnels WHERE session_id = $1 AND account_id = $2`, sessionID,
		accountID); err != nil {
		return err
	}
	rows, err := t.endpointsWhere(heldBy, sessionID, accountID)
	for _, row := range rows {
		row.setOffline(t.now)
		t.changed(account.Modified, row)
	}
	return err
}

// heldBy selects the endpoints that session $1 of account $2 holds.
const heldBy = `session_id = $1 AND account_id = $2 AND online = 1 ORDER BY id`

// deleteEndpoint deletes the row and reserves its id for the slot, and the hostname's projection id
// when it was the last.
func (t *tx) deleteEndpoint(row *endpointRow) error {
	e := &row.e
	if err := t.Exec(`DELETE FROM endpoints WHERE id = $1`, e.ID); err != nil {
		return err
	}
	expires := micros(t.now.Add(t.s.opt.Reserve))
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
