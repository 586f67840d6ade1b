// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import "github.com/fairlead-dev/fairlead/internal/account"

// sessionBinds are what a session has bound, with its credential, and its operator or the URLs that it
// calls, at one moment.
type sessionBinds struct {
	token      *account.TunnelCredential
	operatorID string
	urls       []string
	members    []*Member
}

func (r *registry) bindsOf(t *session) *sessionBinds {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &sessionBinds{t.token, t.operatorID, t.urls, r.members.boundBy(t)}
}

// applyHoldings makes the session's members those of a reading of the store, and returns what it
// has bound then; nil if it went down meanwhile. lost reports that the database has lost a member,
// which stays until the session has ended.
func (r *registry) applyHoldings(t *session, held *account.SessionHoldings) (now *sessionBinds, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[t.id] != t {
		return nil, false
	}
	lost = r.members.apply(t, held)
	return &sessionBinds{t.token, t.operatorID, t.urls, r.members.boundBy(t)}, lost
}

// publicMembers returns the members with public endpoints by account; of all if accountID is "".
func (r *registry) publicMembers(accountID string) map[string][]*Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	public := make(map[string][]*Member)
	for _, h := range r.members.endpoints {
		if h.endpoint.Bindings[0] == account.BindingPublic && (accountID == "" || h.session.accountID == accountID) {
			public[h.session.accountID] = append(public[h.session.accountID], h)
		}
	}
	return public
}

// holdingsVersions returns the version of the members of each agent's session here.
func (r *registry) holdingsVersions() map[string]account.HoldingsVersion {
	r.mu.Lock()
	defer r.mu.Unlock()
	versions := make(map[string]account.HoldingsVersion)
	for id, t := range r.sessions {
		if t.isStoredLocked() {
			versions[id] = account.HoldingsVersion{}
		}
	}
	for _, h := range r.members.endpoints {
		if v, stored := versions[h.session.id]; stored {
			v.Endpoints, v.EndpointSeq = v.Endpoints+1, max(v.EndpointSeq, h.version.Seq)
			versions[h.session.id] = v
		}
	}
	for _, tunnels := range r.members.tunnels {
		for _, h := range tunnels {
			if v, stored := versions[h.session.id]; stored {
				v.Tunnels, v.TunnelID = v.Tunnels+1, max(v.TunnelID, h.endpoint.ID)
				versions[h.session.id] = v
			}
		}
	}
	return versions
}

// legDifferences are the sessions, by id, in which the store's legs of this server and its sessions
// differ: true for one that lives here and has no leg in the store, false for the reverse.
type legDifferences map[string]bool

// compareLegs returns how the sessions differ from those that the store has a leg of. Members that
// are added from now on have the history of that reading; failedOver reports whether it is another
// one than at the comparison before.
func (r *registry) compareLegs(own account.OwnLegs) (d legDifferences, failedOver bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failedOver = r.members.history != "" && own.History != r.members.history
	r.members.history = own.History
	d = legDifferences{}
	for id, t := range r.sessions {
		if t.isStoredLocked() {
			d[id] = true
		}
	}
	for _, id := range own.SessionIDs {
		if delete(d, id); r.sessions[id] == nil {
			d[id] = false
		}
	}
	return d, failedOver
}
