// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Holding is an endpoint in the hands of a live session. A new bind of the endpoint makes a new Holding, so the pointer tells one bind from
// the next.
type Holding struct {
	endpoint account.Endpoint
	session  *session
	ctx      context.Context
	cancel   context.CancelFunc
}

// Endpoint returns the endpoint as its agent bound it. Callers do not change it.
func (h *Holding) Endpoint() *account.Endpoint { return &h.endpoint }

// Context is done when the session no longer holds the endpoint: it was given back, taken over, or the session ended.
func (h *Holding) Context() context.Context { return h.ctx }

// Open opens a stream to the agent, without waiting for its answer. CodeEndpointOffline when that cannot be done.
func (h *Holding) Open(ctx context.Context, header tunnel.OpenHeader) (*tunnel.Stream, error) {
	if h.ctx.Err() != nil {
		return nil, offline(h.endpoint.ID, nil)
	}
	st, err := h.session.tun.Open(ctx, header)
	if err != nil {
		return nil, offline(h.endpoint.ID, err)
	}
	return st, nil
}

// Report shows a request on the agent's screen; it never blocks.
func (h *Holding) Report(line tunnel.RequestLine) { h.session.tun.SendRequestLine(line) }

// Holder returns who holds the endpoint now; CodeEndpointOffline when nobody does, or only an agent that is about to stop.
func (s *Server) Holder(endpointID string) (*Holding, error) {
	s.mu.Lock()
	h := s.holdings[endpointID]
	s.mu.Unlock()
	if h == nil || drainsNow(h.session.tun) {
		return nil, offline(endpointID, nil)
	}
	return h, nil
}

// hold enters the result of a bind. The previous holder loses the endpoint at once; the session that it was taken from is closed, without a
// STOP: it is an earlier life of the process that resumes.
func (s *Server) hold(t *session, r *account.BindResult) {
	h := &Holding{endpoint: r.Endpoint, session: t}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	if old := s.holdings[r.Endpoint.ID]; old != nil {
		old.cancel()
	}
	s.holdings[r.Endpoint.ID] = h
	from := s.sessions[r.TookFrom]
	s.mu.Unlock()
	if from != nil && from != t && from.tun != nil {
		s.close(from.tun)
	}
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
		delete(s.holdings, endpointID)
		h.cancel()
	}
}

func offline(endpointID string, cause error) error {
	return &account.Error{Code: account.CodeEndpointOffline, Msg: fmt.Sprintf("endpoint %s is offline", endpointID), Cause: cause}
}

func drainsNow(t *tunnel.Session) bool {
	select {
	case <-t.PeerDraining():
		return true
	default:
		return false
	}
}
