// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Query asks for the members of one URL (AccountID to Port), of labels (AccountID and Labels), or of
// a public address (Host and Port with the public binding, and no AccountID).
type Query struct {
	AccountID, Binding, Scheme, Host string
	Port                             int
	Labels                           map[string]string
}

// Holder is a member as other servers learn of it.
type Holder struct {
	Endpoint     account.Endpoint // with the traffic policy of its pool
	Connections  int              // that Choose counted
	Unresponsive bool
	Asked        time.Time // of the bind
}

// Holders returns the members of local sessions that the query asks for and to which streams can be
// opened; those of a public address in the order of their binds.
func (s *Server) Holders(q Query) []Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	members := s.pools[poolKey{q.AccountID, q.Binding, q.Scheme, q.Host, q.Port}]
	switch {
	case len(q.Labels) > 0:
		members = s.tunnels[q.AccountID]
	case q.AccountID == "" && q.Binding == account.BindingPublic:
		members = s.public[publicAddress{q.Host, q.Port}]
	}
	var holders []Holder
	for _, h := range members {
		if !account.HasLabels(h.labels, q.Labels) || !h.session.tun.CanOpen() {
			continue
		}
		_, unresponsive := h.session.tun.Unresponsive()
		holders = append(holders, Holder{Endpoint: *h.Endpoint(), Connections: h.conns, Unresponsive: unresponsive,
			Asked: h.asked})
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
