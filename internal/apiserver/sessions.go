// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type sessionList struct {
	Sessions    []account.TunnelSession `json:"tunnel_sessions"`
	URI         string                  `json:"uri"`
	NextPageURI *string                 `json:"next_page_uri"`
}

func (s *server) listSessions(c *call) error {
	q := c.parseQuery("before_id", "limit")
	page := q.page()
	if err := q.err(); err != nil {
		return err
	}
	found, err := s.opt.Sessions.ListTunnelSessions(c.r.Context(), c.accountID(), page)
	if err != nil {
		return err
	}
	list := sessionList{Sessions: found.Sessions, URI: s.uri("tunnel_sessions")}
	for i := range list.Sessions {
		s.fillSession(&list.Sessions[i])
	}
	if n := len(list.Sessions); n > 0 {
		list.NextPageURI = c.nextPage(found.More, list.URI, list.Sessions[n-1].ID, q, nil)
	}
	return c.writeJSON(http.StatusOK, list)
}

func (s *server) getSession(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	found, err := s.opt.Sessions.TunnelSession(c.r.Context(), c.accountID(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	s.fillSession(found)
	return c.writeJSON(http.StatusOK, found)
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
	if err := end(c.r.Context(), c.caller(), c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) fillSession(t *account.TunnelSession) {
	t.URI = s.uri("tunnel_sessions", t.ID)
	s.fillPrincipal(&t.Credential)
}
