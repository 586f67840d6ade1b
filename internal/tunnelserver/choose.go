// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// place is a URL of an account: what the members of a pool share, and all that a connection is chosen by.
type place struct {
	accountID, binding, scheme, host string
	port                             int
}

func placeOf(ep *account.Endpoint) place {
	return place{ep.AccountID, ep.Bindings[0], ep.Scheme, ep.Host, ep.Port}
}

// Choose returns who serves a new connection to the endpoint's URL: of those online the one with the fewest connections, of several such the
// one that was not chosen for the longest time. The connection counts until Release. CodeEndpointOffline when nobody holds the URL, or only
// agents that are about to stop.
//
// Those that were tried already are left out. An agent of the URL that the last life of this server had, and that may be on its way back, is waited
// for, unless one was tried.
func (s *Server) Choose(ctx context.Context, ep *account.Endpoint, tried ...*Holding) (*Holding, error) {
	h, bound := s.choose(ep, tried)
	if h != nil {
		return h, nil
	}
	if len(tried) > 0 {
		return nil, offline(ep.ID, nil)
	}
	wait, err := s.returnsWithin(ctx, ep)
	if wait <= 0 || err != nil {
		return nil, offline(ep.ID, err)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-bound:
		case <-timer.C:
			return nil, offline(ep.ID, nil)
		case <-ctx.Done():
			return nil, offline(ep.ID, ctx.Err())
		}
		if h, bound = s.choose(ep, nil); h != nil {
			return h, nil
		}
	}
}

const (
	// returnTime is how long agents may take to come back after a start of the server: their longest pause between two attempts, and an attempt.
	returnTime = 12 * time.Second
	// holdTime is how long one connection waits for that.
	holdTime = 3 * time.Second
	// stopTime is how long before its next start a server may have stopped for that to be a restart.
	stopTime = time.Minute
)

// returnsWithin says for how long an agent of the endpoint's URL is worth waiting for: not at all, unless one was lost when this server's last
// life ended. That need not be the endpoint's own: a stream may name a member of a pool that died long before.
func (s *Server) returnsWithin(ctx context.Context, ep *account.Endpoint) (time.Duration, error) {
	wait := min(holdTime, time.Until(s.started.Add(returnTime)))
	if wait <= 0 || s.lostByRestart(ep) {
		return wait, nil
	}
	if !ep.PoolingEnabled {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	page, err := s.opt.Endpoints.ListEndpoints(ctx, ep.AccountID, account.EndpointFilter{Binding: ep.Bindings[0], URL: ep.URL}, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return 0, err
	}
	for i := range page.Endpoints {
		if s.lostByRestart(&page.Endpoints[i]) {
			return wait, nil
		}
	}
	return 0, nil
}

func (s *Server) lostByRestart(ep *account.Endpoint) bool {
	return ep.OfflineSince != nil && !ep.OfflineSince.After(s.started) && !ep.OfflineSince.Before(s.started.Add(-stopTime))
}

// choose returns nil where nobody is online, and what is closed by the next bind.
func (s *Server) choose(ep *account.Endpoint, tried []*Holding) (*Holding, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *Holding
	for _, h := range s.places[placeOf(ep)] {
		if h.session.tun.CanOpen() && !slices.Contains(tried, h) && (best == nil || h.before(best)) {
			best = h
		}
	}
	if best == nil {
		return nil, s.bound
	}
	s.take(best)
	return best, nil
}

// take counts a connection to h. The caller holds Server.mu.
func (s *Server) take(h *Holding) {
	s.turns++
	h.open++
	h.chosen = s.turns
}

// before says whether h takes the next connection rather than o. The caller holds Server.mu.
func (h *Holding) before(o *Holding) bool {
	return cmp.Or(cmp.Compare(h.open, o.open), cmp.Compare(h.chosen, o.chosen)) < 0
}

// Release says that a connection that Choose gave has ended.
func (h *Holding) Release() {
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	h.open--
}

// Online returns the endpoint of an account at a URL of the binding, as its agent, or one of its pool's, bound it; nil when nobody is online there.
func (s *Server) Online(accountID, binding string, u account.EndpointURL) *account.Endpoint {
	return s.anyAt(place{accountID, binding, u.Scheme, u.Host, u.Port})
}

// anyAt returns an endpoint that is online at the place, or nil.
func (s *Server) anyAt(at place) *account.Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	if here := s.places[at]; len(here) > 0 {
		return here[0].Endpoint()
	}
	return nil
}
