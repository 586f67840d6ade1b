// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// agentHandlers serve the pages of agents.
type agentHandlers struct {
	sessions  account.TunnelSessions
	tunnels   account.LabelledTunnels
	endpoints account.Endpoints
	ender     account.SessionEnder
}

// agentsByID returns the newest account.MaxPageLimit agents that are online.
func agentsByID(c *call, sessions account.TunnelSessions) (map[string]account.TunnelSession, error) {
	found, _, err := sessions.ListTunnelSessions(c.Context(), c.AccountID(), account.Page{Limit: account.MaxPageLimit})
	byID := make(map[string]account.TunnelSession, len(found))
	for _, t := range found {
		byID[t.ID] = t
	}
	return byID, err
}

type agentsPage struct {
	Rows       []account.TunnelSession
	Pager      pager
	Tunnels    []account.LabelledTunnel
	MoreTunnel bool
}

func (h *agentHandlers) list(c *call) error {
	found, more, err := h.sessions.ListTunnelSessions(c.Context(), c.AccountID(), c.page())
	if err != nil {
		return err
	}
	tunnels, moreTunnels, err := h.tunnels.ListLabelledTunnels(c.Context(), c.AccountID(), nil,
		account.Page{Limit: pageSize})
	if err != nil {
		return err
	}
	p := agentsPage{Rows: found, Tunnels: tunnels, MoreTunnel: moreTunnels}
	p.Pager = pagerOf(c, p.Rows, more, agentID, nil)
	return c.show(http.StatusOK, view{Page: "agents", Title: "Agents", Nav: "agents", Live: "audit", Data: p})
}

type agentPage struct {
	account.TunnelSession
	Endpoints []account.Endpoint
	Tunnels   []account.LabelledTunnel
}

func (h *agentHandlers) show(c *call) error {
	t, err := h.sessions.TunnelSession(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	p := agentPage{TunnelSession: *t}
	if p.Endpoints, err = h.endpointsOf(c, t.ID); err != nil {
		return err
	}
	tunnels, _, err := h.tunnels.ListLabelledTunnels(c.Context(), c.AccountID(), nil,
		account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return err
	}
	for _, l := range tunnels {
		if l.TunnelSession.ID == t.ID {
			p.Tunnels = append(p.Tunnels, l)
		}
	}
	return c.show(http.StatusOK, view{Page: "agent", Title: agentName(t), Nav: "agents",
		Crumb: &link{"Agents", Path + "agents"}, Live: "endpoints audit", Data: p})
}

// endpointsOf returns the newest endpoints of an agent's session, of those among the newest
// maxScan of the account.
func (h *agentHandlers) endpointsOf(c *call, sessionID string) ([]account.Endpoint, error) {
	var endpoints []account.Endpoint
	_, err := eachEndpoint(c, h.endpoints, account.EndpointFilter{}, func(e *account.Endpoint) bool {
		if e.TunnelSession != nil && e.TunnelSession.ID == sessionID {
			endpoints = append(endpoints, *e)
		}
		return len(endpoints) < account.MaxPageLimit
	})
	return endpoints, err
}

func agentName(t *account.TunnelSession) string {
	if t.OS == "" {
		return t.IP
	}
	return t.IP + " (" + t.OS + ")"
}

func (h *agentHandlers) confirmEnd(c *call, q confirmation) error {
	t, err := h.sessions.TunnelSession(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	endpoints, err := h.endpointsOf(c, t.ID)
	if err != nil {
		return err
	}
	q.Facts = []fact{{"Agent", agentName(t)}, {"Endpoints", count(len(endpoints), "endpoint", "endpoints")}}
	q.Back = Path + "agents/" + t.ID
	return c.confirm("agents", link{agentName(t), q.Back}, q)
}

func (h *agentHandlers) confirmStop(c *call) error {
	return h.confirmEnd(c, confirmation{Question: "Stop this agent?", Verb: "Stop agent", Busy: "Stopping",
		Danger: true,
		Effect: "Its program exits and does not come back by itself. Its endpoints go offline at once, and their " +
			"connections are closed."})
}

func (h *agentHandlers) confirmRestart(c *call) error {
	return h.confirmEnd(c, confirmation{Question: "Restart this agent’s session?", Verb: "Restart session",
		Busy: "Restarting",
		Effect: "The agent connects again at once, with the endpoints that it has. Connections that are open are " +
			"closed."})
}

func (h *agentHandlers) stop(c *call) error {
	err := h.ender.StopSession(c.Context(), c.Caller(), c.ID())
	return c.finish(err, Path+"agents", notice{Code: noticeStopped})
}

func (h *agentHandlers) restart(c *call) error {
	err := h.ender.RestartSession(c.Context(), c.Caller(), c.ID())
	return c.finish(err, Path+"agents", notice{Code: noticeRestarted})
}
