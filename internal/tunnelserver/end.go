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
func (s *Server) StopSession(_ context.Context, accountID, id string) error {
	return s.end(accountID, id, tunnel.CodeStop, "somebody stopped this session through the API")
}

// RestartSession implements account.SessionEnder.
func (s *Server) RestartSession(_ context.Context, accountID, id string) error {
	return s.end(accountID, id, tunnel.CodeUnavailable, "somebody restarted this session through the API")
}

func (s *Server) end(accountID, id string, code tunnel.Code, msg string) error {
	s.mu.Lock()
	t := s.sessions[id]
	live := t != nil && t.accountID == accountID && t.hello.Role == tunnel.RoleAgent && t.tun != nil && !t.stopping
	s.mu.Unlock()
	if !live {
		return account.Errorf(account.CodeNotFound, "there is no tunnel session %q in this account", account.Shorten(id))
	}
	s.log.Info("session ended over the API", "session", id, "account", accountID, "code", code)
	s.evict(t, code, msg)
	return nil
}
