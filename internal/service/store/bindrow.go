// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/subtle"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Rows of endpoints with an owner belong to no session: each replica of an exporter binds a row of
// the owner that no other replica holds, and the rows outlive the last one by OwnedGrace.

// storeOwner sets the columns of the row's owner.
func (r *endpointRow) storeOwner() {
	r.ownerCluster, r.ownerObject = ownerKey(r.e.Owner)
	if r.ownerUID = ""; r.e.Owner != nil {
		r.ownerUID = r.e.Owner.UID
	}
}

// loadOwner sets the row's owner from its columns.
func (r *endpointRow) loadOwner() {
	if r.ownerCluster == "" {
		return
	}
	kind, object, _ := strings.Cut(r.ownerObject, "/")
	namespace, name, _ := strings.Cut(object, "/")
	r.e.Owner = &account.Owner{Cluster: r.ownerCluster, Kind: kind, Namespace: namespace, Name: name, UID: r.ownerUID}
}

// ownerKey returns what the columns owner_cluster and owner_object have.
func ownerKey(o *account.Owner) (cluster, object string) {
	if o == nil {
		return "", ""
	}
	return o.Cluster, o.Object()
}

// ownerSlot returns the slot of the n-th endpoint that an owner has at a URL.
func ownerSlot(o *account.Owner, n int) string {
	return "owner:" + o.Cluster + "/" + o.Object() + "/" + strconv.Itoa(n)
}

// rowChoice is the row of a bind.
type rowChoice struct {
	row      *endpointRow // nil: it is to be made
	slot     string
	replaced string // the live session that the bind takes it from, or ""
	oldest   string // id of the oldest endpoint that its owner has at the URL already, or ""
}

// ownerRow chooses the row of a bind with an owner: the one that its session holds or its resume
// secret fits, else the oldest that is offline, else a new one, in the first slot that is free.
func (b *Binds) ownerRow(t *tx, r account.BindRequest, at bindPlace) (c rowChoice, err error) {
	if at.endpoints == 0 {
		c.slot = ownerSlot(r.Owner, 0)
		return c, nil
	}
	cluster, object := ownerKey(r.Owner)
	rows, err := b.endpoints.atURL(t, &r.Endpoint, `owner_cluster = $5 AND owner_object = $6 ORDER BY created_at, slot`,
		cluster, object)
	if err != nil {
		return c, err
	}
	if len(rows) > 0 {
		c.oldest = rows[0].e.ID
	}
	hash, taken := account.HashSecret(r.ResumeSecret), map[string]bool{}
	for _, row := range rows {
		taken[row.slot] = true
		holder := idOf(row.e.TunnelSession)
		switch {
		case row.online() && holder == r.SessionID:
			c.row, c.replaced = row, ""
		case c.row != nil && c.row.online(): // it is one of these two
		case row.online() && len(row.resumeHash) > 0 && subtle.ConstantTimeCompare(row.resumeHash, hash) == 1:
			c.row, c.replaced = row, holder
		case !row.online() && c.row == nil:
			c.row = row
		}
	}
	if c.row != nil {
		c.slot = c.row.slot
		return c, nil
	}
	n := 0
	for taken[ownerSlot(r.Owner, n)] {
		n++
	}
	c.slot = ownerSlot(r.Owner, n)
	return c, nil
}

// deleteLeftBehind deletes what the owner of an unbound row has at its URL and no session holds: rows
// of replicas that are gone. The owner is, too, or does not want the URL, so that no replica would
// take them.
func (b *Binds) deleteLeftBehind(t *tx, unbound *endpointRow) error {
	e := &unbound.e
	cluster, object := ownerKey(e.Owner)
	return b.endpoints.deleteRows(t, ofURL+`
		AND owner_cluster = $5 AND owner_object = $6 AND online = 0 ORDER BY id`,
		e.AccountID, e.Bindings[0], e.Host, e.Port, cluster, object)
}

// othersOwner selects the endpoints at a URL that a bind or an endpoint of the owner in parameters
// $n and $n+1, which pools or not by $n+2, must not join: those of another owner, unless both pool.
func othersOwner(n int) string {
	return fmt.Sprintf(`(owner_cluster <> $%d OR owner_object <> $%d) AND (pooling_enabled = 0 OR $%d = 0)`, n, n+1,
		n+2)
}

// refuseOtherOwner refuses a bind beside an endpoint of another owner, or a bind with an owner
// beside an endpoint without one, unless both pool.
func (b *Binds) refuseOtherOwner(t *tx, r account.BindRequest) error {
	cluster, object := ownerKey(r.Owner)
	rows, err := b.endpoints.atURL(t, &r.Endpoint, othersOwner(5)+` ORDER BY online DESC, id LIMIT 1`, cluster, object,
		r.PoolingEnabled)
	if err != nil || len(rows) == 0 {
		return err
	}
	row := rows[0]
	if row.e.Owner != nil {
		return ownerTaken(row, ownerRemedy(r.Owner, row.e.PoolingEnabled, r.PoolingEnabled))
	}
	if row.online() {
		return b.urlTaken(t, row, idOf(row.e.TunnelSession), r)
	}
	return taken(row, "%s is taken by endpoint %s of an agent, which is offline since %s and keeps its URL for %s; "+
		"wait until then, or choose another URL", row.e.URL, row.e.ID, row.e.OfflineSince.Format(time.RFC3339),
		b.endpoints.grace)
}

// ownerTaken is the refusal of a bind, or of a cloud endpoint, at the URL of an endpoint with an
// owner.
func ownerTaken(row *endpointRow, remedy string) error {
	e := &row.e
	state := ""
	if e.OfflineSince != nil {
		state = ", which is offline since " + e.OfflineSince.Format(time.RFC3339)
		remedy += "; if that object is gone: fairlead api endpoints delete " + e.ID
	}
	return &account.Error{Code: account.CodeURLTaken,
		Details: map[string]string{"endpoint_id": e.ID, "url": e.URL, "owner": e.Owner.String()},
		Msg:     fmt.Sprintf("%s is taken by %s%s; %s", e.URL, e.Owner, state, remedy)}
}

// ownerRemedy returns what to do about a URL that an object, or an agent's endpoint, has.
func ownerRemedy(by *account.Owner, holderPools, requestPools bool) string {
	mine := "start this agent with --pooling-enabled"
	if by != nil {
		mine = "set poolingEnabled of this object"
	}
	switch {
	case holderPools:
		return "choose another URL, or share this one: " + mine
	case requestPools:
		return "choose another URL, or set poolingEnabled of that object, too"
	}
	return "choose another URL, or share this one: " + mine + " and poolingEnabled of that object"
}

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
	rows, err := b.endpoints.atURL(t, &r.Endpoint, `slot IN ('', $5)`, slot)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		return rows[0], nil // a pool has no row in the slot ""
	}
	if r.PoolingEnabled {
		return nil, nil
	}
	rows, err = b.endpoints.all(t, ofURL+` ORDER BY id LIMIT 2`, r.AccountID, r.Bindings[0], r.Host, r.Port)
	switch {
	case err != nil || len(rows) == 0:
		return nil, err
	case len(rows) == 1 && rows[0].slot == memberSlot:
		return rows[0], nil
	}
	var members, online int
	err = t.Row(`SELECT COUNT(*), SUM(online) FROM endpoints WHERE `+ofURL, r.AccountID, r.Bindings[0], r.Host,
		r.Port).Scan(&members, &online)
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
	others, err := b.endpoints.atURL(t, e, `id <> $5 AND policy_digest <> $6 ORDER BY id`, e.ID, row.digest)
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
