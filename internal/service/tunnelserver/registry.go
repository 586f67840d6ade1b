// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// registry has the sessions with this server, and what they have bound. Its methods are atomic.
type registry struct {
	mu         sync.Mutex
	sessions   map[string]*session // sessions by id, from the accepted hello on
	members    *members            // what the sessions have bound
	unrecorded []*session          // ended sessions whose end the store did not record, as it did not answer
	draining   bool

	// joins is held for reading by Join, for writing while the store records which sessions left.
	joins sync.RWMutex
}

// newRegistry returns the registry of a server; replicated = it is one of several with one store.
func newRegistry(replicated bool) *registry {
	r := &registry{sessions: make(map[string]*session)}
	r.members = &members{
		mu: &r.mu, replicated: replicated, changed: make(chan struct{}),
		endpoints: make(map[string]*Member), pools: make(map[peers.Pool][]*Member),
		public: make(map[peers.Pool][]*Member), tunnels: make(map[string][]*Member),
	}
	return r
}

// session is a tunnel session with its account and credential.
type session struct {
	id, accountID, operatorID string
	cluster                   string   // the operator's cluster name
	urls                      []string // URLs that a forwarder without an operator calls
	credentialID              string
	clusterUID                string // cluster of the exporter that the credential is for; "" = no exporter's
	hello                     tunnel.Hello
	ip                        string
	accepted                  time.Time
	joined                    bool // joined reports that the session began on another server.

	// holdings excludes readings of what the session holds, with their application to the members,
	// from its own binds and unbinds here: held for writing by the former, for reading by the
	// latter.
	holdings sync.RWMutex

	// registry.mu guards what follows.
	token    *account.TunnelCredential // credential as the service last read it; replaced, never changed
	tun      *tunnel.Session           // nil until Up
	stored   bool                      // stored reports that the store has, or had, a row of the session.
	stopping bool                      // stopping reports that the session was told to stop; its end will follow.
	recorded bool                      // recorded reports that the store has the session's end.
	end      sessionEnd                // end is set if the service ended the session.
}

// sessionEnd is why the service ends a session.
type sessionEnd struct {
	account.SessionEnd             // SessionEnd is recorded.
	code               tunnel.Code // code and msg are what the client is told.
	msg                string
}

// isStoredLocked reports whether the session is an agent's that is up, in the store and not told to
// stop. registry.mu must be held.
func (t *session) isStoredLocked() bool {
	return t.hello.Role == tunnel.RoleAgent && t.tun != nil && t.stored && !t.stopping
}

// admit adds a session whose Up will follow, unless the server drains.
func (r *registry) admit(t *session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return errDraining()
	}
	r.sessions[t.id] = t
	return nil
}

// start gives an admitted session its connections. It returns nil when the session was removed by
// forgetUnstarted; draining reports that the server has begun to drain since the hello.
func (r *registry) start(ts *tunnel.Session) (t *session, draining bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t = r.sessions[ts.ID()]; t != nil {
		t.tun = ts
	}
	return t, r.draining
}

// remove removes a session with all that it has bound. It returns nil when there is none.
func (r *registry) remove(id string) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.sessions[id]
	if delete(r.sessions, id); t != nil {
		r.members.dropAll(t)
	}
	return t
}

func (r *registry) session(id string) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[id]
}

// sessionUp returns the session of this id that is up, or nil.
func (r *registry) sessionUp(id string) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.sessions[id]; t != nil && t.tun != nil {
		return t
	}
	return nil
}

// storedSession returns the agent's session of this id that is up and in the store, or nil.
func (r *registry) storedSession(id string) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.sessions[id]; t != nil && t.isStoredLocked() {
		return t
	}
	return nil
}

// liveAgent returns the agent's session of this id that is up and not told to stop, or nil.
func (r *registry) liveAgent(accountID, id string) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.sessions[id]
	if t == nil || t.accountID != accountID || t.hello.Role != tunnel.RoleAgent || t.tun == nil || t.stopping {
		return nil
	}
	return t
}

// liveSessions returns the sessions that are up.
func (r *registry) liveSessions() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*session, 0, len(r.sessions))
	for _, t := range r.sessions {
		if t.tun != nil {
			out = append(out, t)
		}
	}
	return out
}

func (r *registry) setDraining() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

func (r *registry) isDraining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// Stats are current numbers.
type Stats struct {
	Agents, Forwarders, Endpoints, Tunnels, Streams int
}

// Stats counts live sessions, bound endpoints, labelled tunnels and live streams.
func (r *registry) Stats() Stats {
	var st Stats
	for _, t := range r.liveSessions() {
		if t.hello.Role == tunnel.RoleAgent {
			st.Agents++
		} else {
			st.Forwarders++
		}
		st.Streams += t.tun.Streams()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st.Endpoints = len(r.members.endpoints)
	for _, tunnels := range r.members.tunnels {
		st.Tunnels += len(tunnels)
	}
	return st
}

// forgetUnstarted removes sessions whose first connection ended between hello and up.
func (r *registry) forgetUnstarted(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, t := range r.sessions {
		if t.tun == nil && now.Sub(t.accepted) > startTimeout {
			delete(r.sessions, id)
			if t.joined && t.hello.Role == tunnel.RoleAgent {
				r.unrecorded = append(r.unrecorded, t) // the store counts this server among the session's
			}
		}
	}
}

// addUnrecorded adds sessions that have ended or left and that the store has not recorded.
func (r *registry) addUnrecorded(all ...*session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unrecorded = append(r.unrecorded, all...)
}

func (r *registry) takeUnrecorded() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.unrecorded
	r.unrecorded = nil
	return all
}

// hasEndedUnrecorded reports whether the service has ended the session here, which the store does
// not know yet.
func (r *registry) hasEndedUnrecorded(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.unrecorded, func(t *session) bool { return t.id == id && t.end.Reason != "" })
}

func (r *registry) setStored(t *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.stored = true
}

func (r *registry) setStopping(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.sessions[id]; t != nil {
		t.stopping = true
	}
}

func (r *registry) isStopping(t *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.stopping
}

// setEnd sets why a session ends, unless a reason is set.
func (r *registry) setEnd(t *session, end sessionEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.end.Reason == "" {
		t.end = end
	}
}

// endOf returns why the session has ended, and whether the store has recorded it.
func (r *registry) endOf(t *session) (end sessionEnd, recorded bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.end, t.recorded
}

func (r *registry) setRecorded(t *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.recorded = true
}

// setOver records that the store has the end of the session, and reports whether it has to end here,
// as it is up and was not told to stop.
func (r *registry) setOver(t *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := r.sessions[t.id] == t && t.isStoredLocked()
	t.recorded = t.recorded || ends
	return ends
}

func (r *registry) tokenOf(t *session) *account.TunnelCredential {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.token
}

// credentialUses returns the credentials of the sessions that are up and not told to stop, of one
// account unless it is "", and each credential once.
func (r *registry) credentialUses(accountID string) (
	uses map[*session]account.CredentialUse, distinct []account.CredentialUse,
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uses = make(map[*session]account.CredentialUse)
	known := make(map[account.CredentialUse]bool)
	for _, t := range r.sessions {
		if t.tun == nil || t.stopping || accountID != "" && t.accountID != accountID {
			continue
		}
		use := t.token.Use()
		if uses[t] = use; !known[use] {
			known[use] = true
			distinct = append(distinct, use)
		}
	}
	return uses, distinct
}

// setRules gives the session the rules and the cluster of its credential as they are now, and
// returns what it had. changed reports whether they differ.
func (r *registry) setRules(t *session, now *account.TunnelCredential) (was *account.TunnelCredential, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was = t.token
	if slices.Equal(was.ACL, now.ACL) && was.ClusterUID == now.ClusterUID {
		return was, false
	}
	current := *now
	current.ServiceAccount = was.ServiceAccount // which may have been renewed meanwhile
	t.token = &current
	return was, true
}

// renew gives the session the ServiceAccount's token if it expires later than the one that it has,
// and returns the one that it has then. The rules stay: a comparison changes them.
func (r *registry) renew(t *session, fresh account.ServiceAccountToken) account.ServiceAccountToken {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fresh.Expires > t.token.ServiceAccount.Expires {
		renewed := *t.token
		renewed.ServiceAccount = fresh
		t.token = &renewed
	}
	return t.token.ServiceAccount
}
