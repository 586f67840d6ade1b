// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

var _ account.SessionEnder = (*Server)(nil)

// StopSession implements account.SessionEnder. With several servers, the session may have
// connections with any of them.
func (s *Server) StopSession(ctx context.Context, by account.Caller, id string) error {
	return s.endByCaller(ctx, by, id, tunnel.CodeStop, "the session was stopped through the API",
		"stopped through the API")
}

// RestartSession implements account.SessionEnder, as StopSession does.
func (s *Server) RestartSession(ctx context.Context, by account.Caller, id string) error {
	return s.endByCaller(ctx, by, id, tunnel.CodeUnavailable, "the session was restarted through the API",
		"restarted through the API")
}

func (s *Server) endByCaller(
	ctx context.Context, by account.Caller, id string, code tunnel.Code, msg, reason string,
) error {
	s.mu.Lock()
	t := s.sessions[id]
	local := t != nil && t.accountID == by.AccountID && t.hello.Role == tunnel.RoleAgent && t.tun != nil && !t.stopping
	s.mu.Unlock()
	if !local {
		if err := s.hasSession(ctx, by.AccountID, id); err != nil {
			return err
		}
	}
	s.log.Info("session ended over the API", "session", id, "account", by.AccountID, "by", by.PrincipalID, "code", code)
	end := account.SessionEnd{Reason: reason, PrincipalID: by.PrincipalID}
	if local {
		s.evict(t, code, msg, end)
	}
	if !s.replicated() {
		return nil
	}
	if err := s.opt.Store.EndSession(ctx, by.AccountID, id, end); err != nil {
		return err
	}
	if local {
		s.mu.Lock()
		t.recorded = true
		s.mu.Unlock()
	}
	s.publish(ctx, by.AccountID, code, msg, id)
	return nil
}

// hasSession returns CodeNotFound unless the account has a live session of this id, with any server.
func (s *Server) hasSession(ctx context.Context, accountID, id string) error {
	unknown := account.Errorf(account.CodeNotFound, "there is no tunnel session %q in this account",
		account.Shorten(id))
	if !s.replicated() {
		return unknown
	}
	_, err := s.opt.Store.TunnelSession(ctx, accountID, id)
	if account.CodeOf(err) == account.CodeNotFound {
		return unknown
	}
	return err
}
