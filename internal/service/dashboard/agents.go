// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// agentsByID returns the newest account.MaxPageLimit agents that are online.
func (s *server) agentsByID(c *call) (map[string]account.TunnelSession, error) {
	found, err := s.opt.Store.ListTunnelSessions(c.Context(), c.AccountID(), account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return nil, err
	}
	byID := make(map[string]account.TunnelSession, len(found.Sessions))
	for _, t := range found.Sessions {
		byID[t.ID] = t
	}
	return byID, nil
}

type agentsPage struct {
	Rows       []account.TunnelSession
	Pager      pager
	Tunnels    []account.LabelledTunnel
	MoreTunnel bool
}

func (s *server) agents(c *call) error {
	found, err := s.opt.Store.ListTunnelSessions(c.Context(), c.AccountID(), c.page())
	if err != nil {
		return err
	}
	tunnels, err := s.opt.Store.ListLabelledTunnels(c.Context(), c.AccountID(), nil, account.Page{Limit: pageSize})
	if err != nil {
		return err
	}
	p := agentsPage{Rows: found.Sessions, Tunnels: tunnels.Tunnels, MoreTunnel: tunnels.More}
	p.Pager = pagerOf(c, p.Rows, found.More, agentID, nil)
	return c.show(http.StatusOK, view{Page: "agents", Title: "Agents", Nav: "agents", Live: "audit", Data: p})
}

type agentPage struct {
	account.TunnelSession
	Endpoints []account.Endpoint
	Tunnels   []account.LabelledTunnel
}

func (s *server) agent(c *call) error {
	t, err := s.opt.Store.TunnelSession(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	p := agentPage{TunnelSession: *t}
	if p.Endpoints, err = s.sessionEndpoints(c, t.ID); err != nil {
		return err
	}
	tunnels, err := s.opt.Store.ListLabelledTunnels(c.Context(), c.AccountID(), nil,
		account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return err
	}
	for _, l := range tunnels.Tunnels {
		if l.TunnelSession.ID == t.ID {
			p.Tunnels = append(p.Tunnels, l)
		}
	}
	return c.show(http.StatusOK, view{Page: "agent", Title: agentName(t), Nav: "agents",
		Crumb: &link{"Agents", Path + "agents"}, Live: "endpoints audit", Data: p})
}

// sessionEndpoints returns the newest endpoints of an agent's session, of those among the newest
// maxScan of the account.
func (s *server) sessionEndpoints(c *call, sessionID string) ([]account.Endpoint, error) {
	var endpoints []account.Endpoint
	for before, scanned := "", 0; scanned < maxScan && len(endpoints) < pageSize; {
		page, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(), account.EndpointFilter{},
			account.Page{BeforeID: before, Limit: account.MaxPageLimit})
		if err != nil {
			return nil, err
		}
		for _, e := range page.Endpoints {
			before = e.ID
			if e.TunnelSession != nil && e.TunnelSession.ID == sessionID {
				endpoints = append(endpoints, e)
			}
		}
		if scanned += len(page.Endpoints); !page.More || len(page.Endpoints) == 0 {
			break
		}
	}
	return endpoints, nil
}

func agentName(t *account.TunnelSession) string {
	if t.OS == "" {
		return t.IP
	}
	return t.IP + " (" + t.OS + ")"
}

func (s *server) confirmEndAgent(c *call, q confirmation) error {
	t, err := s.opt.Store.TunnelSession(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	endpoints, err := s.sessionEndpoints(c, t.ID)
	if err != nil {
		return err
	}
	q.Facts = []fact{{"Agent", agentName(t)}, {"Endpoints", count(len(endpoints), "endpoint", "endpoints")}}
	q.Back = Path + "agents/" + t.ID
	return c.confirm("agents", link{agentName(t), q.Back}, q)
}

func (s *server) confirmStop(c *call) error {
	return s.confirmEndAgent(c, confirmation{Question: "Stop this agent?", Verb: "Stop agent", Busy: "Stopping",
		Danger: true,
		Effect: "Its program exits and does not come back by itself. Its endpoints go offline at once, and their " +
			"connections are closed."})
}

func (s *server) confirmRestart(c *call) error {
	return s.confirmEndAgent(c, confirmation{Question: "Restart this agent’s session?", Verb: "Restart session",
		Busy: "Restarting",
		Effect: "The agent connects again at once, with the endpoints that it has. Connections that are open are " +
			"closed."})
}

func (s *server) stopAgent(c *call) error {
	return s.endAgent(c, s.opt.SessionEnder.StopSession, noticeStopped)
}

func (s *server) restartAgent(c *call) error {
	return s.endAgent(c, s.opt.SessionEnder.RestartSession, noticeRestarted)
}

func (s *server) endAgent(
	c *call, end func(ctx context.Context, by account.Caller, id string) error, noticeCode string,
) error {
	if err := end(c.Context(), c.Caller(), c.ID()); err != nil {
		return err
	}
	return c.redirect(Path+"agents", notice{Code: noticeCode})
}
