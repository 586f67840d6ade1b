// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// publish makes the other servers compare the sessions with the store, and waits until they have,
// or ctx is done. The clients of sessions that are over are told code and msg; without a code, the
// sessions are closed, and without either they are left to the next comparison.
func (s *Server) publish(ctx context.Context, code tunnel.Code, msg string, sessionIDs ...string) {
	if s.opt.Publish != nil {
		s.opt.Publish(ctx, sessionIDs, code, msg)
	}
}

// bindPublishTimeout bounds how long a bind waits for the other servers.
const bindPublishTimeout = 500 * time.Millisecond

// publishBind ends the session from, which may be "", as taken over by t, and tells the other
// servers of a bind of t. It waits for them if the bind ended or changed something: another session,
// what t had bound before (rebound), or the pool of the sessions others. New endpoints need not be
// known: a server that does not know one asks the others.
func (s *Server) publishBind(ctx context.Context, t *session, from string, rebound bool, others ...string) {
	s.endTakenOver(ctx, from, t)
	switch {
	case s.opt.Publish == nil:
	case from != "" && from != t.id:
		s.publishBriefly(takenOver+t.id, append(others, from, t.id)...)
	case rebound || len(others) > 0:
		s.publishBriefly("", append(others, t.id)...)
	default:
		s.publishLater(t.id)
	}
}

// publishBriefly is publish that waits for bindPublishTimeout at most, and not at all while other
// calls have waited in vain: an agent that comes from a server that has died must not wait until
// that server is known to be dead. One that lives and did not answer compares with the store.
func (s *Server) publishBriefly(msg string, sessionIDs ...string) {
	told := make(chan struct{})
	s.closing.Go(func() {
		defer close(told)
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		s.publish(ctx, "", msg, sessionIDs...)
	})
	if s.unanswered.Load() > 0 {
		return
	}
	timeout := time.NewTimer(bindPublishTimeout)
	defer timeout.Stop()
	select {
	case <-told:
	case <-timeout.C:
		s.unanswered.Add(1)
		s.closing.Go(func() { <-told; s.unanswered.Add(-1) })
	}
}

// publishLater tells the other servers of a session's bind, with those of other sessions.
func (s *Server) publishLater(sessionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpublished[sessionID] = true
	if !s.publishing {
		s.publishing = true
		s.closing.Go(s.publishPending)
	}
}

func (s *Server) publishPending() {
	for {
		s.mu.Lock()
		ids := slices.Sorted(maps.Keys(s.unpublished))
		clear(s.unpublished)
		s.publishing = len(ids) > 0
		s.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		s.publish(ctx, "", "", ids...)
		cancel()
	}
}

// poolSessions returns the sessions of the endpoint's pool, if the bind has replaced the pool's
// traffic policy.
func (s *Server) poolSessions(ctx context.Context, ep *account.Endpoint, b tunnel.Bind) []string {
	if !b.ReplacePoolPolicy || s.opt.Publish == nil {
		return nil
	}
	page, err := s.opt.Store.ListEndpoints(ctx, ep.AccountID,
		account.EndpointFilter{Binding: ep.Bindings[0], URL: ep.URL}, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		s.log.Warn("the pool of an endpoint could not be read; its policy follows with the next comparison",
			"endpoint", ep.ID, "err", err)
		return nil
	}
	var ids []string
	for _, other := range page.Endpoints {
		if other.TunnelSession != nil && other.ID != ep.ID {
			ids = append(ids, other.TunnelSession.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
