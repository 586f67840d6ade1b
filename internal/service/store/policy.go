// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// The database stores policies sealed, and only reads of one endpoint open them: lists, events and
// snapshots never hold one.

// policyChange holds the columns of an endpoint's policy and of its references to backends.
type policyChange struct {
	sealed []byte
	refs   []string
}

// PoliciesAfter returns endpoints of all accounts that have a traffic policy: at most limit, in the
// order of their ids, from the first after id on. Of an endpoint it reads ID, AccountID, URL, Scheme,
// Bindings and TrafficPolicy.
func (es *Endpoints) PoliciesAfter(ctx context.Context, id string, limit int) ([]account.Endpoint, error) {
	return result(ctx, es.db, "reading traffic policies", func(t *tx) ([]account.Endpoint, error) {
		return sqldb.Collect(t.Tx, func(from scanner) (account.Endpoint, error) {
			e := account.Endpoint{Bindings: []string{""}}
			var sealed []byte
			err := from.Scan(&e.ID, &e.AccountID, &e.URL, &e.Scheme, &e.Bindings[0], &sealed)
			if err == nil {
				e.TrafficPolicy, err = es.unseal(sealed, e.ID)
			}
			return e, err
		}, `SELECT id, account_id, url, scheme, binding, traffic_policy FROM endpoints
			WHERE policy_digest <> '' AND id > $1 ORDER BY id LIMIT $2`, id, limit)
	})
}

func (es *Endpoints) unseal(sealed []byte, endpointID string) (string, error) {
	if len(sealed) == 0 {
		return "", nil
	}
	if es.key == nil {
		return "", errNoKey
	}
	text, err := es.key.Unseal(sealed, endpointID)
	if err != nil {
		return "", fmt.Errorf("opening the policy of endpoint %s: %w", endpointID, err)
	}
	return text, nil
}

// policy is an endpoint's, as the store knows it.
type policy struct {
	text, digest string
	backends     []string // ids of its forward-backend actions
}

// newPolicy returns a policy that a request sets.
func (es *Endpoints) newPolicy(text string, facts account.PolicyFacts) (policy, error) {
	if text == "" {
		return policy{}, nil
	}
	if es.key == nil {
		return policy{}, errNoKey
	}
	return policy{text: text, digest: es.key.Digest(facts.Digest), backends: facts.Backends}, nil
}

// policyOf reads the policy of a row that is in the database.
func (es *Endpoints) policyOf(t *tx, row *endpointRow) (policy, error) {
	if row.digest == "" {
		return policy{}, nil
	}
	p := policy{digest: row.digest}
	var sealed []byte
	err := t.Row(`SELECT traffic_policy FROM endpoints WHERE id = $1`, row.e.ID).Scan(&sealed)
	if err == nil {
		p.text, err = es.unseal(sealed, row.e.ID)
	}
	if err != nil {
		return p, err
	}
	p.backends, err = sqldb.Values[string](t.Tx, `SELECT backend_id FROM endpoint_backends
		WHERE endpoint_id = $1 AND backend_id <> $2 ORDER BY backend_id`, row.e.ID, row.e.BackendID)
	return p, err
}

// setPolicy gives the row a policy and a backend of its own; they are written with the row. changed
// reports whether either differs from before.
func (es *Endpoints) setPolicy(t *tx, row *endpointRow, p policy, backendID string) (changed bool, err error) {
	if p.digest == row.digest && backendID == row.e.BackendID {
		if p.digest == "" {
			return false, nil
		}
		if before, err := es.policyOf(t, row); err != nil || before.text == p.text {
			return false, err
		}
	}
	if err := es.backends.mayForward(t, row, p.backends, backendID); err != nil {
		return false, err
	}
	row.change = &policyChange{refs: append([]string{}, p.backends...)}
	if p.text != "" {
		row.change.sealed = es.key.Seal(p.text, row.e.ID)
	}
	if backendID != "" {
		row.change.refs = append(row.change.refs, backendID)
	}
	row.digest, row.e.BackendID = p.digest, backendID
	return true, nil
}

// savePolicy writes what setPolicy noted.
func (r *endpointRow) savePolicy(t *tx) error {
	if r.change == nil {
		return nil
	}
	if err := t.Exec(`UPDATE endpoints SET traffic_policy = $1 WHERE id = $2`, sqldb.NotNil(r.change.sealed),
		r.e.ID); err != nil {
		return err
	}
	if err := t.Exec(`DELETE FROM endpoint_backends WHERE endpoint_id = $1`, r.e.ID); err != nil {
		return err
	}
	var refs [][]any
	for _, id := range r.change.refs {
		refs = append(refs, []any{r.e.ID, id})
	}
	return t.InsertRows(`endpoint_backends (endpoint_id, backend_id)`, refs)
}

// policiesHeldBy returns the traffic policies of the endpoints that a session holds, by endpoint.
func (es *Endpoints) policiesHeldBy(t *tx, accountID, sessionID string) (map[string]string, error) {
	policies := map[string]string{}
	return policies, t.Each(func(from scanner) error {
		var id string
		var sealed []byte
		err := from.Scan(&id, &sealed)
		if err == nil {
			policies[id], err = es.unseal(sealed, id)
		}
		return err
	}, `SELECT id, traffic_policy FROM endpoints WHERE policy_digest <> '' AND `+heldBy, sessionID, accountID)
}
