// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// members are the endpoints and labelled tunnels that the sessions have bound: an index, and the
// choice among them. They share the lock of the registry, as a session goes with what it has bound.
type members struct {
	mu          *sync.Mutex              // the registry's; guards what follows
	replicated  bool                     // replicated reports one of several servers with one store; never changed.
	endpoints   map[string]*Member       // members by endpoint id
	pools       map[peers.Pool][]*Member // members by URL
	public      map[peers.Pool][]*Member // members by public address, in the order of their binds
	tunnels     map[string][]*Member     // labelled tunnels, by account
	chooseCount uint64                   // number of choices so far
	changed     chan struct{}            // changed is closed and replaced by signalChange.
	history     string                   // the database's history at the last comparison
}

// Member is an endpoint or a labelled tunnel that a live session has bound: one member of the pool
// of its URL or labels. A new bind of the endpoint makes a new Member, so the pointer tells one
// bind from the next.
type Member struct {
	members  *members
	endpoint account.Endpoint
	// pooled is the endpoint with the traffic policy of a later bind in its pool; nil = its own.
	pooled  atomic.Pointer[account.Endpoint]
	session *session
	// asked is when the bind was asked of the store; with several servers, when the row was
	// written, so that they agree.
	asked time.Time
	// attached is set for a member that was read from the store and not bound here: the agent may
	// not have had the answer to its bind.
	attached bool
	bindID   string // id of the bind here; "" = unknown
	ctx      context.Context
	cancel   context.CancelFunc

	labels     map[string]string // labels of a labelled tunnel
	resumeHash []byte            // resume secret's hash of a labelled tunnel; the store has those of endpoints

	// registry.mu guards what follows.
	conns         int    // connections that Choose counted and that are not released
	lastChosen    uint64 // chooseCount of the last choice of the member; 0 = never
	policyVersion int64  // resource version of the bind whose traffic policy applies
	// version is that of the endpoint's row as it was last written or read here.
	version account.ResourceVersion
	history string // history of the database that last had the member; "" = unknown
}

// Endpoint returns the endpoint as its agent bound it, with the traffic policy of its pool. It must
// not be changed.
func (h *Member) Endpoint() *account.Endpoint {
	if ep := h.pooled.Load(); ep != nil {
		return ep
	}
	return &h.endpoint
}

// Context is done when the session no longer has the endpoint: it was unbound, taken over, or the
// session ended.
func (h *Member) Context() context.Context { return h.ctx }

// newMember makes a member of an endpoint that the session has bound.
func (m *members) newMember(t *session, ep account.Endpoint) *Member {
	h := &Member{members: m, endpoint: ep, session: t, version: ep.ResourceVersion,
		policyVersion: ep.ResourceVersion.Seq, asked: ep.UpdatedAt}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// add adds the result of a bind that was asked of the store at this time. The endpoint's previous
// member is removed at once, unless another session has bound it since. rebound reports whether the
// session had the endpoint already.
func (m *members) add(t *session, r *account.BindResult, bindID string, asked time.Time) (rebound bool) {
	h := m.newMember(t, r.Endpoint)
	h.bindID = bindID
	if !m.replicated {
		h.asked = asked
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.endpoints[r.Endpoint.ID]
	rebound = old != nil && old.session == t
	if old == nil || rebound || !newer(old.version, h.version) {
		m.put(h)
	}
	m.signalChange()
	return rebound
}

// put adds a member in place of the endpoint's previous one. mu must be held.
func (m *members) put(h *Member) {
	if old := m.endpoints[h.endpoint.ID]; old != nil {
		m.drop(old)
	}
	m.endpoints[h.endpoint.ID], h.history = h, m.history
	pool := peers.PoolOf(&h.endpoint)
	m.pools[pool] = append(m.pools[pool], h)
	if pool.Binding == account.BindingPublic {
		at := peers.PublicAddress(pool.Host, pool.Port)
		m.public[at] = append(m.public[at], h)
		if m.replicated { // they were attached in any order
			slices.SortStableFunc(m.public[at], func(a, b *Member) int { return a.asked.Compare(b.asked) })
		}
	}
	m.syncPoolPolicy(pool)
}

// syncPoolPolicy gives all members of a pool the traffic policy of the bind that the store recorded
// last, which may have replaced theirs. mu must be held.
func (m *members) syncPoolPolicy(pool peers.Pool) {
	last := slices.MaxFunc(m.pools[pool], func(a, b *Member) int {
		return cmp.Compare(a.policyVersion, b.policyVersion)
	})
	policy := last.Endpoint().TrafficPolicy
	for _, h := range m.pools[pool] {
		if h.policyVersion = last.policyVersion; h.Endpoint().TrafficPolicy != policy {
			ep := *h.Endpoint()
			ep.TrafficPolicy = policy
			h.pooled.Store(&ep)
		}
	}
}

// holds reports whether the session has bound the endpoint here, by another bind than this one, and
// still has it.
func (m *members) holds(t *session, endpointID, bindID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.endpoints[endpointID]
	return h != nil && h.session == t && !h.attached && (bindID == "" || h.bindID != bindID)
}

func (m *members) has(t *session, endpointID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.endpoints[endpointID]
	return h != nil && h.session == t
}

// remove removes the session's member with this endpoint.
func (m *members) remove(t *session, endpointID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.endpoints[endpointID]; h != nil && h.session == t {
		m.drop(h)
	}
}

// drop removes a member. mu must be held.
func (m *members) drop(h *Member) {
	if len(h.labels) > 0 {
		removeFrom(m.tunnels, h.session.accountID, h)
	} else {
		delete(m.endpoints, h.endpoint.ID)
		pool := peers.PoolOf(&h.endpoint)
		removeFrom(m.pools, pool, h)
		removeFrom(m.public, peers.PublicAddress(pool.Host, pool.Port), h)
	}
	h.cancel()
}

// removeFrom removes the member from the key's, where it may be missing.
func removeFrom[K comparable](all map[K][]*Member, key K, h *Member) {
	left := slices.DeleteFunc(all[key], func(o *Member) bool { return o == h })
	if len(left) == 0 {
		delete(all, key)
		return
	}
	all[key] = left
}

// removeAll removes all that the session has bound.
func (m *members) removeAll(t *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropAll(t)
}

// dropAll is removeAll. mu must be held.
func (m *members) dropAll(t *session) {
	for _, h := range m.boundBy(t) {
		m.drop(h)
	}
}

// boundBy returns the members of the session, endpoints first. mu must be held.
func (m *members) boundBy(t *session) (all []*Member) {
	for _, h := range m.endpoints {
		if h.session == t {
			all = append(all, h)
		}
	}
	for _, h := range m.tunnels[t.accountID] {
		if h.session == t {
			all = append(all, h)
		}
	}
	return all
}

// OnResponsiveness makes callers that wait for an agent choose again.
func (m *members) OnResponsiveness(*tunnel.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.signalChange()
}

// signalChange wakes the callers that wait for an agent. mu must be held.
func (m *members) signalChange() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// apply makes the session's members those of a reading of the store. It reports whether the database
// has lost one, which stays until the session has ended. mu must be held.
func (m *members) apply(t *session, held *account.SessionHoldings) (lost bool) {
	have, kept := make(map[string]bool), make(map[string]bool, len(held.Endpoints)+len(held.Tunnels))
	for _, h := range m.boundBy(t) {
		have[h.endpoint.ID] = true
	}
	for _, ep := range held.Endpoints {
		kept[ep.ID] = true
		m.applyEndpoint(t, ep)
	}
	for i := range held.Tunnels {
		started := &held.Tunnels[i]
		kept[started.ID] = true
		if !have[started.ID] {
			m.tunnels[t.accountID] = append(m.tunnels[t.accountID], m.newTunnel(t, started, nil))
		}
	}
	for _, h := range m.boundBy(t) {
		switch {
		case kept[h.endpoint.ID]:
			h.history = held.History
		case h.isLost(held):
			lost = true
		default:
			m.drop(h)
		}
	}
	m.signalChange()
	return lost
}

// applyEndpoint adds a member of the row or updates the one that there is. A rebind makes a new
// member, as it does where it was asked; what others changed, the pool's traffic policy, does not.
// mu must be held.
func (m *members) applyEndpoint(t *session, ep account.Endpoint) {
	old := m.endpoints[ep.ID]
	if old != nil && old.session != t && newer(old.version, ep.ResourceVersion) {
		return
	}
	if old == nil || old.session != t || !old.sameBind(ep) {
		h := m.newMember(t, ep)
		h.attached = true
		m.put(h)
		return
	}
	old.version, old.policyVersion = ep.ResourceVersion, max(old.policyVersion, ep.ResourceVersion.Seq)
	old.pooled.Store(&ep)
	m.syncPoolPolicy(peers.PoolOf(&ep))
}

// isLost reports whether a member that a reading lacks was lost with a former history of the
// database, not unbound. registry.mu must be held.
func (h *Member) isLost(held *account.SessionHoldings) bool {
	return h.history != "" && held.History != "" && h.history != held.History
}

// sameBind reports whether the row is the bind of the member. The traffic policy of a pool may have
// changed since the bind, and is not compared.
func (h *Member) sameBind(ep account.Endpoint) bool {
	mine := *h.Endpoint()
	for _, e := range []*account.Endpoint{&mine, &ep} {
		e.CreatedAt, e.UpdatedAt, e.ResourceVersion = time.Time{}, time.Time{}, account.ResourceVersion{}
		if e.SharesURL() {
			e.TrafficPolicy = ""
		}
	}
	return reflect.DeepEqual(mine, ep)
}

// newer reports whether version a is later than b.
func newer(a, b account.ResourceVersion) bool {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq)) > 0
}
