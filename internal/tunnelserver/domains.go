// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// HostReader says which hosts of the public binding an account may have now.
type HostReader interface {
	GrantedHosts(ctx context.Context, accountID string, hosts []string) (map[string]bool, error)
}

// endUngranted ends the sessions that hold a public endpoint whose domain is no longer granted, and
// with them its live connections. Such an agent comes back with what else it serves, and is told
// why it gets this endpoint no more; a new grant brings it back without anybody's doing.
func (s *Server) endUngranted(ctx context.Context) error {
	public := s.publicHoldings()
	if len(public) == 0 || s.opt.Hosts == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for accountID, held := range public {
		hosts := make([]string, len(held))
		for i, h := range held {
			hosts[i] = h.endpoint.Host
		}
		granted, err := s.opt.Hosts.GrantedHosts(ctx, accountID, hosts)
		if err != nil {
			return err
		}
		for _, h := range held {
			if granted[h.endpoint.Host] || s.stopped(h.session) {
				continue
			}
			s.log.Info("session ended: the domain of its endpoint is no longer granted", "session", h.session.id, "account",
				accountID, "url", h.endpoint.URL)
			s.evict(h.session, tunnel.CodeUnavailable, "the domain of "+h.endpoint.URL+" is no longer granted to this account",
				account.SessionEnd{})
		}
	}
	return nil
}

// publicHoldings returns the holdings of public endpoints by account.
func (s *Server) publicHoldings() map[string][]*Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	var public map[string][]*Member
	for _, h := range s.holdings {
		if h.endpoint.Bindings[0] == account.BindingPublic {
			if public == nil {
				public = make(map[string][]*Member)
			}
			public[h.session.accountID] = append(public[h.session.accountID], h)
		}
	}
	return public
}
