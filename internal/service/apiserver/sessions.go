// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// sessionHandlers serve the sessions of agents.
type sessionHandlers struct {
	store account.TunnelSessions
	ender account.SessionEnder
	uris  uris
}

func (h *sessionHandlers) kind() kind[account.TunnelSession] {
	return newKind(func(t *account.TunnelSession) string { return t.ID },
		func(t *account.TunnelSession) {
			t.URI = h.uris.at(resource.TunnelSessions, t.ID)
			h.uris.setPrincipal(&t.Credential)
		})
}

func (h *sessionHandlers) stop(c *call) error { return actionHandler(h.ender.StopSession)(c) }

func (h *sessionHandlers) restart(c *call) error { return actionHandler(h.ender.RestartSession)(c) }
