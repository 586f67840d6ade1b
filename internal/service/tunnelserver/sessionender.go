// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

var _ account.SessionEnder = (*Server)(nil)

// StopSession implements account.SessionEnder.
func (s *Server) StopSession(_ context.Context, by account.Caller, id string) error {
	return s.stopByCaller(by, id, tunnel.CodeStop, "the session was stopped through the API",
		"stopped through the API")
}

// RestartSession implements account.SessionEnder.
func (s *Server) RestartSession(_ context.Context, by account.Caller, id string) error {
	return s.stopByCaller(by, id, tunnel.CodeUnavailable, "the session was restarted through the API",
		"restarted through the API")
}

func (s *Server) stopByCaller(by account.Caller, id string, code tunnel.Code, msg, reason string) error {
	s.mu.Lock()
	t := s.sessions[id]
	live := t != nil && t.accountID == by.AccountID && t.hello.Role == tunnel.RoleAgent && t.tun != nil && !t.stopping
	s.mu.Unlock()
	if !live {
		return account.Errorf(account.CodeNotFound, "there is no tunnel session %q in this account",
			account.Shorten(id))
	}
	s.log.Info("session ended over the API", "session", id, "account", by.AccountID, "by", by.PrincipalID, "code", code)
	s.evict(t, code, msg, account.SessionEnd{Reason: reason, PrincipalID: by.PrincipalID})
	return nil
}
