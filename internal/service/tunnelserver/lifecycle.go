// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// storeTimeout bounds queries of the store outside a peer's own request.
const storeTimeout = 10 * time.Second

// Hello authenticates a session's first connection. An agent's token needs a bind rule, or is an
// API key of its cluster's exporter; a forwarder's needs a connect rule for its operator, which
// must be registered in the token's account.
func (s *Server) Hello(ctx context.Context, h tunnel.Hello, remote net.Addr) (tunnel.Welcome, error) {
	t, err := s.authenticate(ctx, h)
	if err == nil {
		err = s.admit(t, remote)
	}
	return s.answerHello(h, t, remote, err)
}

// admit adds a session whose Up will follow, unless the server drains.
func (s *Server) admit(t *session, remote net.Addr) error {
	t.ip = hostOf(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errDraining()
	}
	s.sessions[t.id] = t
	return nil
}

func errDraining() *tunnel.Error {
	return &tunnel.Error{Code: tunnel.CodeDraining, Msg: "the server is about to stop; try again in a moment"}
}

// answerHello counts the hello of a session and returns its answer: the refusal for an error.
func (s *Server) answerHello(h tunnel.Hello, t *session, remote net.Addr, err error) (tunnel.Welcome, error) {
	if err != nil {
		refusal := s.refusal(err)
		s.opt.Meter.CountHello(h.Role, string(refusal.Code))
		s.log.Debug("hello refused", "role", h.Role, "ip", hostOf(remote), "code", refusal.Code)
		return tunnel.Welcome{}, refusal
	}
	s.opt.Meter.CountHello(h.Role, "accepted")
	w := tunnel.Welcome{SessionID: t.id, AccountID: t.accountID, StoreID: s.opt.StoreID,
		ServerVersion: s.opt.Version, ReplicaID: s.opt.ReplicaID}
	if s.replicated() {
		w.Replicas = s.opt.Replicas.Count()
	}
	return w, nil
}

// authenticate returns a new session for the hello, with an id of its own.
func (s *Server) authenticate(ctx context.Context, h tunnel.Hello) (*session, error) {
	token, err := s.opt.Store.TunnelCredential(ctx, h.Token)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &session{id: account.NewID(account.PrefixTunnelSession, now), accountID: token.AccountID,
		credentialID: token.ID,
		token:        token, hello: h, accepted: now}
	t.hello.Token, t.hello.JoinSecret = "", ""
	if err := validateHello(h); err != nil {
		return nil, err
	}
	switch {
	case token.IsAPIKey:
		if err := s.authenticateExporter(ctx, token, h); err != nil {
			return nil, err
		}
		t.clusterUID = token.ClusterUID
	case h.Role == tunnel.RoleAgent:
		if !token.ACL.HasVerb("bind") {
			return nil, account.Errorf(account.CodeScope,
				"%s has no bind rule: an agent needs one, such as bind:*", token)
		}
	case h.Role == tunnel.RoleForwarder:
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
	ctx context.Context, token *account.TunnelCredential, operatorID string,
) (*account.Operator, error) {
	if !account.ValidID(account.PrefixOperator, operatorID) {
		return nil, account.Invalid("operator_id", account.Shorten(operatorID),
			"a forwarder names the operator that it belongs to, by its id op-…")
	}
	if !token.ACL.MayConnect(operatorID) {
		return nil, errNoConnectRule(token, operatorID)
	}
	o, err := s.opt.Store.Operator(ctx, token.AccountID, operatorID)
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, errUnregistered(operatorID)
	}
	return o, err
}

func errNoConnectRule(token *account.TunnelCredential, operatorID string) *account.Error {
	remedy := "make one with `fairlead-server authtoken create --connect '*'`"
	if token.Use().IsSubject() {
		remedy = "set its acl to connect:* in the subjects of its cluster"
	}
	return account.Errorf(account.CodeScope, "%s has no connect rule for operator %s: %s", token, operatorID, remedy)
}

// errUnregistered is not final: the operator's manager registers it again.
func errUnregistered(operatorID string) *tunnel.Error {
	return &tunnel.Error{
		Code: tunnel.CodeUnavailable, Detail: string(account.CodeNotFound),
		Msg: fmt.Sprintf("operator %s is not registered in this account; its manager has to register first",
			operatorID),
	}
}

// Up records an agent's session, before its first bind. One that began on another server gets what
// it has bound there.
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
		s.stop(ts, tunnel.CodeDraining, errDraining().Msg)
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
	if t.joined {
		s.refreshHoldings(ctx, t)
		return
	}
	if err := s.opt.Store.StartSession(ctx, s.sessionRow(t, ts)); err != nil {
		refusal := s.refusal(err)
		s.stop(ts, refusal.Code, refusal.Msg)
		return
	}
	s.mu.Lock()
	t.stored = true
	s.mu.Unlock()
}

// sessionRow returns what the store keeps of an agent's session.
func (s *Server) sessionRow(t *session, ts *tunnel.Session) account.TunnelSession {
	row := account.TunnelSession{
		ID: t.id, AccountID: t.accountID, AgentVersion: t.hello.ClientVersion,
		Credential: account.Ref{ID: t.credentialID},
		IP:         t.ip,
		Metadata:   t.hello.Metadata, OS: t.hello.OS, StartedAt: t.accepted.UTC(), Transport: tunnel.ALPN,
		InstanceID: t.hello.InstanceID, ServerID: s.opt.ServerID,
	}
	if s.replicated() {
		row.JoinHash = ts.JoinHash()
	}
	return row
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
