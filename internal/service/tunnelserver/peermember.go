// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Holders returns the members of local sessions that the query asks for and to which streams can be
// opened; those of a public address in the order of their binds.
func (s *Server) Holders(q peers.Query) []peers.Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	members := s.pools[poolKey{q.AccountID, q.Binding, q.Scheme, q.Host, q.Port}]
	switch {
	case len(q.Labels) > 0:
		members = s.tunnels[q.AccountID]
	case q.AccountID == "" && q.Binding == account.BindingPublic:
		members = s.public[publicAddress{q.Host, q.Port}]
	}
	var holders []peers.Holder
	for _, h := range members {
		if !account.HasLabels(h.labels, q.Labels) || !h.session.tun.CanOpen() {
			continue
		}
		_, unresponsive := h.session.tun.Unresponsive()
		holders = append(holders, peers.Holder{Endpoint: *h.Endpoint(), Connections: h.conns,
			Unresponsive: unresponsive, Asked: h.asked})
	}
	return holders
}

// OpenMember opens a stream to the agent of an endpoint or labelled tunnel of the account, by its
// id, as Member.Open does. Only local sessions count. The stream counts as a connection, as one that
// Choose counted, until release is called, which must be called unless there is an error.
func (s *Server) OpenMember(
	ctx context.Context, accountID, id string, h tunnel.OpenHeader,
) (st *tunnel.Stream, release func(), err error) {
	member := s.memberOf(accountID, id)
	if member == nil {
		return nil, nil, errOffline(id, nil)
	}
	s.mu.Lock()
	s.countConn(member)
	s.mu.Unlock()
	if st, err = member.Open(ctx, h); err != nil {
		member.Release()
		return nil, nil, err
	}
	return st, member.Release, nil
}

// ReportLine sends a request line to the agent of the line's endpoint; it never blocks.
func (s *Server) ReportLine(accountID string, line tunnel.RequestLine) {
	if member := s.memberOf(accountID, line.EndpointID); member != nil {
		member.Report(line)
	}
}

// memberOf returns the account's member with the id of an endpoint or labelled tunnel, or nil.
func (s *Server) memberOf(accountID, id string) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.members[id]; h != nil && h.session.accountID == accountID {
		return h
	}
	for _, h := range s.tunnels[accountID] {
		if h.endpoint.ID == id {
			return h
		}
	}
	return nil
}
