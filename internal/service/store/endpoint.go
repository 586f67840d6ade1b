// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
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
	slot        string // "" without pooling, else that of the pool member: see poolMemberSlot
	resumeHash  []byte // hash of the secret that takes the row over while it is online
	onlineSince time.Time
	graceFrom   time.Time // when the grace of an offline row began
	digest      string    // keyed, of the traffic policy; "" for none
	change      *policyChange

	ownerCluster, ownerObject, ownerUID string // e.Owner, as the columns have it
}

var endpoints = newTable(table[endpointRow]{
	name: "endpoints", noun: "endpoint",
	columns: func(r *endpointRow) []column {
		e := &r.e
		return []column{
			{"id", &e.ID, insertOnly},
			{"account_id", &e.AccountID, insertOnly},
			{"binding", convert(func() string { return e.Bindings[0] }, func(b string) { e.Bindings = []string{b} }),
				insertOnly},
			{"host", &e.Host, insertOnly},
			{"port", &e.Port, insertOnly},
			{"slot", &r.slot, updatable},
			{"scheme", &e.Scheme, insertOnly},
			{"url", &e.URL, insertOnly},
			{"type", &e.Type, insertOnly},
			{"name", &e.Name, updatable},
			{"description", &e.Description, updatable},
			{"metadata", &e.Metadata, updatable},
			{"pooling_enabled", &e.PoolingEnabled, updatable},
			{"upstream_url", &e.UpstreamURL, updatable},
			{"upstream_protocol", &e.UpstreamProtocol, updatable},
			{"host_mode", &e.HostMode, updatable},
			{"region", &e.Region, updatable},
			{"online", convert(r.online, r.setOnline), updatable},
			{"session_id", refField(&e.TunnelSession), updatable},
			{"credential_id", refField(&e.Principal), updatable},
			{"resume_hash", &r.resumeHash, updatable},
			{"online_since", timeField(&r.onlineSince), updatable},
			{"offline_since", optionalTimeField(&e.OfflineSince), updatable},
			{"grace_from", timeField(&r.graceFrom), updatable},
			{"projection_id", &e.ProjectionID, insertOnly},
			{"created_at", timeField(&e.CreatedAt), insertOnly},
			{"updated_at", timeField(&e.UpdatedAt), updatable},
			{"seq", &e.ResourceVersion.Seq, updatable},
			{"policy_digest", &r.digest, updatable},
			{"backend_id", &e.BackendID, updatable},
			{"owner_cluster", &r.ownerCluster, insertOnly},
			{"owner_object", &r.ownerObject, insertOnly},
			{"owner_uid", &r.ownerUID, updatable},
			{"service_export", serviceExportField(&e.ServiceExport), updatable},
		}
	},
})

// serviceExportField is stored as JSON, nil as "".
func serviceExportField(export **account.ServiceExport) converted[string] {
	return converted[string]{
		get: func() (string, error) {
			if *export == nil {
				return "", nil
			}
			text, err := json.Marshal(*export)
			return string(text), err
		},
		set: func(text string) error {
			if *export = nil; text == "" {
				return nil
			}
			return json.Unmarshal([]byte(text), export)
		},
	}
}

// saveEndpoint writes the row and its policy.
func (t *tx) saveEndpoint(kind account.EventType, r *endpointRow) error {
	var err error
	r.storeOwner()
	if kind == account.Added {
		err = endpoints.insert(t, r)
	} else {
		err = endpoints.update(t, r)
	}
	if err != nil {
		return err
	}
	return t.savePolicy(r)
}

func (r *endpointRow) online() bool { return r.e.Status == account.StatusOnline }

func (r *endpointRow) setOnline(online bool) {
	r.e.Status = account.StatusOffline
	if online {
		r.e.Status = account.StatusOnline
	}
}

// setOffline takes the row offline; its grace begins.
func (r *endpointRow) setOffline(now time.Time) {
	r.e.Status, r.e.OfflineSince, r.e.TunnelSession = account.StatusOffline, &now, nil
	r.e.UpdatedAt, r.graceFrom, r.resumeHash = now, now, nil
}

// differs reports whether watchers see a difference between two states of an endpoint.
func differs(a, b account.Endpoint) bool {
	a.UpdatedAt, a.ResourceVersion = b.UpdatedAt, b.ResourceVersion
	return !reflect.DeepEqual(a, b)
}

// endpointWhere returns the one endpoint that the condition selects, or nil.
func (t *tx) endpointWhere(condition string, args ...any) (*endpointRow, error) {
	rows, err := t.endpointsWhere(condition, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// endpointsWhere returns all endpoints that the condition selects.
func (t *tx) endpointsWhere(condition string, args ...any) ([]*endpointRow, error) {
	found, err := endpoints.all(t, condition, args...)
	rows := make([]*endpointRow, len(found))
	for i := range found {
		rows[i] = &found[i]
		rows[i].loadOwner()
		e := &found[i].e
		e.PublicURL, e.Proto = e.URL, e.Scheme
		e.HostPort = account.EndpointURL{Host: e.Host, Port: e.Port}.HostPort()
		e.ResourceVersion.Epoch = t.epoch
	}
	return rows, err
}

// Endpoint implements account.Endpoints.
func (s *Store) Endpoint(ctx context.Context, accountID, id string) (*account.Endpoint, error) {
	return result(ctx, s, "reading endpoint", func(t *tx) (*account.Endpoint, error) {
		row, err := t.endpointWhere(`account_id = $1 AND id = $2`, accountID, id)
		if err != nil {
			return nil, err
		}
		if row == nil {
			return nil, notFound("endpoint", id)
		}
		p, err := t.policyOf(row)
		row.e.TrafficPolicy = p.text
		return &row.e, err
	})
}

// EndpointReserved implements account.Endpoints.
func (s *Store) EndpointReserved(ctx context.Context, accountID, id string) (bool, error) {
	return result(ctx, s, "looking for a reservation", func(t *tx) (bool, error) {
		return t.Exists(`SELECT 1 FROM slot_reservations
			WHERE account_id = $1 AND endpoint_id = $2 AND expires_at > $3`, accountID, id, micros(t.now))
	})
}

// ListEndpoints implements account.Endpoints.
func (s *Store) ListEndpoints(
	ctx context.Context, accountID string, f account.EndpointFilter, p account.Page,
) (*account.EndpointPage, error) {
	limit := pageLimit(p)
	return result(ctx, s, "listing endpoints", func(t *tx) (*account.EndpointPage, error) {
		seq, _, err := t.counters(accountID, "seq", "compacted_seq")
		if err != nil {
			return nil, err
		}
		page := &account.EndpointPage{StoreID: s.storeID, Version: t.version(seq)}
		q := query{args: []any{accountID}, text: `account_id = $1`}
		q.andIf(p.BeforeID != "", `id < `, p.BeforeID)
		q.andIn(`binding`, f.Bindings)
		q.andIf(f.Type != "", `type = `, f.Type)
		q.andIf(f.URL != "", `url = `, f.URL)
		q.andIf(f.OwnerCluster != "", `owner_cluster <> '' AND owner_cluster = `, f.OwnerCluster)
		rows, err := t.endpointsWhere(q.text+fmt.Sprintf(` ORDER BY id DESC LIMIT %d`, limit+1), q.args...)
		if err != nil {
			return nil, err
		}
		page.More = len(rows) > limit
		page.Endpoints = make([]account.Endpoint, 0, len(rows))
		for _, row := range rows[:min(limit, len(rows))] {
			page.Endpoints = append(page.Endpoints, row.e)
		}
		return page, nil
	})
}

// counters reads two of the account's version numbers, and the epoch that they are of.
func (t *tx) counters(accountID, current, compacted string) (seq, compactedSeq int64, err error) {
	err = t.Row(`SELECT a.`+current+`, a.`+compacted+`, s.epoch FROM accounts AS a, store AS s WHERE a.id = $1`,
		accountID).Scan(&seq, &compactedSeq, &t.epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, notFound("account", accountID)
	}
	return seq, compactedSeq, err
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
