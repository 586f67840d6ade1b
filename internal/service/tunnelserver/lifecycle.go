// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// storeTimeout bounds queries of the store outside a peer's own request.
const storeTimeout = 10 * time.Second

// Hello authenticates a session's first connection. An agent's token needs a bind rule, or is an
// API key of its cluster's exporter; a forwarder's needs a connect rule for its operator, which
// must be registered in the token's account, or for each URL that it calls without one.
func (s *Server) Hello(ctx context.Context, h tunnel.Hello, remote net.Addr) (tunnel.Welcome, error) {
	t, err := s.authenticator.authenticate(ctx, h)
	if err == nil {
		t.ip = hostOf(remote)
		err = s.admit(t)
	}
	return s.answerHello(h, t, remote, err)
}

// Join implements tunnel.Handler: it admits a connection of a session that began on another server,
// as a leg here. An agent's session is that of the row with the hash of its join secret; a
// forwarder is authenticated as by Hello.
func (s *Server) Join(ctx context.Context, h tunnel.Hello, remote net.Addr) (tunnel.Welcome, error) {
	t, err := s.join(ctx, h, remote)
	return s.answerHello(h, t, remote, err)
}

func (s *Server) join(ctx context.Context, h tunnel.Hello, remote net.Addr) (*session, error) {
	switch {
	case s.opt.Legs == nil || !account.ValidID(account.PrefixTunnelSession, h.SessionID):
		return nil, errUnknownSession()
	case s.isDraining():
		return nil, errDraining()
	}
	s.registry.joins.RLock()
	defer s.registry.joins.RUnlock()
	if s.hasEndedUnrecorded(h.SessionID) {
		return nil, errUnknownSession()
	}
	t, err := s.authenticator.authenticateJoin(ctx, h)
	if err == nil {
		t.id, t.ip, t.joined, t.stored = h.SessionID, hostOf(remote), true, true
		err = s.admit(t)
	}
	if err == nil {
		return t, nil
	}
	if t != nil && t.hello.Role == tunnel.RoleAgent { // the store has a leg here, which it has to forget
		s.addUnrecorded(t)
	}
	return nil, err
}

func errDraining() *tunnel.Error {
	return &tunnel.Error{Code: tunnel.CodeDraining, Msg: "the server is about to stop; try again in a moment"}
}

// answerHello counts the hello of a session and returns its answer: the refusal for an error.
func (s *Server) answerHello(h tunnel.Hello, t *session, remote net.Addr, err error) (tunnel.Welcome, error) {
	if err != nil {
		refusal := refusal(s.log, err)
		s.opt.Meter.CountHello(h.Role, string(refusal.Code))
		s.log.Debug("hello refused", "role", h.Role, "ip", hostOf(remote), "code", refusal.Code)
		return tunnel.Welcome{}, refusal
	}
	s.opt.Meter.CountHello(h.Role, "accepted")
	w := tunnel.Welcome{SessionID: t.id, AccountID: t.accountID, StoreID: s.opt.StoreID,
		ServerVersion: s.opt.Version, ReplicaID: s.opt.ReplicaID}
	if s.opt.Replicas != nil {
		w.Replicas = s.opt.Replicas.Count()
	}
	return w, nil
}

// Up records an agent's session, before its first bind. One that began on another server gets what
// it has bound there.
func (s *Server) Up(ts *tunnel.Session) {
	t, draining := s.start(ts)
	switch {
	case t == nil: // removed by forgetUnstarted
		s.stop(ts, tunnel.CodeUnavailable, "the session took too long to start")
		return
	case draining: // its hello came before the drain
		s.stop(ts, tunnel.CodeDraining, errDraining().Msg)
	}
	s.log.Info("session up", "session", t.id, "role", t.hello.Role, "account", t.accountID, "credential",
		t.credentialID, "operator", t.operatorID, "ip", t.ip, "version", t.hello.ClientVersion)
	if t.hello.Role != tunnel.RoleAgent {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if t.joined {
		s.refresh(ctx, t)
		return
	}
	if err := s.opt.Store.StartSession(ctx, s.sessionRow(t, ts)); err != nil {
		refusal := refusal(s.log, err)
		s.stop(ts, refusal.Code, refusal.Msg)
		return
	}
	s.setStored(t)
}

// sessionRow returns the store's row of an agent's session.
func (s *Server) sessionRow(t *session, ts *tunnel.Session) account.TunnelSession {
	row := account.TunnelSession{
		ID: t.id, AccountID: t.accountID, AgentVersion: t.hello.ClientVersion,
		Credential: account.Ref{ID: t.credentialID}, IP: t.ip, Metadata: t.hello.Metadata, OS: t.hello.OS,
		StartedAt: t.accepted.UTC(), Transport: ts.Carrier().Name,
		InstanceID: t.hello.InstanceID, ServerID: s.opt.ServerID,
	}
	if s.opt.Legs != nil {
		row.JoinHash = ts.JoinHash()
	}
	return row
}

func hostOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	if host, _, err := net.SplitHostPort(a.String()); err == nil {
		return host
	}
	return a.String()
}
