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
	asked   time.Time // when the bind was asked of the store
	ctx     context.Context
	cancel  context.CancelFunc

	labels     map[string]string // of a labelled tunnel
	resumeHash []byte            // of a labelled tunnel; the store has those of endpoints

	// guarded by Server.mu
	conns         int    // connections that Choose counted and that are not released
	lastChosen    uint64 // chooseCount when it was last chosen; 0 = never
	policyVersion int64  // resource version of the bind whose traffic policy applies
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

// addMember adds the result of a bind that was asked of the store at this time. The endpoint's
// previous member is removed at once. The session from which the bind took the endpoint is closed
// without a STOP: it is an earlier connection of the same process.
func (s *Server) addMember(t *session, r *account.BindResult, asked time.Time) {
	h := &Member{server: s, endpoint: r.Endpoint, session: t, asked: asked,
		policyVersion: r.Endpoint.ResourceVersion.Seq}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	if old := s.members[r.Endpoint.ID]; old != nil {
		s.dropMember(old)
	}
	s.members[r.Endpoint.ID] = h
	key := poolKeyOf(&h.endpoint)
	s.pools[key] = append(s.pools[key], h)
	if key.binding == account.BindingPublic {
		at := publicAddress{key.host, key.port}
		s.public[at] = append(s.public[at], h)
	}
	s.syncPoolPolicy(key)
	s.signalChange()
	from := s.sessions[r.ReplacedSessionID]
	s.mu.Unlock()
	s.endTakenOver(from, t)
}

// holds reports whether the session has bound the endpoint and still has it.
func (s *Server) holds(t *session, endpointID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.members[endpointID]
	return h != nil && h.session == t
}

// endTakenOver closes the session from, which may be nil, because its agent connected again as t.
func (s *Server) endTakenOver(from, t *session) {
	if from == nil || from == t || from.tun == nil {
		return
	}
	s.setEndReason(from, account.SessionEnd{Reason: "its agent connected again, as " + t.id,
		PrincipalID: t.credentialID})
	s.closing.Go(func() { _ = from.tun.Close() })
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
			ep := h.endpoint
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
