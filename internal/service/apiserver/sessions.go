// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import "github.com/fairlead-dev/fairlead/internal/account"

type sessionList struct {
	Sessions []account.TunnelSession `json:"tunnel_sessions"`
	pageLinks
}

// sessionHandlers serve the sessions of agents.
type sessionHandlers struct {
	store account.TunnelSessions
	ender account.SessionEnder
	uris  uris
}

func (h *sessionHandlers) kind() kind[account.TunnelSession] {
	return newKind(func(t *account.TunnelSession) string { return t.ID },
		func(t *account.TunnelSession) {
			t.URI = h.uris.at("tunnel_sessions", t.ID)
			h.uris.setPrincipal(&t.Credential)
		},
		func(sessions []account.TunnelSession, l pageLinks) any { return sessionList{sessions, l} }, "tunnel_sessions")
}

func (h *sessionHandlers) stop(c *call) error { return actionHandler(h.ender.StopSession)(c) }

func (h *sessionHandlers) restart(c *call) error { return actionHandler(h.ender.RestartSession)(c) }
