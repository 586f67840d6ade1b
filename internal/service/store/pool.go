// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"github.com/fairlead-dev/fairlead/internal/account"
)

// A URL has either one row, in the slot "", or one for each member of its pool, in different slots.

// poolMemberSlot returns the slot of a pool's member: that of its name, else of its agent's
// instance id, "" without either.
func poolMemberSlot(name, instanceID string) string {
	switch {
	case name != "":
		return "name:" + name
	case instanceID != "":
		return "instance:" + instanceID
	}
	return ""
}

// requestedSlot returns the slot that the bind asks for.
func requestedSlot(r account.BindRequest, instanceID string) (string, error) {
	if !r.PoolingEnabled {
		return "", nil
	}
	slot := poolMemberSlot(r.Name, instanceID)
	if slot == "" {
		return "", account.Invalid("name", "",
			"an endpoint of a pool needs a name, or an agent that tells its instance id: the members are told "+
				"apart by it")
	}
	return slot, nil
}

// rowFor returns the row of the bind, whichever session holds it; nil when a row is to be made.
// memberSlot is the agent's slot in a pool, whether or not it asks for pooling: an agent that stops
// pooling keeps its row when that is the pool's only one, and an agent that starts pooling adopts
// the unpooled row of the URL.
func (b *Binds) rowFor(t *tx, r account.BindRequest, slot, memberSlot string) (*endpointRow, error) {
	rows, err := b.endpoints.all(t, ofURL+` AND slot IN ('', $5)`, r.AccountID, r.Binding, r.URL.Host, r.URL.Port, slot)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		return rows[0], nil // a pool has no row in the slot ""
	}
	if r.PoolingEnabled {
		return nil, nil
	}
	rows, err = b.endpoints.all(t, ofURL+` ORDER BY id LIMIT 2`, r.AccountID, r.Binding, r.URL.Host, r.URL.Port)
	switch {
	case err != nil || len(rows) == 0:
		return nil, err
	case len(rows) == 1 && rows[0].slot == memberSlot:
		return rows[0], nil
	}
	var members, online int
	err = t.Row(`SELECT COUNT(*), SUM(online) FROM endpoints WHERE `+ofURL, r.AccountID, r.Binding, r.URL.Host,
		r.URL.Port).Scan(&members, &online)
	if err != nil {
		return nil, err
	}
	return nil, taken(rows[0],
		"%s is shared by a pool (endpoints: %d, online: %d); join it with --pooling-enabled, or choose another URL",
		r.URL, members, online)
}

// remedy returns what to do about a row without an owner that another session holds.
func remedy(holderPools bool, r account.BindRequest) string {
	requestPools := r.PoolingEnabled
	switch {
	case r.Owner != nil && holderPools:
		return "stop that agent, choose another URL, or share this one: set poolingEnabled of this object"
	case r.Owner != nil && requestPools:
		return "that agent does not share it: start it with --pooling-enabled, or stop it, or choose another URL"
	case r.Owner != nil:
		return "stop that agent, choose another URL, or share this one: start that agent with --pooling-enabled, and " +
			"set poolingEnabled of this object"
	case holderPools && requestPools:
		return "stop that agent, or give this member of the pool another --name"
	case holderPools:
		return "stop that agent, share the URL with it by --pooling-enabled, or choose another URL"
	case requestPools:
		return "that agent does not share it: start it with --pooling-enabled, too, or stop it, or choose another URL"
	}
	return "stop that agent, choose another URL, or share this one: start both agents with --pooling-enabled"
}

// bindPolicy gives the row of an agent the policy of its bind. others reports whether more
// endpoints have its URL. replaced reports that such endpoints got the policy, too.
func (b *Binds) bindPolicy(
	t *tx, row *endpointRow, r account.BindRequest, others bool,
) (changed, replaced bool, err error) {
	p, err := b.endpoints.newPolicy(r.TrafficPolicy, r.PolicyFacts)
	if err != nil {
		return false, false, err
	}
	if changed, err = b.endpoints.setPolicy(t, row, p, ""); err != nil || !others {
		return changed, false, err
	}
	replaced, err = b.agreePolicy(t, row, p, r.ReplacePoolPolicy)
	return changed, replaced, err
}

// agreePolicy holds the rule that all members of a pool have one policy. The others of the row's
// owner, and with replace all others, get that of the row, in the same transaction.
func (b *Binds) agreePolicy(t *tx, row *endpointRow, p policy, replace bool) (replaced bool, err error) {
	e := &row.e
	others, err := b.endpoints.all(t,
		ofURL+` AND id <> $5 AND policy_digest <> $6 ORDER BY id`,
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
		if _, err := b.endpoints.setPolicy(t, other, p, ""); err != nil {
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
	return taken(other, "%s is shared by a pool whose members have another traffic policy (endpoint %s); "+
		"give the same one, %s", other.e.URL, other.e.ID, remedy)
}
