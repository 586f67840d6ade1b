// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"

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
func (t *tx) rowFor(r account.BindRequest, slot, memberSlot string) (*endpointRow, error) {
	const ofURL = `account_id = $1 AND binding = $2 AND host = $3 AND port = $4`
	rows, err := t.endpointsWhere(ofURL+` AND slot IN ('', $5)`, r.AccountID, r.Binding, r.URL.Host, r.URL.Port, slot)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		return rows[0], nil // a pool has no row in the slot ""
	}
	if r.PoolingEnabled {
		return nil, nil
	}
	rows, err = t.endpointsWhere(ofURL+` ORDER BY id LIMIT 2`, r.AccountID, r.Binding, r.URL.Host, r.URL.Port)
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
	return nil, &account.Error{Code: account.CodeURLTaken,
		Details: map[string]string{"endpoint_id": rows[0].e.ID, "url": rows[0].e.URL},
		Msg: fmt.Sprintf(
			"%s is shared by a pool (endpoints: %d, online: %d); join it with --pooling-enabled, or choose another URL",
			r.URL,
			members, online)}
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
