// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

var operators = newTable(table[account.Operator]{
	name: "operators", noun: "operator",
	columns: func(o *account.Operator) []sqldb.Column {
		return []sqldb.Column{
			sqldb.Fixed("id", &o.ID),
			sqldb.Fixed("account_id", &o.AccountID),
			sqldb.Fixed("cluster_uid", &o.ClusterUID),
			sqldb.Updatable("namespace", &o.Deployment.Namespace),
			sqldb.Updatable("name", &o.Deployment.Name),
			sqldb.Updatable("version", &o.Deployment.Version),
			sqldb.Updatable("cluster_name", &o.Deployment.ClusterName),
			sqldb.Updatable("description", &o.Description),
			sqldb.Updatable("metadata", &o.Metadata),
			sqldb.Updatable("enabled_features", sqldb.JSONField(&o.EnabledFeatures)),
			sqldb.Updatable("region", &o.Region),
			sqldb.Updatable("binding", sqldb.JSONField(&o.Binding)),
			sqldb.Updatable("credential_id", refField(&o.Principal)),
			sqldb.Fixed("created_at", sqldb.TimeField(&o.CreatedAt)),
			sqldb.Updatable("updated_at", sqldb.TimeField(&o.UpdatedAt)),
			sqldb.Updatable("last_seen_at", sqldb.TimeField(&o.LastSeenAt)),
		}
	},
	created: account.AuditOperatorCreated, updated: account.AuditOperatorUpdated, deleted: account.AuditOperatorDeleted,
	details: func(o *account.Operator) map[string]string {
		return map[string]string{"namespace": o.Deployment.Namespace, "name": o.Deployment.Name,
			"cluster_name": o.Deployment.ClusterName}
	},
	updatedAt: func(o *account.Operator) *time.Time { return &o.UpdatedAt },
})

// Operators are the Kubernetes operators that have registered.
type Operators struct {
	db   *database
	uses *lastUsedTimes
	max  int           // max bounds the operators of an account.
	keep time.Duration // keep is how long operators are kept after they were last seen; 0 = for ever.
	due  atomic.Int64  // due is when vanished operators are looked for next, in microseconds.
}

// normaliseOperator gives equal operators one form, so that they can be compared.
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
func (ops *Operators) UpsertOperator(ctx context.Context, o account.Operator) (*account.Operator, bool, error) {
	normaliseOperator(&o)
	if err := o.Validate(); err != nil {
		return nil, false, err
	}
	if same, err := ops.unchanged(ctx, &o); err != nil || same {
		return &o, false, err
	}
	created := false
	err := ops.db.write(ctx, "registering an operator", func(t *tx) error {
		existing, err := ops.registered(t, o)
		if err != nil {
			return err
		}
		what, save := operators.updated, operators.update
		if created = existing == nil; created {
			if err := operators.checkLimit(t, o.AccountID, ops.max, "delete those that are gone"); err != nil {
				return err
			}
			what, save = operators.created, func(t *tx, o *account.Operator) error { return operators.insert(t, o) }
			o.ID, o.CreatedAt = account.NewID(account.PrefixOperator, t.now), t.now
		} else {
			o.ID, o.CreatedAt = existing.ID, existing.CreatedAt
		}
		o.UpdatedAt, o.LastSeenAt = t.now, t.now
		operators.audit(t, account.Caller{AccountID: o.AccountID, PrincipalID: idOf(o.Principal)}, what, &o)
		return save(t, &o)
	})
	if err != nil {
		return nil, false, err
	}
	return &o, created, nil
}

// unchanged reports whether o is registered with the same values. It then sets the fields
// of o that the store keeps and records that the operator was seen, without a write.
func (ops *Operators) unchanged(ctx context.Context, o *account.Operator) (same bool, err error) {
	err = ops.db.read(ctx, "reading operator", func(t *tx) error {
		existing, err := ops.registered(t, *o)
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
		ops.uses.record(operatorSeen, o.ID)
	}
	return same, err
}

// registered returns the operator with the cluster uid, namespace and name of o, or nil.
func (ops *Operators) registered(t *tx, o account.Operator) (*account.Operator, error) {
	if o.ClusterUID == "" {
		return nil, nil
	}
	return operators.first(t,
		`account_id = $1 AND cluster_uid = $2 AND cluster_uid <> '' AND namespace = $3 AND name = $4`,
		o.AccountID, o.ClusterUID, o.Deployment.Namespace, o.Deployment.Name)
}

// Operator implements account.Operators.
func (ops *Operators) Operator(ctx context.Context, accountID, id string) (*account.Operator, error) {
	return readRow(ctx, ops.db, &operators, accountID, id)
}

// ListOperators implements account.Operators.
func (ops *Operators) ListOperators(
	ctx context.Context, accountID string, p account.Page,
) (page []account.Operator, more bool, err error) {
	return readPage(ctx, ops.db, &operators, accountID, p)
}

// PatchOperator implements account.Operators.
func (ops *Operators) PatchOperator(
	ctx context.Context, by account.Caller, id string, p account.OperatorPatch,
) (*account.Operator, error) {
	return patchRow(ctx, ops.db, &operators, by, id, func(_ *tx, existing account.Operator) (account.Operator, error) {
		patched, err := p.Apply(existing)
		normaliseOperator(&patched)
		return patched, err
	})
}

// DeleteOperator implements account.Operators.
func (ops *Operators) DeleteOperator(ctx context.Context, by account.Caller, id string) error {
	return deleteRow(ctx, ops.db, &operators, by, id, nil)
}

// MarkOperatorSeen records that an operator is in use, even if its manager has not registered for
// long.
func (ops *Operators) MarkOperatorSeen(id string) { ops.uses.record(operatorSeen, id) }

// sweep deletes the operators that were not seen for longer than they are kept. Those
// without a cluster uid register only once, so they stay. After the start of a server it waits
// operatorSweep, so that operators can register again after an outage of any length.
func (ops *Operators) sweep(ctx context.Context) error {
	const vanished = `cluster_uid <> '' AND last_seen_at <= $1`
	now := ops.db.Now()
	if ops.keep <= 0 || sqldb.Micros(now) < ops.due.Load() {
		return nil
	}
	before := sqldb.Micros(now.Add(-ops.keep))
	err := ops.db.writeWhile(ctx, "deleting operators that were not seen for long", func(t *tx) error {
		gone, err := operators.all(t, vanished, before)
		if err != nil {
			return err
		}
		for _, o := range gone {
			details := operators.details(&o)
			details["reason"] = "not seen since " + o.LastSeenAt.UTC().Format(time.RFC3339)
			t.audit(account.Caller{AccountID: o.AccountID}, operators.deleted, o.ID, details)
		}
		return t.Exec(`DELETE FROM operators WHERE `+vanished, before)
	}, `SELECT 1 FROM operators WHERE `+vanished+` LIMIT 1`, before)
	if err == nil {
		ops.due.Store(sqldb.Micros(now.Add(operatorSweep)))
	}
	return err
}
