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

// tunnelHandlers serve the labelled tunnels that are online.
type tunnelHandlers struct {
	store account.LabelledTunnels
	uris  uris
}

func (h *tunnelHandlers) kind() kind[account.LabelledTunnel] {
	return newKind(func(t *account.LabelledTunnel) string { return t.ID },
		func(t *account.LabelledTunnel) {
			t.URI = h.uris.at(resource.Tunnels, t.ID)
			t.TunnelSession.URI = h.uris.at(resource.TunnelSessions, t.TunnelSession.ID)
		})
}

func (h *tunnelHandlers) list(c *call, page account.Page) ([]account.LabelledTunnel, bool, error) {
	return h.store.ListLabelledTunnels(c.Context(), c.AccountID(), nil, page)
}

// all reads every labelled tunnel of the account.
func (h *tunnelHandlers) all(c *call) (all []account.LabelledTunnel, err error) {
	for p := (account.Page{Limit: account.MaxPageLimit}); ; {
		page, more, err := h.list(c, p)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); !more {
			return all, nil
		}
		p.BeforeID = all[len(all)-1].ID
	}
}

// withLabels returns references to the tunnels that have all the labels.
func (h *tunnelHandlers) withLabels(all []account.LabelledTunnel, labels map[string]string) []account.Ref {
	refs := []account.Ref{}
	for i := range all {
		if account.HasLabels(all[i].Labels, labels) {
			refs = append(refs, account.Ref{ID: all[i].ID, URI: h.uris.at(resource.Tunnels, all[i].ID)})
		}
	}
	return refs
}
