// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// storeTimeout bounds queries of the store outside a peer's own request.
const storeTimeout = 10 * time.Second

// Hello authenticates a session's first connection. An agent's token needs a bind rule; a
// forwarder's needs a connect rule for its operator, which must be registered in the token's
// account.
func (s *Server) Hello(ctx context.Context, h tunnel.Hello, remote net.Addr) (tunnel.Welcome, error) {
	t, err := s.authenticate(ctx, h)
	if err != nil {
		refusal := s.refusal(err)
		s.opt.OnHello(h.Role, string(refusal.Code))
		s.log.Debug("hello refused", "role", h.Role, "ip", hostOf(remote), "code", refusal.Code)
		return tunnel.Welcome{}, refusal
	}
	t.ip = hostOf(remote)
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		s.opt.OnHello(h.Role, string(tunnel.CodeDraining))
		return tunnel.Welcome{}, &tunnel.Error{Code: tunnel.CodeDraining,
			Msg: "the server is about to stop; try again in a moment"}
	}
	s.sessions[t.id] = t
	s.mu.Unlock()
	s.opt.OnHello(h.Role, "accepted")
	return tunnel.Welcome{SessionID: t.id, AccountID: t.accountID, StoreID: s.opt.StoreID,
			ServerVersion: s.opt.Version},
		nil
}

// Join refuses connections of other replicas' sessions: there are none.
func (*Server) Join(context.Context, tunnel.Hello, net.Addr) (tunnel.Welcome, error) {
	return tunnel.Welcome{}, &tunnel.Error{Code: tunnel.CodeUnknownSession,
		Msg: "the session has ended: begin a new one"}
}

func (s *Server) authenticate(ctx context.Context, h tunnel.Hello) (*session, error) {
	token, err := s.opt.Store.AuthtokenBySecret(ctx, h.Token)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &session{id: account.NewID(account.PrefixTunnelSession, now), accountID: token.AccountID,
		credentialID: token.ID,
		token:        token, hello: h, accepted: now}
	t.hello.Token = ""
	if err := validateHello(h); err != nil {
		return nil, err
	}
	switch h.Role {
	case tunnel.RoleAgent:
		if !slices.ContainsFunc(token.ACL, func(rule string) bool { return strings.HasPrefix(rule, "bind:") }) {
			return nil, account.Errorf(account.CodeScope,
				"authtoken %s has no bind rule: an agent needs one, such as bind:*",
				token.ID)
		}
	case tunnel.RoleForwarder:
		o, err := s.findOperator(ctx, token, h.OperatorID)
		if err != nil {
			return nil, err
		}
		t.operatorID, t.cluster = h.OperatorID, o.Deployment.ClusterName
	default:
		return nil, account.Invalid("role", string(h.Role), "must be agent or forwarder")
	}
	return t, nil
}

// validateHello refuses texts that must not reach the store and terminals.
func validateHello(h tunnel.Hello) error {
	probe := account.TunnelSession{
		ID: account.NewID(account.PrefixTunnelSession, time.Time{}), AgentVersion: h.ClientVersion, OS: h.OS,
		InstanceID: h.InstanceID, Metadata: h.Metadata,
	}
	return probe.Validate()
}

// findOperator returns the operator that a forwarder names, if its token may connect for it.
func (s *Server) findOperator(
	ctx context.Context, token *account.Authtoken, operatorID string,
) (*account.Operator, error) {
	if !account.ValidID(account.PrefixOperator, operatorID) {
		return nil, account.Invalid("operator_id", account.Shorten(operatorID),
			"a forwarder names the operator that it belongs to, by its id op-…")
	}
	if !token.MayConnect(operatorID) {
		return nil, errNoConnectRule(token.ID, operatorID)
	}
	o, err := s.opt.Store.Operator(ctx, token.AccountID, operatorID)
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, errUnregistered(operatorID)
	}
	return o, err
}

func errNoConnectRule(credentialID, operatorID string) *account.Error {
	return account.Errorf(account.CodeScope,
		"authtoken %s has no connect rule for operator %s: make one with `fairlead-server authtoken create "+
			"--connect '*'`",
		credentialID, operatorID)
}

// errUnregistered is not final: the operator's manager registers it again.
func errUnregistered(operatorID string) *tunnel.Error {
	return &tunnel.Error{
		Code: tunnel.CodeUnavailable, Detail: string(account.CodeNotFound),
		Msg: fmt.Sprintf("operator %s is not registered in this account; its manager has to register first",
			operatorID),
	}
}

// Up records an agent's session, before its first bind.
func (s *Server) Up(ts *tunnel.Session) {
	s.mu.Lock()
	t, draining := s.sessions[ts.ID()], s.draining
	if t != nil {
		t.tun = ts
	}
	s.mu.Unlock()
	switch {
	case t == nil: // removed by forgetUnstarted
		s.stop(ts, tunnel.CodeUnavailable, "the session took too long to start")
		return
	case draining: // its hello came before the drain
		s.stop(ts, tunnel.CodeDraining, "the server is about to stop; try again in a moment")
	}
	s.log.Info("session up", "session", t.id, "role", t.hello.Role, "account", t.accountID, "credential",
		t.credentialID,
		"operator", t.operatorID,
		"ip", t.ip, "version", t.hello.ClientVersion)
	if t.hello.Role != tunnel.RoleAgent {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	err := s.opt.Store.StartSession(ctx, account.TunnelSession{
		ID: t.id, AccountID: t.accountID, AgentVersion: t.hello.ClientVersion,
		Credential: account.Ref{ID: t.credentialID},
		IP:         t.ip,
		Metadata:   t.hello.Metadata, OS: t.hello.OS, StartedAt: t.accepted.UTC(), Transport: tunnel.ALPN,
		InstanceID: t.hello.InstanceID, ServerID: s.opt.ServerID,
	})
	if err != nil {
		refusal := s.refusal(err)
		s.stop(ts, refusal.Code, refusal.Msg)
	}
}

// Down removes a session: its endpoints are offline.
func (s *Server) Down(ts *tunnel.Session, cause error) {
	s.mu.Lock()
	t := s.sessions[ts.ID()]
	delete(s.sessions, ts.ID())
	for _, h := range s.members {
		if h.session == t {
			s.dropMember(h)
		}
	}
	if t != nil {
		for _, h := range slices.Clone(s.tunnels[t.accountID]) {
			if h.session == t {
				s.dropTunnel(h)
			}
		}
	}
	s.mu.Unlock()
	if t == nil {
		return
	}
	s.log.Info("session down", "session", t.id, "role", t.hello.Role, "account", t.accountID, "cause", cause)
	if t.hello.Role != tunnel.RoleAgent {
		return
	}
	if err := s.recordSessionEnd(context.Background(), t); err != nil {
		s.log.Error("the endpoints of a lost session could not be marked offline; it is tried again", "session", t.id,
			"err",
			err)
		s.mu.Lock()
		s.unrecorded = append(s.unrecorded, t)
		s.mu.Unlock()
	}
}

func (s *Server) recordSessionEnd(ctx context.Context, t *session) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s.mu.Lock()
	end := t.end
	s.mu.Unlock()
	return s.opt.Store.EndSession(ctx, t.accountID, t.id, end)
}

// retrySessionEnds records the ends that Down could not record: until then, the URLs of those
// sessions are taken.
func (s *Server) retrySessionEnds(ctx context.Context) {
	s.mu.Lock()
	lost := s.unrecorded
	s.unrecorded = nil
	s.mu.Unlock()
	for i, t := range lost {
		if s.recordSessionEnd(ctx, t) != nil {
			s.mu.Lock()
			s.unrecorded = append(s.unrecorded, lost[i:]...)
			s.mu.Unlock()
			return
		}
	}
}

// stop tells a session to end.
func (s *Server) stop(ts *tunnel.Session, code tunnel.Code, msg string) {
	s.mu.Lock()
	if t := s.sessions[ts.ID()]; t != nil {
		t.stopping = true
	}
	s.mu.Unlock()
	ts.Stop(code, msg)
}

// Wait returns when every session that the server closes is closed.
func (s *Server) Wait() { s.closing.Wait() }

func hostOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
