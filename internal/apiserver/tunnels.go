// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type tunnelList struct {
	Tunnels     []account.LabelledTunnel `json:"tunnels"`
	URI         string                   `json:"uri"`
	NextPageURI *string                  `json:"next_page_uri"`
}

func (s *server) listTunnels(c *call) error {
	q := c.parseQuery("before_id", "limit")
	page := q.page()
	if err := q.err(); err != nil {
		return err
	}
	found, err := s.opt.Tunnels.ListLabelledTunnels(c.r.Context(), c.accountID(), nil, page)
	if err != nil {
		return err
	}
	list := tunnelList{Tunnels: found.Tunnels, URI: s.uri("tunnels")}
	for i := range list.Tunnels {
		s.fillTunnel(&list.Tunnels[i])
	}
	if n := len(list.Tunnels); n > 0 {
		list.NextPageURI = c.nextPage(found.More, list.URI, list.Tunnels[n-1].ID, q, nil)
	}
	return c.writeJSON(http.StatusOK, list)
}

func (s *server) getTunnel(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	t, err := s.opt.Tunnels.LabelledTunnel(c.r.Context(), c.accountID(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	s.fillTunnel(t)
	return c.writeJSON(http.StatusOK, t)
}

func (s *server) fillTunnel(t *account.LabelledTunnel) {
	t.URI = s.uri("tunnels", t.ID)
	t.TunnelSession.URI = s.uri("tunnel_sessions", t.TunnelSession.ID)
}

// onlineTunnels reads all labelled tunnels of the account.
func (s *server) onlineTunnels(c *call) (all []account.LabelledTunnel, err error) {
	for p := (account.Page{Limit: account.MaxPageLimit}); ; {
		page, err := s.opt.Tunnels.ListLabelledTunnels(c.r.Context(), c.accountID(), nil, p)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Tunnels...)
		if !page.More {
			return all, nil
		}
		p.BeforeID = all[len(all)-1].ID
	}
}

// tunnelsWith refers to those that have all the labels.
func (s *server) tunnelsWith(all []account.LabelledTunnel, labels map[string]string) []account.Ref {
	refs := []account.Ref{}
	for i := range all {
		if account.HasLabels(all[i].Labels, labels) {
			refs = append(refs, account.Ref{ID: all[i].ID, URI: s.uri("tunnels", all[i].ID)})
		}
	}
	return refs
}
