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

// Binds gives agents' sessions their endpoints.
type Binds struct {
	db         *database
	endpoints  *Endpoints
	domains    *Domains
	clusterIDs *ClusterIDs
}

// Bind implements account.Binder.
func (b *Binds) Bind(ctx context.Context, r account.BindRequest) (*account.BindResult, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	result := &account.BindResult{ResumeSecret: account.NewSecret(account.ResumePrefix)}
	var row *endpointRow
	err := b.db.writeShared(ctx, "binding an endpoint", func(t *tx) (err error) {
		row, err = b.bind(t, r, result)
		return err
	})
	if err != nil {
		return nil, err
	}
	result.Endpoint = row.e // with the version that the transaction's end gave it
	return result, nil
}

// bind gives the session of the bind its row, and sets all of the result but the endpoint.
func (b *Binds) bind(t *tx, r account.BindRequest, result *account.BindResult) (*endpointRow, error) {
	at, err := b.placeOf(t, r)
	if err != nil {
		return nil, err
	}
	if err := b.domains.mayHaveHost(t, &r.Endpoint); err != nil {
		return nil, err
	}
	if err := b.clusterIDs.claim(t, &r.Endpoint); err != nil {
		return nil, err
	}
	if err := b.refuseOthers(t, r, at); err != nil {
		return nil, err
	}
	chosen, err := b.chooseRow(t, r, at)
	if err != nil {
		return nil, err
	}
	row, kind, before := chosen.row, account.Modified, account.Endpoint{}
	if row == nil {
		kind = account.Added
		if row, err = b.endpoints.newRow(t, r.Endpoint, chosen.slot); err != nil {
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
	newPolicy, replaced, err := b.bindPolicy(t, row, r, at.endpoints > 0)
	if err != nil {
		return nil, err
	}
	result.PolicyReplaced = newPolicy && (kind == account.Modified || r.ReplacePoolPolicy) || replaced
	if kind == account.Modified && !newPolicy && !differs(before, row.e) {
		return row, t.Exec(`UPDATE endpoints SET resume_hash = $1 WHERE id = $2`, row.resumeHash, row.e.ID)
	}
	row.e.UpdatedAt = t.now
	t.changed(kind, row)
	if kind == account.Modified && before.SealKey != row.e.SealKey {
		t.audit(account.Caller{AccountID: r.AccountID, PrincipalID: r.CredentialID}, account.AuditSealChanged, row.e.ID,
			map[string]string{"url": row.e.URL, "seal_key": row.e.SealKey, "previous_seal_key": before.SealKey})
	}
	return row, nil
}

// chooseRow chooses the row of the bind.
func (b *Binds) chooseRow(t *tx, r account.BindRequest, at bindPlace) (c rowChoice, err error) {
	if r.Owner != nil {
		return b.ownerRow(t, r, at)
	}
	if c.slot, err = requestedSlot(r, at.instanceID); err != nil || at.endpoints == 0 {
		return c, err
	}
	c.row, err = b.rowFor(t, r, c.slot, poolMemberSlot(r.Name, at.instanceID))
	if err == nil && c.row != nil {
		c.replaced, err = b.checkHolder(t, c.row, r)
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
func (b *Binds) placeOf(t *tx, r account.BindRequest) (at bindPlace, err error) {
	cluster, object := ownerKey(r.Owner)
	err = t.Row(`SELECT s.region, s.instance_id, COUNT(e.id),
			COUNT(CASE WHEN e.scheme <> $6 OR e.type = $7 OR `+othersOwner(8)+` THEN 1 END)
		FROM tunnel_sessions AS s LEFT JOIN endpoints AS e
			ON e.account_id = s.account_id AND e.binding = $3 AND e.host = $4 AND e.port = $5
		WHERE s.id = $1 AND s.account_id = $2 GROUP BY s.id, s.region, s.instance_id`,
		r.SessionID, r.AccountID, r.Bindings[0], r.Host, r.Port, r.Scheme, account.TypeCloud,
		cluster, object, r.PoolingEnabled).
		Scan(&at.region, &at.instanceID, &at.endpoints, &at.conflicts)
	if errors.Is(err, sql.ErrNoRows) {
		err = errSessionOver(r.SessionID)
	}
	return at, err
}

// refuseOthers refuses a bind beside endpoints that do not share host and port.
func (b *Binds) refuseOthers(t *tx, r account.BindRequest, at bindPlace) error {
	if at.conflicts == 0 {
		return nil
	}
	if err := b.endpoints.refuseOtherScheme(t, &r.Endpoint); err != nil {
		return err
	}
	if err := b.refuseCloud(t, r); err != nil {
		return err
	}
	return b.refuseOtherOwner(t, r)
}

// checkHolder returns CodeURLTaken unless the session of the bind may take over the existing row.
// tookFrom is the live session that loses it; "" = none.
func (b *Binds) checkHolder(t *tx, row *endpointRow, r account.BindRequest) (tookFrom string, err error) {
	if !row.online() {
		return "", nil
	}
	holder := idOf(row.e.TunnelSession)
	if holder == r.SessionID && (r.Holds == nil || !r.Holds(row.e.ID)) {
		return "", nil // the answer to its own bind was lost, and with it the resume secret
	}
	if len(row.resumeHash) == 0 || subtle.ConstantTimeCompare(row.resumeHash, account.HashSecret(r.ResumeSecret)) != 1 {
		return "", b.urlTaken(t, row, holder, r)
	}
	if holder == r.SessionID {
		return "", nil
	}
	return holder, nil
}

// urlTaken is the refusal of a bind at the URL of an endpoint without an owner that is online.
func (b *Binds) urlTaken(t *tx, row *endpointRow, holder string, r account.BindRequest) error {
	var ip string
	_, err := t.Row(`SELECT ip FROM tunnel_sessions WHERE id = $1 AND account_id = $2`, holder, row.e.AccountID).
		Find(&ip)
	if err != nil {
		return err
	}
	ip = cmp.Or(ip, "an unknown address")
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
	e.EndpointSettings, e.Region = r.EndpointSettings, region
	if e.Owner = nil; r.Owner != nil {
		owner := *r.Owner
		e.Owner = &owner
	}
	e.Type, e.Status, e.OfflineSince = account.TypeAgent, account.StatusOnline, nil
	e.TunnelSession, e.Principal = refTo(r.SessionID), refTo(r.CredentialID)
	row.graceFrom, row.resumeHash = time.Time{}, account.HashSecret(resumeSecret)
}

// Unbind implements account.Binder.
func (b *Binds) Unbind(ctx context.Context, accountID, endpointID, sessionID string) error {
	return b.db.writeShared(ctx, "unbinding an endpoint", func(t *tx) error {
		row, err := b.endpoints.find(t, `account_id = $1 AND id = $2 AND session_id = $3`, accountID, endpointID,
			sessionID)
		if err != nil || row == nil || sessionID == "" {
			return err
		}
		t.by = idOf(row.e.Principal)
		if err := b.endpoints.delete(t, row); err != nil || row.e.Owner == nil {
			return err
		}
		return b.deleteLeftBehind(t, row)
	})
}

// refuseCloud refuses an agent's bind of a URL that endpoints of type cloud have.
func (b *Binds) refuseCloud(t *tx, r account.BindRequest) error {
	rows, err := b.endpoints.atURL(t, &r.Endpoint, `type = $5 ORDER BY id LIMIT 1`, account.TypeCloud)
	if err != nil || len(rows) == 0 {
		return err
	}
	id := rows[0].e.ID
	if owner := rows[0].e.Owner; owner != nil {
		return &account.Error{Code: account.CodeURLTaken,
			Details: map[string]string{"endpoint_id": id, "url": rows[0].e.URL, "owner": owner.String()},
			Msg: fmt.Sprintf("%s is taken by %s, which no agent shares; choose another URL, or delete that object",
				r.URL, owner)}
	}
	return taken(rows[0], "%s is a cloud endpoint (%s), which no agent shares; choose another URL, or delete it: "+
		"fairlead api endpoints delete %s", r.URL, id, id)
}
