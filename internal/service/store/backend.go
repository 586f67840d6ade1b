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
)

var backends = newTable(table[account.Backend]{
	name: "backends", noun: "backend",
	columns: func(b *account.Backend) []column {
		return []column{
			{"id", &b.ID, insertOnly},
			{"account_id", &b.AccountID, insertOnly},
			{"kind", (*string)(&b.Kind), insertOnly},
			{"description", &b.Description, updatable},
			{"metadata", &b.Metadata, updatable},
			{"config", jsonField(&backendConfig{b}), updatable},
			{"created_at", timeField(&b.CreatedAt), insertOnly},
			{"updated_at", timeField(&b.UpdatedAt), updatable},
		}
	},
	created: account.AuditBackendCreated, updated: account.AuditBackendUpdated, deleted: account.AuditBackendDeleted,
	details: func(b *account.Backend) map[string]string { return map[string]string{"description": b.Description} },
})

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
func (t *tx) saveChildren(b account.Backend) error {
	if err := t.Exec(`DELETE FROM backend_children WHERE parent_id = $1`, b.ID); err != nil {
		return err
	}
	for i, child := range childrenOf(b) {
		err := t.Exec(`INSERT INTO backend_children (parent_id, position, child_id, weight) VALUES ($1, $2, $3, $4)`,
			b.ID, i, child, b.Weights[child])
		if err != nil {
			return err
		}
	}
	return nil
}

// childrenOf returns the ids of a backend's children, in the order in which they are kept.
func childrenOf(b account.Backend) []string {
	if b.Kind == account.BackendWeighted {
		return slices.Sorted(maps.Keys(b.Weights))
	}
	return b.Children
}

// addChildren reads the children of backends; the condition selects rows of backend_children.
func (t *tx) addChildren(backends map[string]*account.Backend, condition string, args ...any) error {
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
func (s *Store) CreateBackend(ctx context.Context, by account.Caller, b account.Backend) (*account.Backend, error) {
	b.AccountID = by.AccountID
	b, err := account.BackendPatch{}.Apply(b)
	if err != nil {
		return nil, err
	}
	err = s.write(ctx, "creating a backend", func(t *tx) error {
		if err := t.lockAccount(b.AccountID); err != nil {
			return err
		}
		if err := backends.checkLimit(t, b.AccountID, s.opt.MaxBackends, deleteUnused); err != nil {
			return err
		}
		b.ID, b.CreatedAt, b.UpdatedAt = account.NewID(b.Kind.IDPrefix(), t.now), t.now, t.now
		if err := t.checkChildren(b); err != nil {
			return err
		}
		backends.audit(t, by, backends.created, &b)
		if err := backends.insert(t, &b); err != nil {
			return err
		}
		return t.saveChildren(b)
	})
	if err != nil {
		return nil, err
	}
	return &b, nil
}

// lockAccount makes other changes of the account's backends and their users wait until this one is
// done. Those who wait for changes of the account are woken after it.
func (t *tx) lockAccount(accountID string) error {
	found, err := t.Exists(`UPDATE accounts SET seq = seq WHERE id = $1 RETURNING id`, accountID)
	if err == nil && !found {
		return account.Errorf(account.CodeNotFound, "there is no account %q", account.Shorten(accountID))
	}
	if _, noted := t.changes[accountID]; err == nil && !noted {
		t.changes[accountID] = nil
	}
	return err
}

func (t *tx) backend(accountID string, kind account.BackendKind, id string) (*account.Backend, error) {
	b, err := backends.first(t, `account_id = $1 AND kind = $2 AND id = $3`, accountID, string(kind), id)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, notFound(strings.ReplaceAll(string(kind), "_", " ")+" backend", id)
	}
	return b, t.addChildren(map[string]*account.Backend{id: b}, `parent_id = $1`, id)
}

// Backend implements account.Backends.
func (s *Store) Backend(
	ctx context.Context, accountID string, kind account.BackendKind, id string,
) (*account.Backend, error) {
	return result(ctx, s, "reading a backend", func(t *tx) (*account.Backend, error) {
		return t.backend(accountID, kind, id)
	})
}

// ListBackends implements account.Backends.
func (s *Store) ListBackends(
	ctx context.Context, accountID string, kind account.BackendKind, p account.Page,
) (*account.BackendPage, error) {
	return result(ctx, s, "listing backends", func(t *tx) (page *account.BackendPage, err error) {
		page = &account.BackendPage{}
		page.Backends, page.More, err = backends.page(t, p, `account_id = $1 AND kind = $2`, accountID, string(kind))
		if err != nil || len(page.Backends) == 0 {
			return page, err
		}
		byID := map[string]*account.Backend{}
		for i := range page.Backends {
			byID[page.Backends[i].ID] = &page.Backends[i]
		}
		first, last := page.Backends[len(page.Backends)-1].ID, page.Backends[0].ID
		return page, t.addChildren(byID, `parent_id BETWEEN $1 AND $2`, first, last)
	})
}

// PatchBackend implements account.Backends.
func (s *Store) PatchBackend(
	ctx context.Context, by account.Caller, kind account.BackendKind, id string, p account.BackendPatch,
) (*account.Backend, error) {
	var patched account.Backend
	err := s.write(ctx, "changing a backend", func(t *tx) error {
		existing, err := t.backend(by.AccountID, kind, id)
		if err != nil {
			return err
		}
		if err := account.CheckUnchanged("backend "+id, existing.UpdatedAt, p.ExpectedUpdatedAt); err != nil {
			return err
		}
		if patched, err = p.Apply(*existing); err != nil || reflect.DeepEqual(patched, *existing) {
			return err
		}
		if err := t.lockAccount(by.AccountID); err != nil {
			return err
		}
		if !slices.Equal(childrenOf(patched), childrenOf(*existing)) {
			if err := t.checkChildren(patched); err != nil {
				return err
			}
		}
		patched.UpdatedAt = t.now
		backends.audit(t, by, backends.updated, &patched)
		if err := backends.update(t, &patched); err != nil {
			return err
		}
		return t.saveChildren(patched)
	})
	if err != nil {
		return nil, err
	}
	return &patched, nil
}

// DeleteBackend implements account.Backends.
func (s *Store) DeleteBackend(ctx context.Context, by account.Caller, kind account.BackendKind, id string) error {
	return s.write(ctx, "deleting a backend", func(t *tx) error {
		if err := t.lockAccount(by.AccountID); err != nil {
			return err
		}
		existing, err := t.backend(by.AccountID, kind, id)
		if err != nil {
			return err
		}
		if err := t.refuseUsed(id); err != nil {
			return err
		}
		backends.audit(t, by, backends.deleted, existing)
		return t.Exec(`DELETE FROM backends WHERE account_id = $1 AND id = $2`, by.AccountID, id)
	})
}

// maxUsers is how many users of a backend an error names.
const maxUsers = 5

// refuseUsed refuses to take away what others refer to, and names them.
func (t *tx) refuseUsed(id string) error {
	var users, ids []string
	err := t.Each(func(from scanner) error {
		var user, what string
		err := from.Scan(&user, &what)
		users, ids = append(users, strings.ReplaceAll(what, "_", " ")+" "+user), append(ids, user)
		return err
	},
		fmt.Sprintf(
			`SELECT b.id, b.kind FROM backend_children c JOIN backends b ON b.id = c.parent_id
			WHERE c.child_id = $1 ORDER BY b.id LIMIT %d`, maxUsers+1), id)
	if err != nil {
		return err
	}
	err = t.Each(func(from scanner) error {
		var user, url string
		err := from.Scan(&user, &url)
		users, ids = append(users, "endpoint "+user+" ("+url+")"), append(ids, user)
		return err
	},
		fmt.Sprintf(
			`SELECT e.id, e.url FROM endpoint_backends r JOIN endpoints e ON e.id = r.endpoint_id
			WHERE r.backend_id = $1 ORDER BY e.id LIMIT %d`, maxUsers+1), id)
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
