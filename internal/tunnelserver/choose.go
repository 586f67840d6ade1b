// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// place is a URL of an account: what the members of a pool share, and all that a connection is
// chosen by.
type place struct {
	accountID, binding, scheme, host string
	port                             int
}

func placeOf(ep *account.Endpoint) place {
	return place{ep.AccountID, ep.Bindings[0], ep.Scheme, ep.Host, ep.Port}
}

// Choose returns who serves a new connection to the endpoint's URL: of those online that respond
// the one with the fewest connections, of several such the one that was not chosen for the longest
// time. The connection counts until Release. CodeEndpointOffline when nobody holds the URL, or only
// agents that are about to stop; CodeAgentSilent when all of them are unresponsive.
//
// Those that were tried already are left out. Unless one was tried, an agent is waited for that the
// last life of this server had, and that may be on its way back, and one that became unresponsive a
// moment ago.
func (s *Server) Choose(ctx context.Context, ep *account.Endpoint, tried ...*Member) (*Member, error) {
	look := func(tried []*Member) choice { return s.choose(ep, tried) }
	c := look(tried)
	if c.best != nil || len(tried) > 0 {
		return c.best, c.missing(ep.ID, nil)
	}
	wait, err := time.Duration(0), error(nil)
	if c.unresponsive.IsZero() {
		wait, err = s.returnsWithin(ctx, ep)
	}
	if err != nil {
		return nil, offline(ep.ID, err)
	}
	c, err = c.await(ctx, wait, look)
	return c.best, c.missing(ep.ID, err)
}

// choice is what choosing came to.
type choice struct {
	best         *Member         // nil: there is none
	unresponsive time.Time       // since when the last of those is that do not respond; zero = there are none
	changed      <-chan struct{} // closed when another choice may come to something else
}

// await looks again whenever something changes, for as long as wait, or as an agent that does not
// respond is worth waiting for.
func (c choice) await(ctx context.Context, wait time.Duration, look func(tried []*Member) choice) (choice, error) {
	for began := time.Now(); c.best == nil; c = look(nil) {
		left := time.Until(began.Add(wait))
		if !c.unresponsive.IsZero() {
			left = max(left, time.Until(c.unresponsive.Add(holdTime)))
		}
		if left <= 0 {
			return c, nil
		}
		timer := time.NewTimer(left)
		select {
		case <-c.changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return c, ctx.Err()
		}
		timer.Stop()
	}
	return c, nil
}

// missing is why there is no best.
func (c choice) missing(endpointID string, cause error) error {
	switch {
	case c.best != nil:
		return nil
	case c.unresponsive.IsZero():
		return offline(endpointID, cause)
	}
	return unresponsive("the agent of endpoint " + endpointID + " does not respond")
}

func unresponsive(msg string) error {
	return &account.Error{Code: account.CodeAgentSilent, Msg: msg, Cause: tunnel.ErrUnresponsive}
}

const (
	// returnTime is how long agents may take to come back after a start of the server: their longest
	// pause between two attempts, and an attempt.
	returnTime = 12 * time.Second
	// holdTime is how long one connection waits for that.
	holdTime = 3 * time.Second
	// stopTime is how long before its next start a server may have stopped for that to be a restart.
	stopTime = time.Minute
)

// returnsWithin says for how long an agent of the endpoint's URL is worth waiting for: not at all,
// unless one was lost when this server's last life ended. That need not be the endpoint's own: a
// stream may name a member of a pool that died long before.
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
	page, err := s.opt.Endpoints.ListEndpoints(ctx, ep.AccountID,
		account.EndpointFilter{Binding: ep.Bindings[0], URL: ep.URL}, account.Page{Limit: account.MaxPageLimit})
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

func (s *Server) choose(ep *account.Endpoint, tried []*Member) choice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chooseOf(s.places[placeOf(ep)], nil, tried)
}

// chooseOf chooses one of the holdings that have the labels and counts a connection to it. The
// caller holds mu.
func (s *Server) chooseOf(all []*Member, labels map[string]string, tried []*Member) choice {
	c := choice{changed: s.bound}
	for _, h := range all {
		if !account.HasLabels(h.labels, labels) || slices.Contains(tried, h) || !h.session.tun.CanOpen() {
			continue
		}
		if since, yes := h.session.tun.Unresponsive(); yes {
			if since.After(c.unresponsive) {
				c.unresponsive = since
			}
		} else if c.best == nil || h.before(c.best) {
			c.best = h
		}
	}
	if c.best != nil {
		s.take(c.best)
	}
	return c
}

// take counts a connection to h. The caller holds Server.mu.
func (s *Server) take(h *Member) {
	s.turns++
	h.open++
	h.chosen = s.turns
}

// before says whether h takes the next connection rather than o. The caller holds Server.mu.
func (h *Member) before(o *Member) bool {
	return cmp.Or(cmp.Compare(h.open, o.open), cmp.Compare(h.chosen, o.chosen)) < 0
}

// Release says that a connection that Choose gave has ended.
func (h *Member) Release() {
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	h.open--
}

// Online returns the endpoint of an account at a URL of the binding, as its agent, or one of its
// pool's, bound it; nil when nobody is online there.
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
