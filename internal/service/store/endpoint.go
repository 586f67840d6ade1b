// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Endpoints are the endpoints with their traffic policies, and the reservations of their ids.
type Endpoints struct {
	db       *database
	key      *seal.Key // key seals policies; nil for commands.
	backends *Backends
	max      int // max bounds the endpoints of an account.
	// grace is how long the row of a lost endpoint is kept, ownedGrace how long the last one of an
	// owner, and reserve how long the ids of a deleted endpoint and of its hostname.
	grace, ownedGrace, reserve time.Duration
	ownedDue                   atomic.Int64 // ownedDue is when endpoints with an owner are looked for next.
}

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
	columns: func(r *endpointRow) []sqldb.Column {
		e := &r.e
		return []sqldb.Column{
			sqldb.Fixed("id", &e.ID),
			sqldb.Fixed("account_id", &e.AccountID),
			sqldb.Fixed("binding", sqldb.Convert(func() string { return e.Bindings[0] },
				func(b string) { e.Bindings = []string{b} })),
			sqldb.Fixed("host", &e.Host),
			sqldb.Fixed("port", &e.Port),
			sqldb.Updatable("slot", &r.slot),
			sqldb.Fixed("scheme", &e.Scheme),
			sqldb.Fixed("url", &e.URL),
			sqldb.Fixed("type", &e.Type),
			sqldb.Updatable("name", &e.Name),
			sqldb.Updatable("description", &e.Description),
			sqldb.Updatable("metadata", &e.Metadata),
			sqldb.Updatable("pooling_enabled", &e.PoolingEnabled),
			sqldb.Updatable("upstream_url", &e.UpstreamURL),
			sqldb.Updatable("upstream_protocol", &e.UpstreamProtocol),
			sqldb.Updatable("host_mode", &e.HostMode),
			sqldb.Updatable("service_labels", &e.ServiceLabels),
			sqldb.Updatable("seal_key", &e.SealKey),
			sqldb.Updatable("region", &e.Region),
			sqldb.Updatable("online", sqldb.Convert(r.online, r.setOnline)),
			sqldb.Updatable("session_id", refField(&e.TunnelSession)),
			sqldb.Updatable("credential_id", refField(&e.Principal)),
			sqldb.Updatable("resume_hash", &r.resumeHash),
			sqldb.Updatable("online_since", sqldb.TimeField(&r.onlineSince)),
			sqldb.Updatable("offline_since", sqldb.OptionalTimeField(&e.OfflineSince)),
			sqldb.Updatable("grace_from", sqldb.TimeField(&r.graceFrom)),
			sqldb.Fixed("projection_id", &e.ProjectionID),
			sqldb.Fixed("created_at", sqldb.TimeField(&e.CreatedAt)),
			sqldb.Updatable("updated_at", sqldb.TimeField(&e.UpdatedAt)),
			sqldb.Updatable("seq", &e.ResourceVersion.Seq),
			sqldb.Updatable("policy_digest", &r.digest),
			sqldb.Updatable("backend_id", &e.BackendID),
			sqldb.Fixed("owner_cluster", &r.ownerCluster),
			sqldb.Fixed("owner_object", &r.ownerObject),
			sqldb.Updatable("owner_uid", &r.ownerUID),
			sqldb.Updatable("service_export", serviceExportField(&e.ServiceExport)),
		}
	},
})

// serviceExportField is stored as JSON, nil as "".
func serviceExportField(export **account.ServiceExport) sqldb.Converted[string] {
	return sqldb.Converted[string]{
		Get: func() (string, error) {
			if *export == nil {
				return "", nil
			}
			text, err := json.Marshal(*export)
			return string(text), err
		},
		Set: func(text string) error {
			if *export = nil; text == "" {
				return nil
			}
			return json.Unmarshal([]byte(text), export)
		},
	}
}

// save writes the row and its policy.
func (r *endpointRow) save(t *tx, kind account.EventType) error {
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
	return r.savePolicy(t)
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

// find returns the one endpoint that the condition selects, or nil.
func (es *Endpoints) find(t *tx, condition string, args ...any) (*endpointRow, error) {
	rows, err := es.all(t, condition, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// all returns all endpoints that the condition selects.
func (es *Endpoints) all(t *tx, condition string, args ...any) ([]*endpointRow, error) {
	found, err := endpoints.all(t, condition, args...)
	rows := make([]*endpointRow, len(found))
	for i := range found {
		rows[i] = &found[i]
		rows[i].loadOwner()
		rows[i].repeatURL()
		found[i].e.ResourceVersion.Epoch = t.epoch
	}
	return rows, err
}

// repeatURL sets the fields of the endpoint that repeat its URL.
func (r *endpointRow) repeatURL() {
	r.e.PublicURL, r.e.Proto, r.e.HostPort = r.e.URL, r.e.Scheme, r.e.ParsedURL().HostPort()
}

// Endpoint implements account.Endpoints.
func (es *Endpoints) Endpoint(ctx context.Context, accountID, id string) (*account.Endpoint, error) {
	return result(ctx, es.db, "reading endpoint", func(t *tx) (*account.Endpoint, error) {
		row, err := es.find(t, `account_id = $1 AND id = $2`, accountID, id)
		if err != nil {
			return nil, err
		}
		if row == nil {
			return nil, notFound("endpoint", id)
		}
		p, err := es.policyOf(t, row)
		row.e.TrafficPolicy = p.text
		return &row.e, err
	})
}

// EndpointReserved implements account.Endpoints.
func (es *Endpoints) EndpointReserved(ctx context.Context, accountID, id string) (bool, error) {
	return result(ctx, es.db, "looking for a reservation", func(t *tx) (bool, error) {
		return t.Exists(`SELECT 1 FROM slot_reservations
			WHERE account_id = $1 AND endpoint_id = $2 AND expires_at > $3`, accountID, id, sqldb.Micros(t.now))
	})
}

// ListEndpoints implements account.Endpoints.
func (es *Endpoints) ListEndpoints(
	ctx context.Context, accountID string, f account.EndpointFilter, p account.Page,
) (*account.EndpointPage, error) {
	limit := pageLimit(p)
	return result(ctx, es.db, "listing endpoints", func(t *tx) (*account.EndpointPage, error) {
		seq, _, err := t.counters(accountID, "seq", "compacted_seq")
		if err != nil {
			return nil, err
		}
		page := &account.EndpointPage{StoreID: es.db.storeID, Version: t.version(seq)}
		q := query{args: []any{accountID}, text: `account_id = $1`}
		q.andIf(p.BeforeID != "", `id < `, p.BeforeID)
		q.andIn(`binding`, f.Bindings)
		q.andIf(f.Type != "", `type = `, f.Type)
		q.andIf(f.URL != "", `url = `, f.URL)
		q.andIf(f.OwnerCluster != "", `owner_cluster <> '' AND owner_cluster = `, f.OwnerCluster)
		rows, err := es.all(t, q.text+fmt.Sprintf(` ORDER BY id DESC LIMIT %d`, limit+1), q.args...)
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

// refuseOtherScheme holds the rule that one host and port has one scheme in an account.
func (es *Endpoints) refuseOtherScheme(t *tx, e *account.Endpoint) error {
	var id, url string
	found, err := t.Row(`SELECT id, url FROM endpoints
		WHERE account_id = $1 AND binding = $2 AND host = $3 AND port = $4 AND scheme <> $5 LIMIT 1`,
		e.AccountID, e.Bindings[0], e.Host, e.Port, e.Scheme).Find(&id, &url)
	if err != nil || !found {
		return err
	}
	return &account.Error{Code: account.CodeURLTaken, Details: map[string]string{"endpoint_id": id, "url": url},
		Msg: fmt.Sprintf(
			"%s cannot be bound: host and port belong to %s (endpoint %s), and one host and port has one scheme; "+
				"choose another port, or end that endpoint", e.URL, url, id)}
}

// ofURL selects the endpoints with a host and port.
const ofURL = `account_id = $1 AND binding = $2 AND host = $3 AND port = $4`

// atURL returns the endpoints with host and port of an endpoint that the condition selects.
func (es *Endpoints) atURL(t *tx, e *account.Endpoint, condition string, args ...any) ([]*endpointRow, error) {
	return es.all(t, ofURL+` AND `+condition, append([]any{e.AccountID, e.Bindings[0], e.Host, e.Port}, args...)...)
}

// taken is the refusal of a URL that an endpoint has.
func taken(row *endpointRow, format string, args ...any) error {
	return &account.Error{Code: account.CodeURLTaken, Msg: fmt.Sprintf(format, args...),
		Details: map[string]string{"endpoint_id": row.e.ID, "url": row.e.URL}}
}

// visible returns a row that the caller may read.
func (es *Endpoints) visible(t *tx, by account.Caller, id string) (*endpointRow, error) {
	row, err := es.find(t, `account_id = $1 AND id = $2`, by.AccountID, id)
	if err == nil && (row == nil || !by.MayKnow(&row.e)) {
		return nil, notFound("endpoint", id)
	}
	return row, err
}

// sweepGrace deletes the endpoints of agents whose grace has ended.
func (es *Endpoints) sweepGrace(ctx context.Context) error {
	return es.deleteExpired(ctx, `online = 0 AND owner_cluster = '' AND grace_from <= $1 AND type = $2`)
}

// sweepOwned does the same for endpoints with an owner. Their grace is OwnedGrace, but Grace beside
// another one of the owner that has been online for as long.
func (es *Endpoints) sweepOwned(ctx context.Context) error {
	now := es.db.Now()
	if sqldb.Micros(now) < es.ownedDue.Load() {
		return nil
	}
	es.ownedDue.Store(sqldb.Micros(now.Add(ownedSweep)))
	return es.deleteExpired(ctx, `online = 0 AND owner_cluster <> '' AND grace_from <= $1 AND type = $2
		AND (grace_from <= $3 OR EXISTS (SELECT 1 FROM endpoints AS o
			WHERE o.account_id = endpoints.account_id AND o.binding = endpoints.binding AND o.host = endpoints.host
			AND o.port = endpoints.port AND o.owner_cluster = endpoints.owner_cluster
			AND o.owner_object = endpoints.owner_object AND o.online = 1 AND o.online_since <= $1))`,
		sqldb.Micros(now.Add(-es.ownedGrace)))
}

// deleteExpired deletes the endpoints that the condition selects; $1 is the time before Grace, $2
// the type of agents' endpoints.
func (es *Endpoints) deleteExpired(ctx context.Context, condition string, more ...any) error {
	args := append([]any{sqldb.Micros(es.db.Now().Add(-es.grace)), account.TypeAgent}, more...)
	return es.deleteAll(ctx, "deleting endpoints after their grace", condition, `grace_from, id`, args...)
}

// deleteAll deletes the endpoints that the condition selects, in batches.
func (es *Endpoints) deleteAll(ctx context.Context, doing, condition, order string, args ...any) error {
	batch := condition + fmt.Sprintf(` ORDER BY %s LIMIT %d`, order, sweepBatch)
	return es.db.writeWhile(ctx, doing, func(t *tx) error { return es.deleteRows(t, batch, args...) },
		`SELECT 1 FROM endpoints WHERE `+condition+` LIMIT 1`, args...)
}

// deleteRows deletes the endpoints that the condition selects.
func (es *Endpoints) deleteRows(t *tx, condition string, args ...any) error {
	rows, err := es.all(t, condition, args...)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := es.delete(t, row); err != nil {
			return err
		}
	}
	return nil
}
