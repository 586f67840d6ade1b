// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type apiKeyList struct {
	Keys        []account.APIKey `json:"keys"`
	URI         string           `json:"uri"`
	NextPageURI *string          `json:"next_page_uri"`
}

func (s *server) listAPIKeys(c *call) error {
	q := c.parseQuery("before_id", "limit")
	page := q.page()
	if err := q.err(); err != nil {
		return err
	}
	found, err := s.apiKeyPage(c, page)
	if err != nil {
		return err
	}
	list := apiKeyList{Keys: found.Keys, URI: s.uri("api_keys")}
	for i := range list.Keys {
		s.fillAPIKey(&list.Keys[i])
	}
	if n := len(list.Keys); n > 0 {
		list.NextPageURI = c.nextPage(found.More, list.URI, list.Keys[n-1].ID, q, nil)
	}
	return c.writeJSON(http.StatusOK, list)
}

// apiKeyPage reads a page of the keys that the calling key may see: all of the account, or itself.
func (s *server) apiKeyPage(c *call, page account.Page) (*account.APIKeyPage, error) {
	if c.key.HasAnyScope(account.ScopeRead) {
		return s.opt.APIKeys.ListAPIKeys(c.r.Context(), c.accountID(), page)
	}
	own := &account.APIKeyPage{Keys: []account.APIKey{}}
	if page.BeforeID == "" || c.key.ID < page.BeforeID {
		own.Keys = append(own.Keys, *c.key)
	}
	return own, nil
}

func (s *server) getAPIKey(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	id := c.r.PathValue("id")
	if !c.key.HasAnyScope(account.ScopeRead) && id != c.key.ID {
		return account.Errorf(account.CodeNotFound, "there is no API key %q in this account", account.Shorten(id))
	}
	found, err := s.opt.APIKeys.APIKey(c.r.Context(), c.accountID(), id)
	if err != nil {
		return err
	}
	s.fillAPIKey(found)
	return c.writeJSON(http.StatusOK, found)
}

// createAPIKey answers with the secret, this once.
func (s *server) createAPIKey(c *call) error {
	b, patch, err := readAPIKeyPatch(c)
	if err != nil {
		return err
	}
	if len(b.broken) > 0 {
		_, err = patch.Apply(account.APIKey{Scopes: account.DefaultScopes()}, s.opt.Clock()) // to list all rules at once
		return b.err(err)
	}
	made, err := s.opt.APIKeys.CreateAPIKey(c.r.Context(), c.caller(), patch)
	if err != nil {
		return err
	}
	s.fillAPIKey(made)
	return c.writeJSON(http.StatusCreated, made)
}

func (s *server) patchAPIKey(c *call) error {
	b, patch, err := readAPIKeyPatch(c)
	if err != nil {
		return err
	}
	if len(b.broken) > 0 {
		existing, err := s.opt.APIKeys.APIKey(c.r.Context(), c.accountID(), c.r.PathValue("id"))
		if err != nil {
			return err
		}
		_, err = patch.Apply(*existing, s.opt.Clock()) // to list all rules at once
		return b.err(err)
	}
	patched, err := s.opt.APIKeys.PatchAPIKey(c.r.Context(), c.caller(), c.r.PathValue("id"), patch)
	if err != nil {
		return err
	}
	s.fillAPIKey(patched)
	return c.writeJSON(http.StatusOK, patched)
}

func (s *server) deleteAPIKey(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	if err := s.opt.APIKeys.DeleteAPIKey(c.r.Context(), c.caller(), c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// readAPIKeyPatch reads the fields of an API key. owner_id has no meaning here: there are no users
// that could own one.
func readAPIKeyPatch(c *call) (*body, account.APIKeyPatch, error) {
	var p account.APIKeyPatch
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
	if texts := o.textsOr("scopes", []string{string(account.ScopeAdmin)}); texts != nil {
		scopes := make([]account.Scope, len(*texts))
		for i, text := range *texts {
			scopes[i] = account.Scope(text)
		}
		p.Scopes = &scopes
	}
	p.Expiry.At, p.Expiry.Set = o.time("expires_at")
	o.ignored("owner_id")
	o.done()
	return b, p, nil
}

func (s *server) fillAPIKey(v *account.APIKey) { v.URI = s.uri("api_keys", v.ID) }
