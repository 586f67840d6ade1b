// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// agentsByID reads the newest of the agents that are online, for lists that name them.
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
	last := ""
	if n := len(p.Rows); n > 0 {
		last = p.Rows[n-1].ID
	}
	p.Pager = c.pagerOf(len(p.Rows), found.More, last, nil)
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
	if p.Endpoints, err = s.endpointsOf(c, t.ID); err != nil {
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

// endpointsOf finds the endpoints that an agent's session holds, the newest of them.
func (s *server) endpointsOf(c *call, sessionID string) ([]account.Endpoint, error) {
	var held []account.Endpoint
	for before, looked := "", 0; looked < maxScan && len(held) < pageSize; {
		page, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(), account.EndpointFilter{},
			account.Page{BeforeID: before, Limit: account.MaxPageLimit})
		if err != nil {
			return nil, err
		}
		for _, e := range page.Endpoints {
			before = e.ID
			if e.TunnelSession != nil && e.TunnelSession.ID == sessionID {
				held = append(held, e)
			}
		}
		if looked += len(page.Endpoints); !page.More || len(page.Endpoints) == 0 {
			break
		}
	}
	return held, nil
}

func agentName(t *account.TunnelSession) string {
	if t.OS == "" {
		return t.IP
	}
	return t.IP + " (" + t.OS + ")"
}

// confirmation asks before something is done that cannot be undone.
type confirmation struct {
	Question string
	Facts    []fact
	Effect   string // what will happen
	Action   string // where the form goes
	Verb     string // on the button
	Busy     string // on the button while it is done
	Back     string
	Return   string // where the answer leads, when the action can choose
	Danger   bool
}

// fact names what the question is about.
type fact struct{ Name, Value string }

// confirm shows the question as a page. A script takes its form and shows it as a dialog.
func (c *call) confirm(nav string, crumb link, q confirmation) error {
	q.Action = c.Request.URL.Path
	if back := localPath(c.Request.URL.Query().Get("return"), ""); back != "" {
		q.Back, q.Return = back, back
	}
	return c.show(http.StatusOK, view{Page: "confirm", Title: q.Question, Nav: nav, Crumb: &crumb, Data: q})
}

// after is where a form that was confirmed leads: where the person came from, unless that page is
// gone with what the form has ended.
func (c *call) after(otherwise string) string {
	return localPath(c.Request.PostForm.Get("return"), otherwise)
}

func (s *server) confirmEnd(c *call, q confirmation) error {
	t, err := s.opt.Store.TunnelSession(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	held, err := s.endpointsOf(c, t.ID)
	if err != nil {
		return err
	}
	q.Facts = []fact{{"Agent", agentName(t)}, {"Endpoints", count(len(held), "endpoint", "endpoints")}}
	q.Back = Path + "agents/" + t.ID
	return c.confirm("agents", link{agentName(t), q.Back}, q)
}

func (s *server) confirmStop(c *call) error {
	return s.confirmEnd(c, confirmation{Question: "Stop this agent?", Verb: "Stop agent", Busy: "Stopping", Danger: true,
		Effect: "Its program exits and does not come back by itself. Its endpoints go offline at once, and their " +
			"connections are closed."})
}

func (s *server) confirmRestart(c *call) error {
	return s.confirmEnd(c, confirmation{Question: "Restart this agent’s session?", Verb: "Restart session",
		Busy:   "Restarting",
		Effect: "The agent connects again at once, with the endpoints that it has. Connections that are open are closed."})
}

func (s *server) stopAgent(c *call) error {
	return s.endAgent(c, s.opt.SessionEnder.StopSession, noticeStopped)
}

func (s *server) restartAgent(c *call) error {
	return s.endAgent(c, s.opt.SessionEnder.RestartSession, noticeRestarted)
}

func (s *server) endAgent(
	c *call, end func(ctx context.Context, by account.Caller, id string) error, done string,
) error {
	if err := end(c.Context(), c.Caller(), c.ID()); err != nil {
		return err
	}
	return c.redirect(Path+"agents", notice{Code: done})
}
