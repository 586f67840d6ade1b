// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// publish makes the other servers compare sessions of an account with the store, and waits until
// they have, or ctx is done. The clients of sessions that are over are told code and msg; without a
// code, the sessions are closed, and without either they are left to the next comparison.
func (s *Server) publish(ctx context.Context, accountID string, code tunnel.Code, msg string, sessionIDs ...string) {
	if s.opt.Publish != nil {
		s.opt.Publish(ctx, []string{accountID}, sessionIDs, code, msg)
	}
}

const (
	// bindPublishTimeout bounds how long a bind waits for the other servers.
	bindPublishTimeout = 500 * time.Millisecond
	// nextPublishTimeout is bindPublishTimeout while a server has not answered an earlier call: the
	// others answer within it.
	nextPublishTimeout = 50 * time.Millisecond
)

// bindEffect is what a bind has ended or changed.
type bindEffect struct {
	from    string   // the session that had it; "" = none
	rebound bool     // the session had bound it already
	policy  bool     // the traffic policy was replaced
	pool    []string // other sessions with members of its pool, which it has changed
}

// publishBind ends the session that a bind of t has taken over, and tells the other servers. It
// waits for them if the bind ended or changed something. New endpoints need not be known: a server
// that does not know one asks the others.
func (s *Server) publishBind(ctx context.Context, t *session, e bindEffect) {
	s.endTakenOver(ctx, e.from, t)
	switch {
	case s.opt.Publish == nil:
	case e.from != "" && e.from != t.id:
		s.publishBriefly(t.accountID, takenOver+t.id, e.policy, append(e.pool, e.from, t.id)...)
	case e.rebound || e.policy || len(e.pool) > 0:
		s.publishBriefly(t.accountID, "", e.policy, append(e.pool, t.id)...)
	default:
		s.publishLater(t)
	}
}

// publishBriefly is publish, and PublishPolicy if policy is set, that waits for bindPublishTimeout
// at most, and for nextPublishTimeout while other calls have waited in vain: an agent that comes
// from a server that has died must not wait until that server is known to be dead. One that lives
// and did not answer compares with the store.
func (s *Server) publishBriefly(accountID, msg string, policy bool, sessionIDs ...string) {
	told := make(chan struct{})
	s.closing.Go(func() {
		defer close(told)
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		var both sync.WaitGroup
		if policy && s.opt.PublishPolicy != nil {
			both.Go(func() { s.opt.PublishPolicy(ctx, accountID) })
		}
		s.publish(ctx, accountID, "", msg, sessionIDs...)
		both.Wait()
	})
	wait := bindPublishTimeout
	if s.unanswered.Load() > 0 {
		wait = nextPublishTimeout
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case <-told:
	case <-timeout.C:
		s.unanswered.Add(1)
		s.closing.Go(func() { <-told; s.unanswered.Add(-1) })
	}
}

// publishLater tells the other servers of a session's bind, with those of other sessions.
func (s *Server) publishLater(t *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpublished[t.id] = t.accountID
	if !s.publishing {
		s.publishing = true
		s.closing.Go(s.publishPending)
	}
}

func (s *Server) publishPending() {
	for {
		s.mu.Lock()
		ids := slices.Sorted(maps.Keys(s.unpublished))
		accountIDs := slices.Compact(slices.Sorted(maps.Values(s.unpublished)))
		clear(s.unpublished)
		s.publishing = len(ids) > 0
		s.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		s.opt.Publish(ctx, accountIDs, ids, "", "")
		cancel()
	}
}

// poolSessions returns the sessions of the other endpoints at the URL, if the bind may have
// replaced their traffic policy.
func (s *Server) poolSessions(ctx context.Context, r *account.BindResult, b tunnel.Bind) []string {
	if s.opt.Publish == nil || !b.ReplacePoolPolicy && (b.Owner == nil || !r.PolicyReplaced) {
		return nil
	}
	ep := &r.Endpoint
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
