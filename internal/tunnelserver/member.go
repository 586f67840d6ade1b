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

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Member is an endpoint or a labelled tunnel that a live session has bound: one member of the pool
// of its URL or labels. A new bind of the endpoint makes a new Member, so the pointer tells one
// bind from the next.
type Member struct {
	server   *Server
	endpoint account.Endpoint
	// endpoint with the policy that a later member has given the pool; nil = none has
	pooled  atomic.Pointer[account.Endpoint]
	session *session
	ctx     context.Context
	cancel  context.CancelFunc

	labels     map[string]string // of a labelled tunnel
	resumeHash []byte            // of a labelled tunnel; the store has those of endpoints

	// guarded by Server.mu
	open     int    // connections that Choose gave it and that are not released
	chosen   uint64 // when Choose took it last, in turns of the server; 0 = never
	policyAt int64  // the version of the bind whose traffic policy holds
}

// Endpoint returns the endpoint as its agent bound it, with the traffic policy of its pool. Callers
// do not change it.
func (h *Member) Endpoint() *account.Endpoint {
	if ep := h.pooled.Load(); ep != nil {
		return ep
	}
	return &h.endpoint
}

// Context is done when the session no longer holds the endpoint: it was given back, taken over, or
// the session ended.
func (h *Member) Context() context.Context { return h.ctx }

// Open opens a stream to the agent, without waiting for its answer. CodeEndpointOffline when that
// cannot be done, CodeAgentSilent when the agent does not respond.
func (h *Member) Open(ctx context.Context, header tunnel.OpenHeader) (*tunnel.Stream, error) {
	if h.ctx.Err() != nil {
		return nil, offline(h.endpoint.ID, nil)
	}
	st, err := h.session.tun.Open(ctx, header)
	switch {
	case errors.Is(err, tunnel.ErrUnresponsive):
		return nil, unresponsive("the agent of endpoint " + h.endpoint.ID + " does not respond")
	case err != nil:
		return nil, offline(h.endpoint.ID, err)
	}
	return st, nil
}

// Report shows a request on the agent's screen; it never blocks.
func (h *Member) Report(line tunnel.RequestLine) { h.session.tun.SendRequestLine(line) }

// hold enters the result of a bind. The previous holder loses the endpoint at once; the session
// that it was taken from is closed, without a STOP: it is an earlier life of the process that
// resumes.
func (s *Server) hold(t *session, r *account.BindResult) {
	h := &Member{server: s, endpoint: r.Endpoint, session: t, policyAt: r.Endpoint.ResourceVersion.Seq}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	if old := s.holdings[r.Endpoint.ID]; old != nil {
		s.drop(old)
	}
	s.holdings[r.Endpoint.ID] = h
	at := placeOf(&h.endpoint)
	s.places[at] = append(s.places[at], h)
	s.agree(at)
	s.announce()
	from := s.sessions[r.ReplacedSessionID]
	s.mu.Unlock()
	if from != nil && from != t && from.tun != nil {
		s.endsFor(from, takenOver(t))
		s.close(from.tun)
	}
}

// takenOver is how a session ends of which t is the next life.
func takenOver(t *session) account.SessionEnd {
	return account.SessionEnd{Reason: "its agent connected again, as " + t.id, PrincipalID: t.credentialID}
}

// agree gives all members of a pool the traffic policy of the bind that the store took last: it may
// have replaced theirs. The caller holds mu.
func (s *Server) agree(at place) {
	last := slices.MaxFunc(s.places[at], func(a, b *Member) int { return cmp.Compare(a.policyAt, b.policyAt) })
	policy := last.Endpoint().TrafficPolicy
	for _, h := range s.places[at] {
		if h.policyAt = last.policyAt; h.Endpoint().TrafficPolicy != policy {
			ep := h.endpoint
			ep.TrafficPolicy = policy
			h.pooled.Store(&ep)
		}
	}
}

// OnResponsiveness lets those who wait for an agent look whether it responds again.
func (s *Server) OnResponsiveness(*tunnel.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announce()
}

// announce wakes those who wait for an agent. The caller holds mu.
func (s *Server) announce() {
	close(s.bound)
	s.bound = make(chan struct{})
}

func (s *Server) holds(t *session, endpointID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holdings[endpointID]
	return h != nil && h.session == t
}

// release takes the endpoint from the session.
func (s *Server) release(t *session, endpointID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdings[endpointID]; h != nil && h.session == t {
		s.drop(h)
	}
}

// drop ends a holding. The caller holds mu.
func (s *Server) drop(h *Member) {
	delete(s.holdings, h.endpoint.ID)
	at := placeOf(&h.endpoint)
	s.places[at] = slices.DeleteFunc(s.places[at], func(o *Member) bool { return o == h })
	if len(s.places[at]) == 0 {
		delete(s.places, at)
	}
	h.cancel()
}

func offline(endpointID string, cause error) error {
	return &account.Error{Code: account.CodeEndpointOffline, Msg: fmt.Sprintf("endpoint %s is offline", endpointID),
		Cause: cause}
}
