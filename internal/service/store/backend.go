// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

var backends = newTable(table[account.Backend]{
	name: "backends", noun: "backend",
	columns: func(b *account.Backend) []sqldb.Column {
		return []sqldb.Column{
			sqldb.Fixed("id", &b.ID),
			sqldb.Fixed("account_id", &b.AccountID),
			sqldb.Fixed("kind", (*string)(&b.Kind)),
			sqldb.Updatable("description", &b.Description),
			sqldb.Updatable("metadata", &b.Metadata),
			sqldb.Updatable("config", sqldb.JSONField(&backendConfig{b})),
			sqldb.Fixed("created_at", sqldb.TimeField(&b.CreatedAt)),
			sqldb.Updatable("updated_at", sqldb.TimeField(&b.UpdatedAt)),
		}
	},
	created: account.AuditBackendCreated, updated: account.AuditBackendUpdated, deleted: account.AuditBackendDeleted,
	details: func(b *account.Backend) map[string]string { return map[string]string{"description": b.Description} },
})

// Backends are the backends of accounts, and which child of a failover serves.
type Backends struct {
	db       *database
	accounts *Accounts
	max      int // max bounds the backends of an account.
}

// backendConfig is the JSON of what only some kinds of backends have, but the children, which are
// rows of their own.
type backendConfig struct{ *account.Backend }

type backendConfigJSON struct {
	HealthStatus []int                  `json:"health_status,omitempty"`
	HealthRule   account.HealthRule     `json:"health_rule,omitzero"`
	Labels       map[string]string      `json:"labels,omitempty"`
	Response     *account.HTTPResponse  `json:"response,omitempty"`
	Static       *account.StaticAddress `json:"static,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (c backendConfig) MarshalJSON() ([]byte, error) {
	return json.Marshal(backendConfigJSON{c.HealthStatus, c.HealthRule, c.Labels, c.Response, c.Static})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c backendConfig) UnmarshalJSON(text []byte) error {
	var config backendConfigJSON
	err := json.Unmarshal(text, &config)
	c.HealthStatus, c.HealthRule, c.Labels = config.HealthStatus, config.HealthRule, config.Labels
	c.Response, c.Static = config.Response, config.Static
	return err
}

// saveChildren replaces the children of a backend.
func (bs *Backends) saveChildren(t *tx, b account.Backend) error {
	if err := t.Exec(`DELETE FROM backend_children WHERE parent_id = $1`, b.ID); err != nil {
		return err
	}
	var children [][]any
	for i, child := range childrenOf(b) {
		children = append(children, []any{b.ID, i, child, b.Weights[child]})
	}
	return t.InsertRows(`backend_children (parent_id, position, child_id, weight)`, children)
}

// childrenOf returns the ids of a backend's children, in the order in which they are kept.
func childrenOf(b account.Backend) []string {
	if b.Kind == account.BackendWeighted {
		return slices.Sorted(maps.Keys(b.Weights))
	}
	return b.Children
}

// addChildren reads the children of backends; the condition selects rows of backend_children.
func (bs *Backends) addChildren(t *tx, backends map[string]*account.Backend, condition string, args ...any) error {
	return t.Each(func(from scanner) error {
		var parent, child string
		var weight int
		if err := from.Scan(&parent, &child, &weight); err != nil {
			return err
		}
		b := backends[parent]
		switch {
		case b == nil:
		case b.Kind == account.BackendWeighted && b.Weights == nil:
			b.Weights = map[string]int{child: weight}
		case b.Kind == account.BackendWeighted:
			b.Weights[child] = weight
		default:
			b.Children = append(b.Children, child)
		}
		return nil
	}, `SELECT parent_id, child_id, weight FROM backend_children WHERE `+condition+` ORDER BY parent_id, position`,
		args...)
}

// CreateBackend implements account.Backends.
func (bs *Backends) CreateBackend(ctx context.Context, by account.Caller, b account.Backend) (*account.Backend, error) {
	b.AccountID = by.AccountID
	b, err := account.BackendPatch{}.Apply(b, bs.db.Now())
	if err != nil {
		return nil, err
	}
	return writeResult(ctx, bs.db, "creating a backend", func(t *tx) (*account.Backend, error) {
		if err := bs.accounts.lock(t, b.AccountID); err != nil {
			return nil, err
		}
		if err := backends.checkLimit(t, b.AccountID, bs.max, deleteUnused); err != nil {
			return nil, err
		}
		b.ID, b.CreatedAt, b.UpdatedAt = account.NewID(b.Kind.IDPrefix(), t.now), t.now, t.now
		if err := bs.checkChildren(t, b); err != nil {
			return nil, err
		}
		backends.audit(t, by, backends.created, &b)
		if err := backends.insert(t, &b); err != nil {
			return nil, err
		}
		return &b, bs.saveChildren(t, b)
	})
}

func (bs *Backends) get(t *tx, accountID string, kind account.BackendKind, id string) (*account.Backend, error) {
	b, err := backends.first(t, `account_id = $1 AND kind = $2 AND id = $3`, accountID, string(kind), id)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, notFound(strings.ReplaceAll(string(kind), "_", " ")+" backend", id)
	}
	return b, bs.addChildren(t, map[string]*account.Backend{id: b}, `parent_id = $1`, id)
}

// Backend implements account.Backends.
func (bs *Backends) Backend(
	ctx context.Context, accountID string, kind account.BackendKind, id string,
) (*account.Backend, error) {
	return result(ctx, bs.db, "reading a backend", func(t *tx) (*account.Backend, error) {
		return bs.get(t, accountID, kind, id)
	})
}

// ListBackends implements account.Backends.
func (bs *Backends) ListBackends(
	ctx context.Context, accountID string, kind account.BackendKind, p account.Page,
) (page []account.Backend, more bool, err error) {
	err = bs.db.read(ctx, "listing backends", func(t *tx) (err error) {
		page, more, err = backends.page(t, p, `account_id = $1 AND kind = $2`, accountID, string(kind))
		if err != nil || len(page) == 0 {
			return err
		}
		byID := map[string]*account.Backend{}
		for i := range page {
			byID[page[i].ID] = &page[i]
		}
		return bs.addChildren(t, byID, `parent_id BETWEEN $1 AND $2`, page[len(page)-1].ID, page[0].ID)
	})
	return page, more, err
}

// PatchBackend implements account.Backends.
func (bs *Backends) PatchBackend(
	ctx context.Context, by account.Caller, kind account.BackendKind, id string, p account.BackendPatch,
) (*account.Backend, error) {
	return writeResult(ctx, bs.db, "changing a backend", func(t *tx) (*account.Backend, error) {
		existing, err := bs.get(t, by.AccountID, kind, id)
		if err == nil {
			err = account.CheckUnchanged("backend "+id, existing.UpdatedAt, p.ExpectedUpdatedAt)
		}
		if err != nil {
			return nil, err
		}
		patched, err := p.Apply(*existing, t.now)
		if err != nil || reflect.DeepEqual(patched, *existing) {
			return &patched, err
		}
		if err := bs.accounts.lock(t, by.AccountID); err != nil {
			return nil, err
		}
		if !slices.Equal(childrenOf(patched), childrenOf(*existing)) {
			if err := bs.checkChildren(t, patched); err != nil {
				return nil, err
			}
		}
		patched.UpdatedAt = t.now
		backends.audit(t, by, backends.updated, &patched)
		if err := backends.update(t, &patched); err != nil {
			return nil, err
		}
		return &patched, bs.saveChildren(t, patched)
	})
}

// DeleteBackend implements account.Backends.
func (bs *Backends) DeleteBackend(ctx context.Context, by account.Caller, kind account.BackendKind, id string) error {
	return bs.db.write(ctx, "deleting a backend", func(t *tx) error {
		if err := bs.accounts.lock(t, by.AccountID); err != nil {
			return err
		}
		existing, err := bs.get(t, by.AccountID, kind, id)
		if err != nil {
			return err
		}
		if err := bs.refuseUsed(t, id); err != nil {
			return err
		}
		backends.audit(t, by, backends.deleted, existing)
		return t.Exec(`DELETE FROM backends WHERE account_id = $1 AND id = $2`, by.AccountID, id)
	})
}

// maxUsers is how many users of a backend an error names.
const maxUsers = 5

// refuseUsed refuses to take away what others refer to, and names them.
func (bs *Backends) refuseUsed(t *tx, id string) error {
	var users, ids []string
	err := t.Each(func(from scanner) error {
		var user, what string
		err := from.Scan(&user, &what)
		users, ids = append(users, what), append(ids, user)
		return err
	}, `SELECT id, what FROM (
			SELECT 1 AS kind, b.id, REPLACE(b.kind, '_', ' ') || ' ' || b.id AS what
			FROM backend_children AS c JOIN backends AS b ON b.id = c.parent_id WHERE c.child_id = $1
			UNION ALL SELECT 2, e.id, 'endpoint ' || e.id || ' (' || e.url || ')'
			FROM endpoint_backends AS r JOIN endpoints AS e ON e.id = r.endpoint_id WHERE r.backend_id = $1) AS users
		ORDER BY kind, id LIMIT $2`, id, maxUsers+1)
	if err != nil || len(users) == 0 {
		return err
	}
	if len(users) > maxUsers {
		users, ids = append(users[:maxUsers], "others"), ids[:maxUsers]
	}
	return &account.Error{Code: account.CodeInUse, Details: map[string]string{"used_by": strings.Join(ids, ",")},
		Msg: fmt.Sprintf("backend %s is used by %s; take it out there first, or delete those first", id,
			strings.Join(users, ", "))}
}
