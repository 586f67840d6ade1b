// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/fairlead-dev/fairlead/internal/account"
)

type tunnelList struct {
	Tunnels []account.LabelledTunnel `json:"tunnels"`
	pageLinks
}

// tunnels serves the labelled tunnels that are online.
func (s *server) tunnels() kind[account.LabelledTunnel] {
	return newKind(func(t *account.LabelledTunnel) string { return t.ID },
		func(t *account.LabelledTunnel) {
			t.URI = s.uri("tunnels", t.ID)
			t.TunnelSession.URI = s.uri("tunnel_sessions", t.TunnelSession.ID)
		},
		func(tunnels []account.LabelledTunnel, l pageLinks) any { return tunnelList{tunnels, l} }, "tunnels")
}

func (s *server) listTunnels(c *call, page account.Page) ([]account.LabelledTunnel, bool, error) {
	found, err := s.opt.Store.ListLabelledTunnels(c.Context(), c.AccountID(), nil, page)
	if err != nil {
		return nil, false, err
	}
	return found.Tunnels, found.More, nil
}

// allTunnels reads every labelled tunnel of the account.
func (s *server) allTunnels(c *call) (all []account.LabelledTunnel, err error) {
	for p := (account.Page{Limit: account.MaxPageLimit}); ; {
		page, more, err := s.listTunnels(c, p)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); !more {
			return all, nil
		}
		p.BeforeID = all[len(all)-1].ID
	}
}

// tunnelsWithLabels returns references to the tunnels that have all the labels.
func (s *server) tunnelsWithLabels(all []account.LabelledTunnel, labels map[string]string) []account.Ref {
	refs := []account.Ref{}
	for i := range all {
		if account.HasLabels(all[i].Labels, labels) {
			refs = append(refs, account.Ref{ID: all[i].ID, URI: s.uri("tunnels", all[i].ID)})
		}
	}
	return refs
}
