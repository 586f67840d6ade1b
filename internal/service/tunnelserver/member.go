// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Member is an endpoint or a labelled tunnel that a live session has bound: one member of the pool
// of its URL or labels. A new bind of the endpoint makes a new Member, so the pointer tells one
// bind from the next.
type Member struct {
	server   *Server
	endpoint account.Endpoint
	// endpoint with the pool's traffic policy, set by a later bind of another member; nil = its own
	pooled  atomic.Pointer[account.Endpoint]
	session *session
	// when the bind was asked of the store; with several servers, when the row was written, so that
	// they agree
	asked time.Time
	// read from the store, not bound here: whether the agent had the answer to its bind is not known
	attached bool
	bindID   string // the bind here; "" = unknown
	ctx      context.Context
	cancel   context.CancelFunc

	labels     map[string]string // a labelled tunnel's
	resumeHash []byte            // a labelled tunnel's; the store has those of endpoints

	// guarded by Server.mu
	conns         int    // connections that Choose counted and that are not released
	lastChosen    uint64 // chooseCount when it was last chosen; 0 = never
	policyVersion int64  // resource version of the bind whose traffic policy applies
	// the version of the endpoint's row, as it was last written or read here
	version account.ResourceVersion
	history string // the history of the database that had it, as far as is known
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

// Open opens a stream to the agent, without waiting for its answer. The error is
// CodeEndpointOffline when the session has ended, CodeAgentSilent when the agent does not respond.
func (h *Member) Open(ctx context.Context, header tunnel.OpenHeader) (*tunnel.Stream, error) {
	if h.ctx.Err() != nil {
		return nil, errOffline(h.endpoint.ID, nil)
	}
	st, err := h.session.tun.Open(ctx, header)
	switch {
	case errors.Is(err, tunnel.ErrUnresponsive):
		return nil, errUnresponsive("the agent of endpoint " + h.endpoint.ID + " does not respond")
	case err != nil:
		return nil, errOffline(h.endpoint.ID, err)
	}
	return st, nil
}

// Report sends a request line to the agent's screen; it never blocks.
func (h *Member) Report(line tunnel.RequestLine) { h.session.tun.SendRequestLine(line) }

// newMember makes a member of an endpoint that the session has bound.
func (s *Server) newMember(t *session, ep account.Endpoint) *Member {
	h := &Member{server: s, endpoint: ep, session: t, version: ep.ResourceVersion,
		policyVersion: ep.ResourceVersion.Seq, asked: ep.UpdatedAt}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// addMember adds the result of a bind that was asked of the store at this time. The endpoint's
// previous member is removed at once, unless another session has bound it since. rebound reports
// whether the session had the endpoint already.
func (s *Server) addMember(t *session, r *account.BindResult, bindID string, asked time.Time) (rebound bool) {
	h := s.newMember(t, r.Endpoint)
	h.bindID = bindID
	if !s.replicated() {
		h.asked = asked
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.members[r.Endpoint.ID]
	rebound = old != nil && old.session == t
	if old == nil || rebound || !newer(old.version, h.version) {
		s.putMember(h)
	}
	s.signalChange()
	return rebound
}

// putMember adds a member in place of the endpoint's previous one. mu must be held.
func (s *Server) putMember(h *Member) {
	if old := s.members[h.endpoint.ID]; old != nil {
		s.dropMember(old)
	}
	s.members[h.endpoint.ID], h.history = h, s.history
	key := poolKeyOf(&h.endpoint)
	s.pools[key] = append(s.pools[key], h)
	if key.binding == account.BindingPublic {
		at := publicAddress{key.host, key.port}
		s.public[at] = append(s.public[at], h)
		if s.replicated() { // they were attached in any order
			slices.SortStableFunc(s.public[at], func(a, b *Member) int { return a.asked.Compare(b.asked) })
		}
	}
	s.syncPoolPolicy(key)
}

// holds reports whether the session has bound the endpoint here, by another bind than this one, and
// still has it.
func (s *Server) holds(t *session, endpointID, bindID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.members[endpointID]
	return h != nil && h.session == t && !h.attached && (bindID == "" || h.bindID != bindID)
}

// syncPoolPolicy gives all members of a pool the traffic policy of the bind that the store recorded
// last, which may have replaced theirs. mu must be held.
func (s *Server) syncPoolPolicy(key poolKey) {
	last := slices.MaxFunc(s.pools[key], func(a, b *Member) int {
		return cmp.Compare(a.policyVersion, b.policyVersion)
	})
	policy := last.Endpoint().TrafficPolicy
	for _, h := range s.pools[key] {
		if h.policyVersion = last.policyVersion; h.Endpoint().TrafficPolicy != policy {
			ep := *h.Endpoint()
			ep.TrafficPolicy = policy
			h.pooled.Store(&ep)
		}
	}
}

// OnResponsiveness makes callers that wait for an agent choose again.
func (s *Server) OnResponsiveness(*tunnel.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signalChange()
}

// signalChange wakes the callers that wait for an agent. mu must be held.
func (s *Server) signalChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) hasMember(t *session, endpointID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.members[endpointID]
	return h != nil && h.session == t
}

// removeMember removes the session's member with this endpoint.
func (s *Server) removeMember(t *session, endpointID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.members[endpointID]; h != nil && h.session == t {
		s.dropMember(h)
	}
}

// dropMember removes a member. mu must be held.
func (s *Server) dropMember(h *Member) {
	delete(s.members, h.endpoint.ID)
	key := poolKeyOf(&h.endpoint)
	removeFrom(s.pools, key, h)
	removeFrom(s.public, publicAddress{key.host, key.port}, h)
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

func errOffline(endpointID string, cause error) error {
	return &account.Error{Code: account.CodeEndpointOffline, Msg: fmt.Sprintf("endpoint %s is offline", endpointID),
		Cause: cause}
}
