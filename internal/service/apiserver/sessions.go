// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type sessionList struct {
	Sessions []account.TunnelSession `json:"tunnel_sessions"`
	pageLinks
}

// sessions serves the sessions of agents.
func (s *server) sessions() kind[account.TunnelSession] {
	return newKind(func(t *account.TunnelSession) string { return t.ID },
		func(t *account.TunnelSession) {
			t.URI = s.uri("tunnel_sessions", t.ID)
			s.setPrincipalURI(&t.Credential)
		},
		func(sessions []account.TunnelSession, l pageLinks) any { return sessionList{sessions, l} }, "tunnel_sessions")
}

func (s *server) listSessions(c *call, page account.Page) ([]account.TunnelSession, bool, error) {
	found, err := s.opt.Store.ListTunnelSessions(c.Context(), c.AccountID(), page)
	if err != nil {
		return nil, false, err
	}
	return found.Sessions, found.More, nil
}

func (s *server) stopSession(c *call) error { return c.endSession(s.opt.SessionEnder.StopSession) }

func (s *server) restartSession(c *call) error {
	return c.endSession(s.opt.SessionEnder.RestartSession)
}

func (c *call) endSession(end func(ctx context.Context, by account.Caller, id string) error) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	if err := c.noFields(); err != nil {
		return err
	}
	if err := end(c.Context(), c.Caller(), c.ID()); err != nil {
		return err
	}
	return c.writeNoContent()
}
