// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// endUngranted ends the sessions that have bound a public endpoint whose domain is no longer
// granted, and with them its live connections. The agent reconnects with its other endpoints, and
// the bind of this one is refused until the domain is granted again. onlyID restricts it to an
// account, unless it is "".
func (s *Server) endUngranted(ctx context.Context, onlyID string) error {
	public := s.publicMembers()
	if len(public) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for accountID, members := range public {
		if onlyID != "" && accountID != onlyID {
			continue
		}
		hosts := make([]string, len(members))
		for i, h := range members {
			hosts[i] = h.endpoint.Host
		}
		granted, err := s.opt.Store.GrantedHosts(ctx, accountID, hosts)
		if err != nil {
			return err
		}
		for _, h := range members {
			if granted[h.endpoint.Host] || s.isStopping(h.session) {
				continue
			}
			s.log.Info("session ended: the domain of its endpoint is no longer granted", "session", h.session.id,
				"account",
				accountID, "url", h.endpoint.URL)
			s.evict(h.session, tunnel.CodeUnavailable,
				"the domain of "+h.endpoint.URL+" is no longer granted to this account",
				account.SessionEnd{})
		}
	}
	return nil
}

// publicMembers returns the members with public endpoints by account.
func (s *Server) publicMembers() map[string][]*Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	var public map[string][]*Member
	for _, h := range s.members {
		if h.endpoint.Bindings[0] == account.BindingPublic {
			if public == nil {
				public = make(map[string][]*Member)
			}
			public[h.session.accountID] = append(public[h.session.accountID], h)
		}
	}
	return public
}
