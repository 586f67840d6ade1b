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
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const operatorColumns = `id, account_id, cluster_uid, namespace, name, version, cluster_name, description, metadata, enabled_features,
	region, binding, credential_id, created_at, updated_at, last_seen_at`

func scanOperator(from scanner) (account.Operator, error) {
	var o account.Operator
	var features, binding, credential string
	var made, updated, seen int64
	err := from.Scan(&o.ID, &o.AccountID, &o.ClusterUID, &o.Deployment.Namespace, &o.Deployment.Name,
		&o.Deployment.Version,
		&o.Deployment.ClusterName, &o.Description, &o.Metadata, &features, &o.Region, &binding, &credential, &made, &updated,
		&seen)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal([]byte(features), &o.EnabledFeatures); err != nil {
		return o, fmt.Errorf("decoding features of operator %s: %w", o.ID, err)
	}
	if err := json.Unmarshal([]byte(binding), &o.Binding); err != nil {
		return o, fmt.Errorf("decoding binding of operator %s: %w", o.ID, err)
	}
	o.Principal = refTo(credential)
	o.CreatedAt, o.UpdatedAt, o.LastSeenAt = fromMicros(made), fromMicros(updated), fromMicros(seen)
	return o, nil
}

func (t *tx) saveOperator(o account.Operator) error {
	features, err := json.Marshal(o.EnabledFeatures)
	if err != nil {
		return fmt.Errorf("encoding features: %w", err)
	}
	binding, err := json.Marshal(o.Binding)
	if err != nil {
		return fmt.Errorf("encoding binding: %w", err)
	}
	return t.exec(`INSERT INTO operators (`+operatorColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
		ON CONFLICT (id) DO UPDATE SET namespace = excluded.namespace, name = excluded.name, version = excluded.version,
		cluster_name = excluded.cluster_name, description = excluded.description, metadata = excluded.metadata,
		enabled_features = excluded.enabled_features, region = excluded.region, binding = excluded.binding,
		credential_id = excluded.credential_id, updated_at = excluded.updated_at, last_seen_at = excluded.last_seen_at`,
		o.ID, o.AccountID, o.ClusterUID, o.Deployment.Namespace, o.Deployment.Name, o.Deployment.Version,
		o.Deployment.ClusterName,
		o.Description, o.Metadata, string(features), o.Region, string(binding), idOf(o.Principal), micros(o.CreatedAt),
		micros(o.UpdatedAt),
		micros(o.LastSeenAt))
}

// normaliseOperator gives lists one form, so that "no difference" means what it says.
func normaliseOperator(o *account.Operator) {
	o.EnabledFeatures = append([]string{}, o.EnabledFeatures...)
	if o.Binding != nil {
		binding := *o.Binding
		binding.EndpointSelectors = append([]string{}, binding.EndpointSelectors...)
		binding.Cert = nil
		o.Binding = &binding
	}
	o.URI = ""
	if o.Principal != nil {
		o.Principal = refTo(o.Principal.ID)
	}
}

// UpsertOperator implements account.Operators.
func (s *Store) UpsertOperator(ctx context.Context, o account.Operator) (*account.Operator, bool, error) {
	normaliseOperator(&o)
	if err := o.Validate(); err != nil {
		return nil, false, err
	}
	if same, err := s.unchangedOperator(ctx, &o); err != nil || same {
		return &o, false, err
	}
	created := false
	err := s.write(ctx, "registering an operator", func(t *tx) error {
		existing, err := t.operatorAtPlaceOf(o)
		if err != nil {
			return err
		}
		what := account.AuditOperatorUpdated
		if created = existing == nil; created {
			if err := t.limitOperators(o.AccountID); err != nil {
				return err
			}
			what, o.ID, o.CreatedAt = account.AuditOperatorCreated, account.NewID(account.PrefixOperator, t.now), t.now
		} else {
			o.ID, o.CreatedAt = existing.ID, existing.CreatedAt
		}
		o.UpdatedAt, o.LastSeenAt = t.now, t.now
		t.audit(account.Caller{AccountID: o.AccountID, PrincipalID: idOf(o.Principal)}, what, o.ID, operatorDetails(o))
		return t.saveOperator(o)
	})
	if err != nil {
		return nil, false, err
	}
	return &o, created, nil
}

// unchangedOperator says whether o is registered as it is, fills in what the store knows of it and
// notes that it was seen. It does not write.
func (s *Store) unchangedOperator(ctx context.Context, o *account.Operator) (same bool, err error) {
	err = s.read(ctx, "reading operator", func(t *tx) error {
		existing, err := t.operatorAtPlaceOf(*o)
		if err != nil || existing == nil {
			return err
		}
		wanted := *o
		wanted.ID, wanted.CreatedAt, wanted.UpdatedAt, wanted.LastSeenAt = existing.ID, existing.CreatedAt,
			existing.UpdatedAt, existing.LastSeenAt
		if same = reflect.DeepEqual(wanted, *existing); same {
			*o = wanted
			o.LastSeenAt = t.now
		}
		return nil
	})
	if same {
		s.touch(touchOperator, o.ID)
	}
	return same, err
}

// operatorAtPlaceOf returns the operator with the cluster uid, namespace and name of o, or nil.
func (t *tx) operatorAtPlaceOf(o account.Operator) (*account.Operator, error) {
	if o.ClusterUID == "" {
		return nil, nil
	}
	found, err := scanOperator(t.row(`SELECT `+operatorColumns+` FROM operators
		WHERE account_id = $1 AND cluster_uid = $2 AND cluster_uid <> '' AND namespace = $3 AND name = $4`,
		o.AccountID, o.ClusterUID, o.Deployment.Namespace, o.Deployment.Name))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &found, err
}

func (t *tx) limitOperators(accountID string) error {
	var count int
	if err := t.row(`SELECT COUNT(*) FROM operators WHERE account_id = $1`, accountID).Scan(&count); err != nil {
		return err
	}
	if count >= t.s.opt.MaxOperators {
		return account.Errorf(account.CodeLimit,
			"the account has %d operators, which is its limit; delete those that are gone", count)
	}
	return nil
}

func (t *tx) operator(accountID, id string) (*account.Operator, error) {
	found, err := scanOperator(t.row(`SELECT `+operatorColumns+` FROM operators WHERE account_id = $1 AND id = $2`,
		accountID, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound("operator", id)
	}
	return &found, err
}

// Operator implements account.Operators.
func (s *Store) Operator(ctx context.Context, accountID, id string) (*account.Operator, error) {
	var found *account.Operator
	err := s.read(ctx, "reading operator", func(t *tx) (err error) {
		found, err = t.operator(accountID, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// ListOperators implements account.Operators.
func (s *Store) ListOperators(ctx context.Context, accountID string, p account.Page) (*account.OperatorPage, error) {
	limit := pageLimit(p)
	page := &account.OperatorPage{Operators: []account.Operator{}}
	err := s.read(ctx, "listing operators", func(t *tx) error {
		q := query{args: []any{accountID}, text: `account_id = $1`}
		q.andIf(p.BeforeID != "", `id < `, p.BeforeID)
		return t.each(func(from scanner) error {
			found, err := scanOperator(from)
			page.Operators = append(page.Operators, found)
			return err
		}, `SELECT `+operatorColumns+` FROM operators WHERE `+q.text+fmt.Sprintf(` ORDER BY id DESC LIMIT %d`, limit+1),
			q.args...)
	})
	if err != nil {
		return nil, err
	}
	if page.More = len(page.Operators) > limit; page.More {
		page.Operators = page.Operators[:limit]
	}
	return page, nil
}

func operatorDetails(o account.Operator) map[string]string {
	return map[string]string{"namespace": o.Deployment.Namespace, "name": o.Deployment.Name,
		"cluster_name": o.Deployment.ClusterName}
}

// PatchOperator implements account.Operators.
func (s *Store) PatchOperator(
	ctx context.Context, by account.Caller, id string, p account.OperatorPatch,
) (*account.Operator, error) {
	var patched account.Operator
	err := s.write(ctx, "changing an operator", func(t *tx) error {
		existing, err := t.operator(by.AccountID, id)
		if err != nil {
			return err
		}
		if patched, err = p.Apply(*existing); err != nil {
			return err
		}
		normaliseOperator(&patched)
		if reflect.DeepEqual(patched, *existing) {
			return nil
		}
		patched.UpdatedAt = t.now
		t.audit(by, account.AuditOperatorUpdated, id, operatorDetails(patched))
		return t.saveOperator(patched)
	})
	if err != nil {
		return nil, err
	}
	return &patched, nil
}

// DeleteOperator implements account.Operators.
func (s *Store) DeleteOperator(ctx context.Context, by account.Caller, id string) error {
	return s.write(ctx, "deleting an operator", func(t *tx) error {
		existing, err := t.operator(by.AccountID, id)
		if err != nil {
			return err
		}
		t.audit(by, account.AuditOperatorDeleted, id, operatorDetails(*existing))
		return t.exec(`DELETE FROM operators WHERE account_id = $1 AND id = $2`, by.AccountID, id)
	})
}

// MarkOperatorSeen notes that an operator is in use, though its manager may not have registered for
// long.
func (s *Store) MarkOperatorSeen(id string) { s.touch(touchOperator, id) }

// sweepOperators deletes the operators that were not seen for longer than they are kept: their
// installations are gone. One without a cluster uid registers only once, so nothing tells whether
// it is. After a server's start operators have operatorSweep to come back, so that an outage of any
// length deletes none.
func (s *Store) sweepOperators(ctx context.Context) error {
	const vanished = `cluster_uid <> '' AND last_seen_at <= $1`
	now := s.now()
	if s.opt.KeepOperators <= 0 || micros(now) < s.operatorsDue.Load() {
		return nil
	}
	before := micros(now.Add(-s.opt.KeepOperators))
	some, err := s.exists(ctx, `SELECT 1 FROM operators WHERE `+vanished+` LIMIT 1`, before)
	if err != nil {
		return err
	}
	s.operatorsDue.Store(micros(now.Add(operatorSweep)))
	if !some {
		return nil
	}
	return s.write(ctx, "deleting operators that were not seen for long", func(t *tx) error {
		err := t.each(func(from scanner) error {
			o, err := scanOperator(from)
			if err != nil {
				return err
			}
			details := operatorDetails(o)
			details["reason"] = "not seen since " + o.LastSeenAt.UTC().Format(time.RFC3339)
			t.audit(account.Caller{AccountID: o.AccountID}, account.AuditOperatorDeleted, o.ID, details)
			return nil
		}, `SELECT `+operatorColumns+` FROM operators WHERE `+vanished, before)
		if err != nil {
			return err
		}
		return t.exec(`DELETE FROM operators WHERE `+vanished, before)
	})
}
