// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
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

var errNoKey = errors.New("the store was opened without a secret key")

// CheckKey returns an error, a complete sentence, unless Options.Key is the store's key: the one
// that seals its policies and its certificate authority, and finds its users and revocations. A
// store without any of these adopts the key.
func (s *Store) CheckKey(ctx context.Context) error {
	return s.write(ctx, "checking the secret key", func(t *tx) error {
		var recorded string
		if err := t.Row(`SELECT key_check FROM store`).Scan(&recorded); err != nil {
			return err
		}
		ours := s.opt.Key.Digest("key check")
		if recorded == ours {
			return nil
		}
		if err := t.refuseOtherKey(recorded != ""); err != nil {
			return err
		}
		return t.Exec(`UPDATE store SET key_check = $1`, ours)
	})
}

// refuseOtherKey returns CodeInvalid if something of the store belongs to another key than ours.
// recorded means that the store's key is another one. Without it, a version that did not record the
// key used the store last, and only opening sealed values shows a difference.
func (t *tx) refuseOtherKey(recorded bool) error {
	for _, has := range []struct{ what, query string }{
		{"traffic policies are sealed", `SELECT id, traffic_policy FROM endpoints
			WHERE policy_digest <> '' ORDER BY id LIMIT 1`},
		{"certificate authority is sealed", `SELECT certificate, sealed_key FROM authority`},
		{"identities are sealed", `SELECT id, identity FROM app_sessions ORDER BY id LIMIT 1`},
		{"users are found", `SELECT id, '' FROM app_users ORDER BY id LIMIT 1`},
		{"revocations are found", `SELECT account_id, '' FROM login_tombstones ORDER BY 1 LIMIT 1`},
	} {
		err := t.Each(func(from scanner) error {
			var id string // or what else it is sealed for
			var sealed []byte
			if err := from.Scan(&id, &sealed); err != nil {
				return err
			}
			if _, err := t.unseal(sealed, id); err == nil && (!recorded || len(sealed) > 0) {
				return nil
			}
			return account.Errorf(account.CodeInvalid, "the secret key is not the one with which this store's %s; "+
				"give that one with --secret-key-file, or put it back into the data directory", has.what)
		}, has.query)
		if err != nil {
			return err
		}
	}
	return nil
}

// PoliciesAfter returns endpoints of all accounts that have a traffic policy: at most limit, in the
// order of their ids, from the first after id on. Of an endpoint it reads ID, AccountID, URL, Scheme,
// Bindings and TrafficPolicy.
func (s *Store) PoliciesAfter(ctx context.Context, id string, limit int) (found []account.Endpoint, err error) {
	err = s.read(ctx, "reading traffic policies", func(t *tx) error {
		return t.Each(func(from scanner) error {
			e := account.Endpoint{Bindings: []string{""}}
			var sealed []byte
			if err := from.Scan(&e.ID, &e.AccountID, &e.URL, &e.Scheme, &e.Bindings[0], &sealed); err != nil {
				return err
			}
			text, err := t.unseal(sealed, e.ID)
			e.TrafficPolicy = text
			found = append(found, e)
			return err
		}, `SELECT id, account_id, url, scheme, binding, traffic_policy FROM endpoints
			WHERE policy_digest <> '' AND id > $1 ORDER BY id LIMIT $2`, id, limit)
	})
	return found, err
}

func (t *tx) unseal(sealed []byte, endpointID string) (string, error) {
	if len(sealed) == 0 {
		return "", nil
	}
	if t.s.opt.Key == nil {
		return "", errNoKey
	}
	text, err := t.s.opt.Key.Unseal(sealed, endpointID)
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
func (t *tx) newPolicy(text string, facts account.PolicyFacts) (policy, error) {
	if text == "" {
		return policy{}, nil
	}
	if t.s.opt.Key == nil {
		return policy{}, errNoKey
	}
	return policy{text: text, digest: t.s.opt.Key.Digest(facts.Digest), backends: facts.Backends}, nil
}

// policyOf reads the policy of a row that is in the database.
func (t *tx) policyOf(row *endpointRow) (policy, error) {
	if row.digest == "" {
		return policy{}, nil
	}
	p := policy{digest: row.digest}
	var sealed []byte
	err := t.Row(`SELECT traffic_policy FROM endpoints WHERE id = $1`, row.e.ID).Scan(&sealed)
	if err == nil {
		p.text, err = t.unseal(sealed, row.e.ID)
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
func (t *tx) setPolicy(row *endpointRow, p policy, backendID string) (changed bool, err error) {
	if p.digest == row.digest && backendID == row.e.BackendID {
		if p.digest == "" {
			return false, nil
		}
		if before, err := t.policyOf(row); err != nil || before.text == p.text {
			return false, err
		}
	}
	if err := t.mayForward(row, p.backends, backendID); err != nil {
		return false, err
	}
	row.change = &policyChange{refs: append([]string{}, p.backends...)}
	if p.text != "" {
		row.change.sealed = t.s.opt.Key.Seal(p.text, row.e.ID)
	}
	if backendID != "" {
		row.change.refs = append(row.change.refs, backendID)
	}
	row.digest, row.e.BackendID = p.digest, backendID
	return true, nil
}

// mayForward reports whether the endpoint may refer to the backends, of its policy and of its own.
func (t *tx) mayForward(row *endpointRow, ofPolicy []string, own string) error {
	if own != "" && len(ofPolicy) > 0 {
		return account.Invalid("backend_id", own,
			"the traffic_policy has a forward-backend action, of which backend_id is the short form; give one of "+
				"the two")
	}
	if own == "" && len(ofPolicy) == 0 {
		return nil
	}
	if err := t.lockAccount(row.e.AccountID); err != nil {
		return err
	}
	g, err := t.backendGraph(row.e.AccountID)
	if err != nil {
		return err
	}
	var broken []account.FieldError
	check := func(field, id string) {
		switch _, known := g.kinds[id]; {
		case !known:
			broken = append(broken, account.FieldError{Field: field, Value: account.Shorten(id),
				Rule: ruleUnknownBackend})
		case row.e.Scheme == "tcp" && g.hasHTTPResponse(id):
			broken = append(broken, account.FieldError{Field: field, Value: id, Rule: ruleTCPAnswer})
		}
	}
	for _, id := range ofPolicy {
		check("traffic_policy", id)
	}
	if own != "" {
		check("backend_id", own)
	}
	if len(broken) > 0 {
		return account.InvalidAll(broken)
	}
	return nil
}

// savePolicy writes what setPolicy noted.
func (t *tx) savePolicy(row *endpointRow) error {
	if row.change == nil {
		return nil
	}
	if err := t.Exec(`UPDATE endpoints SET traffic_policy = $1 WHERE id = $2`, notNil(row.change.sealed),
		row.e.ID); err != nil {
		return err
	}
	if err := t.Exec(`DELETE FROM endpoint_backends WHERE endpoint_id = $1`, row.e.ID); err != nil {
		return err
	}
	for _, id := range row.change.refs {
		if err := t.Exec(`INSERT INTO endpoint_backends (endpoint_id, backend_id) VALUES ($1, $2)`, row.e.ID,
			id); err != nil {
			return err
		}
	}
	return nil
}

// bindPolicy gives the row of an agent the policy of its bind. others reports whether more
// endpoints have its URL. replaced reports that such endpoints got the policy, too.
func (t *tx) bindPolicy(row *endpointRow, r account.BindRequest, others bool) (changed, replaced bool, err error) {
	p, err := t.newPolicy(r.TrafficPolicy, r.PolicyFacts)
	if err != nil {
		return false, false, err
	}
	if changed, err = t.setPolicy(row, p, ""); err != nil || !others {
		return changed, false, err
	}
	replaced, err = t.agreePolicy(row, p, r.ReplacePoolPolicy)
	return changed, replaced, err
}

// agreePolicy holds the rule that all members of a pool have one policy. The others of the row's
// owner, and with replace all others, get that of the row, in the same transaction.
func (t *tx) agreePolicy(row *endpointRow, p policy, replace bool) (replaced bool, err error) {
	e := &row.e
	others, err := t.endpointsWhere(
		`account_id = $1 AND binding = $2 AND host = $3 AND port = $4 AND id <> $5 AND policy_digest <> $6 ORDER BY id`,
		e.AccountID, e.Bindings[0], e.Host, e.Port, e.ID, row.digest)
	if err != nil || len(others) == 0 {
		return false, err
	}
	for _, other := range others {
		if !replace && (e.Owner == nil || !e.Owner.Is(other.e.Owner)) {
			return false, otherPolicy(other, e.Owner)
		}
	}
	for _, other := range others {
		if _, err := t.setPolicy(other, p, ""); err != nil {
			return false, err
		}
		other.e.UpdatedAt = t.now
		t.changed(account.Modified, other)
	}
	return true, nil
}

// otherPolicy is the refusal of a bind in a pool with another traffic policy.
func otherPolicy(other *endpointRow, by *account.Owner) error {
	remedy := "or replace theirs by --replace-pool-policy"
	if by != nil {
		remedy = "or choose another URL"
	}
	return &account.Error{Code: account.CodeURLTaken,
		Details: map[string]string{"endpoint_id": other.e.ID, "url": other.e.URL},
		Msg: fmt.Sprintf("%s is shared by a pool whose members have another traffic policy (endpoint %s); "+
			"give the same one, %s", other.e.URL, other.e.ID, remedy)}
}
