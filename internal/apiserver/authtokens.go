// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type authtokenList struct {
	Credentials []account.Authtoken `json:"credentials"`
	URI         string              `json:"uri"`
	NextPageURI *string             `json:"next_page_uri"`
}

func (s *server) listAuthtokens(c *call) error {
	q := c.parseQuery("before_id", "limit")
	page := q.page()
	if err := q.err(); err != nil {
		return err
	}
	found, err := s.opt.Authtokens.ListAuthtokens(c.r.Context(), c.accountID(), page)
	if err != nil {
		return err
	}
	list := authtokenList{Credentials: found.Authtokens, URI: s.uri("credentials")}
	for i := range list.Credentials {
		s.fillAuthtoken(&list.Credentials[i])
	}
	if n := len(list.Credentials); n > 0 {
		list.NextPageURI = c.nextPage(found.More, list.URI, list.Credentials[n-1].ID, q, nil)
	}
	return c.writeJSON(http.StatusOK, list)
}

func (s *server) getAuthtoken(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	found, err := s.opt.Authtokens.Authtoken(c.r.Context(), c.accountID(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	s.fillAuthtoken(found)
	return c.writeJSON(http.StatusOK, found)
}

// createAuthtoken answers with the secret, this once.
func (s *server) createAuthtoken(c *call) error {
	b, patch, err := readAuthtokenPatch(c)
	if err != nil {
		return err
	}
	if len(b.broken) > 0 {
		_, err = patch.Apply(account.Authtoken{ACL: account.DefaultACL()}, s.opt.Clock()) // to list all rules at once
		return b.err(err)
	}
	made, err := s.opt.Authtokens.CreateAuthtoken(c.r.Context(), c.caller(), patch)
	if err != nil {
		return err
	}
	s.fillAuthtoken(made)
	return c.writeJSON(http.StatusCreated, made)
}

func (s *server) patchAuthtoken(c *call) error {
	b, patch, err := readAuthtokenPatch(c)
	if err != nil {
		return err
	}
	if len(b.broken) > 0 {
		existing, err := s.opt.Authtokens.Authtoken(c.r.Context(), c.accountID(), c.r.PathValue("id"))
		if err != nil {
			return err
		}
		_, err = patch.Apply(*existing, s.opt.Clock()) // to list all rules at once
		return b.err(err)
	}
	patched, err := s.opt.Authtokens.PatchAuthtoken(c.r.Context(), c.caller(), c.r.PathValue("id"), patch)
	if err != nil {
		return err
	}
	s.fillAuthtoken(patched)
	return c.writeJSON(http.StatusOK, patched)
}

func (s *server) deleteAuthtoken(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	if err := s.opt.Authtokens.DeleteAuthtoken(c.r.Context(), c.caller(), c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// readAuthtokenPatch reads the fields of an authtoken. owner_id has no meaning here: there are no
// users that could own one.
func readAuthtokenPatch(c *call) (*body, account.AuthtokenPatch, error) {
	var p account.AuthtokenPatch
	if err := c.noQuery(); err != nil {
		return nil, p, err
	}
	b, err := c.readBody()
	if err != nil {
		return nil, p, err
	}
	o := b.top
	o.ownID(c)
	p.Description, p.Metadata = o.text("description"), o.text("metadata")
	p.ACL = o.textsOr("acl", account.DefaultACL())
	p.Expiry.At, p.Expiry.Set = o.time("expires_at")
	o.ignored("owner_id")
	o.done()
	return b, p, nil
}

func (s *server) fillAuthtoken(v *account.Authtoken) { v.URI = s.uri("credentials", v.ID) }
