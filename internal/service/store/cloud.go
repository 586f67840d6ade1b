// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// CloudEndpoints makes and changes endpoints that no agent holds.
type CloudEndpoints struct {
	db         *database
	accounts   *Accounts
	endpoints  *Endpoints
	domains    *Domains
	clusterIDs *ClusterIDs
}

// CreateEndpoint implements account.CloudEndpoints.
func (ce *CloudEndpoints) CreateEndpoint(
	ctx context.Context, e account.Endpoint, facts account.PolicyFacts,
) (*account.Endpoint, error) {
	if err := checkCloud(&e, e.TrafficPolicy, facts); err != nil {
		return nil, err
	}
	var row *endpointRow
	err := ce.db.write(ctx, "creating an endpoint", func(t *tx) (err error) {
		if err := ce.accounts.lock(t, e.AccountID); err != nil {
			return err
		}
		if err := ce.domains.mayHaveHost(t, &e); err != nil {
			return err
		}
		if err := ce.clusterIDs.claim(t, &e); err != nil {
			return err
		}
		if err := ce.endpoints.refuseOtherScheme(t, &e); err != nil {
			return err
		}
		if err := ce.refuseAgents(t, &e); err != nil {
			return err
		}
		slot := cloudSlot(&e)
		if row, err = ce.endpoints.newRow(t, e, slot); err != nil {
			return err
		}
		row.slot, row.onlineSince = slot, t.now
		made := &row.e
		made.Type, made.Status = account.TypeCloud, account.StatusOnline
		made.ServiceExport = e.ServiceExport.Normal()
		policy, err := ce.endpoints.newPolicy(e.TrafficPolicy, facts)
		if err != nil {
			return err
		}
		if _, err := ce.endpoints.setPolicy(t, row, policy, e.BackendID); err != nil {
			return err
		}
		if err := ce.join(t, row); err != nil {
			return err
		}
		t.changed(account.Added, row)
		return nil
	})
	if err != nil {
		return nil, err
	}
	row.e.TrafficPolicy = e.TrafficPolicy
	return &row.e, nil
}

// cloudSlot returns the slot of an endpoint of type cloud; "" also for a pool's member without a
// name, which has one of its id. An owner has one endpoint at a URL.
func cloudSlot(e *account.Endpoint) string {
	switch {
	case e.Owner != nil:
		return ownerSlot(e.Owner, 0)
	case e.PoolingEnabled:
		return poolMemberSlot(e.Name, "")
	}
	return ""
}

func checkCloud(e *account.Endpoint, policy string, facts account.PolicyFacts) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if (policy == "") != (facts.Digest == "") {
		return account.Invalid("traffic_policy", "", "must be checked before it is kept")
	}
	return nil
}

// refuseAgents refuses a cloud endpoint at a URL that agents have.
func (ce *CloudEndpoints) refuseAgents(t *tx, e *account.Endpoint) error {
	rows, err := ce.endpoints.atURL(t, e, `type <> $5 ORDER BY id LIMIT 1`, account.TypeCloud)
	if err != nil || len(rows) == 0 {
		return err
	}
	row := rows[0]
	if row.e.Owner != nil {
		return ownerTaken(row, "agents and cloud endpoints share no URL: choose another one, or delete that object")
	}
	state := "is online"
	if row.e.OfflineSince != nil {
		state = "is offline since " + row.e.OfflineSince.Format("2006-01-02T15:04:05Z07:00")
	}
	return taken(row, "%s is an agent's (endpoint %s, which %s); stop that agent, or choose another URL. An agent "+
		"that is lost keeps its URL for %s", e.URL, row.e.ID, state, ce.endpoints.grace)
}

// join gives a row of type cloud its slot beside those that have the URL already: either all
// of them pool or there is one, and the members of a pool have the same policy, and all of them a
// backend or none.
func (ce *CloudEndpoints) join(t *tx, row *endpointRow) error {
	e := &row.e
	if row.slot = cloudSlot(e); row.slot == "" && e.PoolingEnabled {
		row.slot = "id:" + e.ID
	}
	differs, args := ``, []any{e.AccountID, e.Bindings[0], e.Host, e.Port, e.ID}
	if e.PoolingEnabled {
		served := ` OR backend_id = ''`
		if e.BackendID == "" {
			served = ` OR backend_id <> ''`
		}
		differs = ` AND (pooling_enabled = 0 OR slot = $6 OR policy_digest <> $7` + served + `)`
		args = append(args, row.slot, row.digest)
	}
	others, err := ce.endpoints.all(t, ofURL+` AND id <> $5`+differs+` ORDER BY id LIMIT 1`, args...)
	if err != nil || len(others) == 0 {
		return err
	}
	other, why := others[0],
		"the members of a pool have the same traffic_policy, and all of them a backend_id or none; delete the others "+
			"before you change one, or give the new one theirs"
	switch {
	case other.slot == row.slot && e.Owner != nil:
		why = "that object has it already; change it, or delete it first"
	case !other.e.PoolingEnabled || !e.PoolingEnabled:
		why = "only endpoints that all have pooling_enabled share a URL; change that one, or choose another URL"
	case other.slot == row.slot:
		why = fmt.Sprintf("it has the name %q already; give this member of the pool another name", e.Name)
	}
	return &account.Error{Code: account.CodeURLTaken,
		Details: map[string]string{"endpoint_id": other.e.ID, "url": e.URL},
		Msg:     fmt.Sprintf("%s is that of %s: %s", e.URL, cloudName(&other.e), why)}
}

// cloudName names an endpoint of type cloud in messages.
func cloudName(e *account.Endpoint) string {
	if e.Owner != nil {
		return fmt.Sprintf("%s (endpoint %s)", e.Owner, e.ID)
	}
	return "cloud endpoint " + e.ID
}

// PatchEndpoint implements account.CloudEndpoints.
func (ce *CloudEndpoints) PatchEndpoint(
	ctx context.Context, by account.Caller, id string, p account.EndpointPatch, facts account.PolicyFacts,
) (*account.Endpoint, error) {
	var row *endpointRow
	var now policy
	err := ce.db.write(ctx, "changing an endpoint", func(t *tx) (err error) {
		if row, err = ce.get(t, by, id); err != nil {
			return err
		}
		before := row.e
		if err := ce.checkExpected(t, row, p); err != nil {
			return err
		}
		after, err := p.Apply(before)
		if err != nil {
			return err
		}
		if p.TrafficPolicy == nil {
			now, err = ce.endpoints.policyOf(t, row)
		} else if err = checkCloud(&after, *p.TrafficPolicy, facts); err == nil {
			now, err = ce.endpoints.newPolicy(*p.TrafficPolicy, facts)
		}
		if err != nil {
			return err
		}
		row.e.EndpointSettings, row.e.Owner = after.EndpointSettings, after.Owner
		row.e.ServiceExport = after.ServiceExport
		changed, err := ce.endpoints.setPolicy(t, row, now, after.BackendID)
		if err != nil || !changed && !differs(before, row.e) {
			return err
		}
		if err := ce.join(t, row); err != nil {
			return err
		}
		row.e.UpdatedAt = t.now
		t.changed(account.Modified, row)
		if changed || !onlyReadiness(before, row.e) {
			t.audit(by, account.AuditEndpointUpdated, id,
				map[string]string{"url": row.e.URL, "type": row.e.Type, "binding": row.e.Bindings[0]})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	row.e.TrafficPolicy = now.text
	return &row.e, nil
}

// checkExpected returns CodeChanged if the row is not what the patch was made of.
func (ce *CloudEndpoints) checkExpected(t *tx, row *endpointRow, p account.EndpointPatch) error {
	if err := account.CheckUnchanged(row.e.URL, row.e.UpdatedAt, p.ExpectedUpdatedAt); err != nil {
		return err
	}
	if p.ExpectedPolicy == nil {
		return nil
	}
	now, err := ce.endpoints.policyOf(t, row)
	if err == nil && now.text != *p.ExpectedPolicy {
		err = account.Errorf(account.CodeChanged,
			"the traffic policy of %s was changed meanwhile; read it, and send the change again", row.e.URL)
	}
	return err
}

// onlyReadiness reports whether two states of an endpoint differ in nothing but Ready and Pods of its
// ServiceExport, which follow the pods of a Service.
func onlyReadiness(a, b account.Endpoint) bool {
	if a.ServiceExport == nil || b.ServiceExport == nil {
		return false
	}
	export := *a.ServiceExport
	export.Ready, export.Pods, a.ServiceExport = b.ServiceExport.Ready, b.ServiceExport.Pods, &export
	return !differs(a, b)
}

// DeleteEndpoint implements account.CloudEndpoints.
func (ce *CloudEndpoints) DeleteEndpoint(ctx context.Context, by account.Caller, id string) error {
	return ce.db.write(ctx, "deleting an endpoint", func(t *tx) error {
		t.by = by.PrincipalID
		row, err := ce.deletable(t, by, id)
		if err != nil {
			return err
		}
		return ce.endpoints.delete(t, row)
	})
}

// get returns a row of type cloud.
func (ce *CloudEndpoints) get(t *tx, by account.Caller, id string) (*endpointRow, error) {
	row, err := ce.endpoints.visible(t, by, id)
	if err == nil && row.e.Type != account.TypeCloud {
		err = errOfAgent(&row.e)
	}
	return row, err
}

// deletable returns a row of type cloud, or one of an owner that no session holds.
func (ce *CloudEndpoints) deletable(t *tx, by account.Caller, id string) (*endpointRow, error) {
	row, err := ce.endpoints.visible(t, by, id)
	switch {
	case err != nil:
		return nil, err
	case row.e.Type == account.TypeCloud:
	case row.e.Owner == nil:
		return nil, errOfAgent(&row.e)
	case row.online():
		return nil, account.Errorf(account.CodeInUse,
			"endpoint %s is online: tunnel session %s holds it for %s; delete that object, or end the session first",
			id, idOf(row.e.TunnelSession), row.e.Owner)
	}
	return row, nil
}

// errOfAgent is the refusal to change an agent's endpoint.
func errOfAgent(e *account.Endpoint) error {
	if e.Owner != nil {
		return account.Invalid("type", e.Type, "endpoint "+e.ID+" is changed by its object: "+e.Owner.String())
	}
	return account.Invalid("type", e.Type,
		"endpoint "+e.ID+" is an agent's, which its agent makes, changes by its flags and ends: "+
			"start the agent with other flags, or end it with Ctrl-C or by /tunnel_sessions/{id}/stop")
}
