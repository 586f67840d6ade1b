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
	if s.replicated() {
		s.opt.Replicas.PublishSessions(ctx, []string{accountID}, sessionIDs, code, msg)
	}
}

const (
	// bindPublishTimeout bounds how long a bind waits for the other servers.
	bindPublishTimeout = 500 * time.Millisecond
	// nextPublishTimeout is bindPublishTimeout while a server has not answered an earlier call: the
	// others answer within it.
	nextPublishTimeout = 50 * time.Millisecond
	// maxCollectTime is how long changes wait at most for the answers to an earlier publication, to
	// be told together. While a server has not answered an earlier call, they do not wait.
	maxCollectTime = bindPublishTimeout / 2
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
	case !s.replicated():
	case e.from != "" && e.from != t.id:
		s.publishBriefly(t.accountID, takenOver+t.id, e.policy, append(e.pool, e.from, t.id)...)
	case e.rebound || e.policy || len(e.pool) > 0:
		s.publishBriefly(t.accountID, "", e.policy, append(e.pool, t.id)...)
	default:
		s.publishLater(t)
	}
}

// publishBriefly tells the other servers, also of a replaced traffic policy if policy is set, and
// waits for bindPublishTimeout at most, and for nextPublishTimeout while other calls have waited in
// vain: an agent that comes from a server that has died must not wait until that server is known to
// be dead. One that lives and did not answer compares with the store.
func (s *Server) publishBriefly(accountID, msg string, policy bool, sessionIDs ...string) {
	answered := s.publishTogether(publicationKind{accountID, msg, policy}, sessionIDs...)
	wait := s.publishWait
	if s.unanswered.Load() > 0 {
		wait = nextPublishTimeout
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case <-answered:
	case <-timeout.C:
		s.unanswered.Add(1)
		s.closing.Go(func() { <-answered; s.unanswered.Add(-1) })
	}
}

// publicationKind is what calls have in common that share a publication.
type publicationKind struct {
	accountID, msg string
	policy         bool
}

// publication tells the other servers of several changes at once: each of them reads everything
// that a session holds, and an agent may bind thousands of endpoints again.
type publication struct {
	sessionIDs []string      // until it begins
	answered   chan struct{} // closed when the others have answered
}

// publishTogether tells the other servers of the sessions. While an earlier publication of the kind
// is unanswered, they are collected. The channel is closed when the others have answered.
func (s *Server) publishTogether(kind publicationKind, sessionIDs ...string) (answered <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.nextPublications[kind]
	if p == nil {
		p = &publication{answered: make(chan struct{})}
		s.nextPublications[kind] = p
		earlier := s.publications[kind]
		s.closing.Go(func() {
			defer close(p.answered)
			if earlier != nil && s.unanswered.Load() == 0 {
				earlier.await(maxCollectTime)
			}
			s.send(kind, p)
		})
	}
	p.sessionIDs = append(p.sessionIDs, sessionIDs...)
	return p.answered
}

// await waits until the publication is answered, or d has passed.
func (p *publication) await(d time.Duration) {
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case <-p.answered:
	case <-timeout.C:
	}
}

// send sends a publication, which no further change joins.
func (s *Server) send(kind publicationKind, p *publication) {
	s.mu.Lock()
	delete(s.nextPublications, kind)
	s.publications[kind] = p
	s.mu.Unlock()
	slices.Sort(p.sessionIDs)
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	var both sync.WaitGroup
	if kind.policy {
		both.Go(func() { s.opt.Replicas.PublishPolicy(ctx, kind.accountID) })
	}
	s.publish(ctx, kind.accountID, "", kind.msg, slices.Compact(p.sessionIDs)...)
	both.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.publications[kind] == p {
		delete(s.publications, kind)
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
		s.opt.Replicas.PublishSessions(ctx, accountIDs, ids, "", "")
		cancel()
	}
}

// poolSessions returns the sessions of the other endpoints at the URL, if the bind may have
// replaced their traffic policy.
func (s *Server) poolSessions(ctx context.Context, r *account.BindResult, b tunnel.Bind) []string {
	if !s.replicated() || !b.ReplacePoolPolicy && (b.Owner == nil || !r.PolicyReplaced) {
		return nil
	}
	ep := &r.Endpoint
	page, err := s.opt.Store.ListEndpoints(ctx, ep.AccountID,
		account.EndpointFilter{Bindings: ep.Bindings, URL: ep.URL}, account.Page{Limit: account.MaxPageLimit})
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
