// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"

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
func (s *Server) Choose(ep *account.Endpoint) (*Holding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *Holding
	for _, h := range s.places[placeOf(ep)] {
		if h.session.tun.CanOpen() && (best == nil || h.before(best)) {
			best = h
		}
	}
	if best == nil {
		return nil, offline(ep.ID, nil)
	}
	s.turns++
	best.open++
	best.chosen = s.turns
	return best, nil
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

// anyAt returns an endpoint that is online at the place, or nil.
func (s *Server) anyAt(at place) *account.Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	if here := s.places[at]; len(here) > 0 {
		return &here[0].endpoint
	}
	return nil
}
