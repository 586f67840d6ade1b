// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"crypto/sha256"
	"net"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Join implements tunnel.Handler: it admits a connection of a session that began on another server,
// as a leg here. An agent's session is that of the row with the hash of its join secret; a
// forwarder is authenticated as by Hello.
func (s *Server) Join(ctx context.Context, h tunnel.Hello, remote net.Addr) (tunnel.Welcome, error) {
	t, err := s.join(ctx, h, remote)
	return s.answerHello(h, t, remote, err)
}

func (s *Server) join(ctx context.Context, h tunnel.Hello, remote net.Addr) (*session, error) {
	switch {
	case !s.replicated() || !account.ValidID(account.PrefixTunnelSession, h.SessionID):
		return nil, errUnknownSession()
	case s.isDraining():
		return nil, errDraining()
	}
	s.joins.RLock()
	defer s.joins.RUnlock()
	if s.endUnrecorded(h.SessionID) {
		return nil, errUnknownSession()
	}
	t, err := s.authenticateJoin(ctx, h)
	if err != nil {
		return nil, err
	}
	t.id, t.joined, t.stored = h.SessionID, true, true
	if err := s.admit(t, remote); err != nil {
		s.leaveUnstarted(t)
		return nil, err
	}
	return t, nil
}

// authenticateJoin returns the session that the hello names.
func (s *Server) authenticateJoin(ctx context.Context, h tunnel.Hello) (*session, error) {
	switch {
	case h.Role == tunnel.RoleAgent:
		return s.joinAgent(ctx, h)
	case h.Token == "": // a client that knows one server only
		return nil, errUnknownSession()
	}
	return s.authenticate(ctx, h)
}

func errUnknownSession() *tunnel.Error {
	return &tunnel.Error{Code: tunnel.CodeUnknownSession, Msg: "the session has ended: begin a new one"}
}

// joinAgent returns the session of the row with the hello's join secret, whose credential must be
// valid still. A hello with a token must have one of the same account, and that of a ServiceAccount
// one of the same ServiceAccount.
func (s *Server) joinAgent(ctx context.Context, h tunnel.Hello) (*session, error) {
	var accountID string
	var presented account.CredentialUse
	if h.Token != "" {
		token, err := s.opt.Store.TunnelCredential(ctx, h.Token)
		if err != nil {
			return nil, err
		}
		accountID, presented = token.AccountID, token.Use()
	}
	hash := sha256.Sum256([]byte(h.JoinSecret))
	row, err := s.opt.Legs.JoinSession(ctx, h.SessionID, hash[:])
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, errUnknownSession()
	}
	if err != nil {
		return nil, err
	}
	t := &session{id: row.ID, accountID: row.AccountID, credentialID: row.Credential.ID, joined: true,
		accepted: time.Now(), hello: tunnel.Hello{Role: tunnel.RoleAgent, SessionID: row.ID,
			ClientVersion: row.AgentVersion, OS: row.OS, InstanceID: row.InstanceID, Metadata: row.Metadata}}
	use := account.CredentialUse{ID: t.credentialID}
	if use.IsSubject() && presented.ID == use.ID {
		use = presented
	}
	tokens, err := s.opt.Store.LiveTunnelCredentials(ctx, []account.CredentialUse{use})
	t.token = tokens[use]
	switch {
	case err != nil:
	case t.token == nil && use.IsSubject() && presented.ID != use.ID:
		err = &tunnel.Error{Code: tunnel.CodeForbidden,
			Msg: "the session is that of another ServiceAccount, or its token was not presented"}
	case t.token == nil:
		err = &tunnel.Error{Code: tunnel.CodeTokenRevoked, Msg: revokedMessage(t.credentialID)}
	case accountID != "" && accountID != t.accountID:
		err = &tunnel.Error{Code: tunnel.CodeForbidden, Msg: "the token is of another account than the session"}
	default:
		t.clusterUID = t.token.ClusterUID
	}
	if err != nil {
		s.leaveUnstarted(t)
		return nil, err
	}
	return t, nil
}

// leaveUnstarted makes the store forget that an agent's session has a leg here, soon.
func (s *Server) leaveUnstarted(t *session) {
	if t.hello.Role != tunnel.RoleAgent {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unrecorded = append(s.unrecorded, t)
}

// endUnrecorded reports whether the service has ended the session here, which the store does not
// know yet.
func (s *Server) endUnrecorded(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.unrecorded, func(t *session) bool { return t.id == id && t.end.Reason != "" })
}
