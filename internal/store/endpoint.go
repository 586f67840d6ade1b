// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// endpointRow is an endpoint with what only the store knows of it.
type endpointRow struct {
	e           account.Endpoint
	slot        string // "" without pooling, else the member of the pool: see memberSlot
	resumeHash  []byte // of the secret that takes the row over while it is online
	onlineSince time.Time
	graceFrom   time.Time // when the grace of an offline row began
	digest      string    // keyed, of the traffic policy; "" for none
	change      *policyChange
}

const endpointColumns = `id, account_id, binding, host, port, slot, scheme, url, type, name, description, metadata, pooling_enabled,
	upstream_url, upstream_protocol, host_mode, region, online, session_id, credential_id, resume_hash, online_since, offline_since,
	grace_from, projection_id, created_at, updated_at, seq, policy_digest, backend_id`

func (s *Store) scanEndpoint(from scanner) (*endpointRow, error) {
	var (
		r                                           endpointRow
		e                                           = &r.e
		binding, session, credential                string
		online                                      bool
		onlineSince, offlineSince, grace, made, upd int64
		seq                                         int64
	)
	err := from.Scan(&e.ID, &e.AccountID, &binding, &e.Host, &e.Port, &r.slot, &e.Scheme, &e.URL, &e.Type, &e.Name,
		&e.Description,
		&e.Metadata, &e.PoolingEnabled, &e.UpstreamURL, &e.UpstreamProtocol, &e.HostMode, &e.Region, &online, &session,
		&credential,
		&r.resumeHash, &onlineSince, &offlineSince, &grace, &e.ProjectionID, &made, &upd, &seq, &r.digest, &e.BackendID)
	if err != nil {
		return nil, err
	}
	e.PublicURL, e.Proto, e.Bindings = e.URL, e.Scheme, []string{binding}
	e.HostPort = account.EndpointURL{Host: e.Host, Port: e.Port}.HostPort()
	e.Status, e.OfflineSince = account.StatusOffline, timePointer(offlineSince)
	if online {
		e.Status = account.StatusOnline
	}
	e.TunnelSession, e.Principal = refTo(session), refTo(credential)
	e.CreatedAt, e.UpdatedAt, e.ResourceVersion = fromMicros(made), fromMicros(upd), s.version(seq)
	r.onlineSince, r.graceFrom = fromMicros(onlineSince), fromMicros(grace)
	return &r, nil
}

// saveEndpoint writes the row, new or not.
func (t *tx) saveEndpoint(r *endpointRow) error {
	e := &r.e
	err := t.exec(`INSERT INTO endpoints (`+endpointColumns+
		`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
		$16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30)
		ON CONFLICT (id) DO UPDATE SET slot = excluded.slot, name = excluded.name, description = excluded.description, metadata = excluded.metadata,
		pooling_enabled = excluded.pooling_enabled, upstream_url = excluded.upstream_url, upstream_protocol = excluded.upstream_protocol,
		host_mode = excluded.host_mode, region = excluded.region, online = excluded.online, session_id = excluded.session_id,
		credential_id = excluded.credential_id, resume_hash = excluded.resume_hash, online_since = excluded.online_since,
		offline_since = excluded.offline_since, grace_from = excluded.grace_from, updated_at = excluded.updated_at, seq = excluded.seq,
		policy_digest = excluded.policy_digest, backend_id = excluded.backend_id`,
		e.ID, e.AccountID, e.Bindings[0], e.Host, e.Port, r.slot, e.Scheme, e.URL, e.Type, e.Name, e.Description, e.Metadata,
		e.PoolingEnabled,
		e.UpstreamURL, e.UpstreamProtocol, e.HostMode, e.Region, r.online(), idOf(e.TunnelSession), idOf(e.Principal),
		notNil(r.resumeHash),
		micros(r.onlineSince), microsOf(e.OfflineSince), micros(r.graceFrom), e.ProjectionID, micros(e.CreatedAt),
		micros(e.UpdatedAt),
		e.ResourceVersion.Seq, r.digest, e.BackendID)
	if err != nil {
		return err
	}
	return t.savePolicy(r)
}

func (r *endpointRow) online() bool { return r.e.Status == account.StatusOnline }

// lose makes the row offline; its grace begins.
func (r *endpointRow) lose(now time.Time) {
	r.e.Status, r.e.OfflineSince, r.e.TunnelSession = account.StatusOffline, &now, nil
	r.e.UpdatedAt, r.graceFrom, r.resumeHash = now, now, nil
}

// differs says whether a watcher would see a difference between two states of an endpoint.
func differs(a, b account.Endpoint) bool {
	a.UpdatedAt, a.ResourceVersion = b.UpdatedAt, b.ResourceVersion
	return !reflect.DeepEqual(a, b)
}

// endpointWhere returns the one endpoint that the condition selects, or nil.
func (t *tx) endpointWhere(condition string, args ...any) (*endpointRow, error) {
	row, err := t.s.scanEndpoint(t.row(`SELECT `+endpointColumns+` FROM endpoints WHERE `+condition, args...))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return row, err
}

// endpointsWhere returns all endpoints that the condition selects.
func (t *tx) endpointsWhere(condition string, args ...any) ([]*endpointRow, error) {
	var found []*endpointRow
	err := t.each(func(from scanner) error {
		row, err := t.s.scanEndpoint(from)
		found = append(found, row)
		return err
	}, `SELECT `+endpointColumns+` FROM endpoints WHERE `+condition, args...)
	return found, err
}

// Endpoint implements account.Endpoints.
func (s *Store) Endpoint(ctx context.Context, accountID, id string) (*account.Endpoint, error) {
	var e *account.Endpoint
	err := s.read(ctx, "reading endpoint", func(t *tx) error {
		row, err := t.endpointWhere(`account_id = $1 AND id = $2`, accountID, id)
		if err != nil {
			return err
		}
		if row == nil {
			return notFound("endpoint", id)
		}
		p, err := t.policyOf(row)
		row.e.TrafficPolicy, e = p.text, &row.e
		return err
	})
	return e, err
}

// EndpointReserved implements account.Endpoints.
func (s *Store) EndpointReserved(ctx context.Context, accountID, id string) (reserved bool, err error) {
	err = s.read(ctx, "looking for a reservation", func(t *tx) error {
		var n int
		err := t.row(`SELECT COUNT(*) FROM slot_reservations WHERE account_id = $1 AND endpoint_id = $2 AND expires_at > $3`,
			accountID, id, micros(t.now)).Scan(&n)
		reserved = n > 0
		return err
	})
	return reserved, err
}

// ListEndpoints implements account.Endpoints.
func (s *Store) ListEndpoints(
	ctx context.Context, accountID string, f account.EndpointFilter, p account.Page,
) (*account.EndpointPage, error) {
	limit := pageLimit(p)
	page := &account.EndpointPage{StoreID: s.storeID}
	err := s.read(ctx, "listing endpoints", func(t *tx) error {
		var seq, compacted int64
		if err := t.counters(accountID, &seq, &compacted); err != nil {
			return err
		}
		page.Version = s.version(seq)
		q := query{args: []any{accountID}, text: `account_id = $1`}
		q.andIf(p.BeforeID != "", `id < `, p.BeforeID)
		q.andIf(f.Binding != "", `binding = `, f.Binding)
		q.andIf(f.URL != "", `url = `, f.URL)
		rows, err := t.endpointsWhere(q.text+fmt.Sprintf(` ORDER BY id DESC LIMIT %d`, limit+1), q.args...)
		if err != nil {
			return err
		}
		page.More = len(rows) > limit
		page.Endpoints = make([]account.Endpoint, 0, len(rows))
		for _, row := range rows[:min(limit, len(rows))] {
			page.Endpoints = append(page.Endpoints, row.e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// counters reads the account's version numbers.
func (t *tx) counters(accountID string, seq, compacted *int64) error {
	err := t.row(`SELECT seq, compacted_seq FROM accounts WHERE id = $1`, accountID).Scan(seq, compacted)
	if errors.Is(err, sql.ErrNoRows) {
		return notFound("account", accountID)
	}
	return err
}

// query is a growing WHERE clause with its arguments.
type query struct {
	text string
	args []any
}

func (q *query) andIf(wanted bool, comparison string, value any) {
	if wanted {
		q.args = append(q.args, value)
		q.text += fmt.Sprintf(" AND %s$%d", comparison, len(q.args))
	}
}

func pageLimit(p account.Page) int {
	if p.Limit <= 0 {
		return account.DefaultPageLimit
	}
	return min(p.Limit, account.MaxPageLimit)
}

func notFound(what, id string) error {
	return account.Errorf(account.CodeNotFound, "there is no %s %q in this account", what,
		account.Shorten(strings.ToValidUTF8(id, "?")))
}

func refTo(id string) *account.Ref {
	if id == "" {
		return nil
	}
	return &account.Ref{ID: id}
}

func idOf(ref *account.Ref) string {
	if ref == nil {
		return ""
	}
	return ref.ID
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
