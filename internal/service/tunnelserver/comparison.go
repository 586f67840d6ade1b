// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Compare compares all sessions with the store: authtokens, operators and granted domains, and with
// several servers what the sessions hold.
func (s *Server) Compare(ctx context.Context) error {
	return errors.Join(s.compareAccess(ctx, ""), s.compareHoldings(ctx))
}

// ApplyAccess ends the account's sessions whose authtoken, operator or domain no longer admits them.
// It returns when no new stream reaches them.
func (s *Server) ApplyAccess(ctx context.Context, accountID string) error {
	return s.compareAccess(ctx, accountID)
}

func (s *Server) compareAccess(ctx context.Context, accountID string) error {
	s.comparing.Lock()
	defer s.comparing.Unlock()
	return errors.Join(s.endRevoked(ctx, accountID), s.endUngranted(ctx, accountID))
}

// compareHoldings reads what those sessions hold whose version in the store is not that of their
// members here, and ends those that are over. It costs one query for 500 sessions. After a failover
// of the database it reads what each holds: numbers of versions may be used again.
func (s *Server) compareHoldings(ctx context.Context) error {
	if !s.replicated() {
		return nil
	}
	failedOver, err := s.correctLegs(ctx)
	if err != nil {
		return err
	}
	have := s.holdingsVersions()
	if len(have) == 0 {
		return nil
	}
	read, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	stored, err := s.opt.Legs.HoldingsVersions(read, slices.Sorted(maps.Keys(have)))
	if err != nil {
		return err
	}
	var differ []string
	for id, version := range have {
		if now, live := stored[id]; !live || now != version || failedOver {
			differ = append(differ, id)
		}
	}
	slices.Sort(differ)
	return s.ApplySessions(ctx, differ, tunnel.CodeUnavailable, "the session has ended")
}

// holdingsVersions returns the version of the members of each agent's session here.
func (s *Server) holdingsVersions() map[string]account.HoldingsVersion {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := make(map[string]account.HoldingsVersion)
	for id, t := range s.sessions {
		if t.isStoredLocked() {
			versions[id] = account.HoldingsVersion{}
		}
	}
	for _, h := range s.members {
		if v, stored := versions[h.session.id]; stored {
			v.Endpoints, v.EndpointSeq = v.Endpoints+1, max(v.EndpointSeq, h.version.Seq)
			versions[h.session.id] = v
		}
	}
	for _, tunnels := range s.tunnels {
		for _, h := range tunnels {
			if v, stored := versions[h.session.id]; stored {
				v.Tunnels, v.TunnelID = v.Tunnels+1, max(v.TunnelID, h.endpoint.ID)
				versions[h.session.id] = v
			}
		}
	}
	return versions
}
