// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// apiKeyHandlers serve API keys.
type apiKeyHandlers struct {
	store account.APIKeys
	uris  uris
}

// kind serves API keys. An answer to a create holds the secret, and no later answer does.
func (h *apiKeyHandlers) kind() writable[account.APIKey, account.APIKeyPatch] {
	return writable[account.APIKey, account.APIKeyPatch]{
		kind: newKind(func(k *account.APIKey) string { return k.ID },
			func(k *account.APIKey) { k.URI = h.uris.at(resource.APIKeys, k.ID) }),
		readPatch: readAPIKeyPatch, defaults: account.APIKey{Scopes: account.DefaultScopes()},
		read:   h.read,
		create: h.store.CreateAPIKey, update: h.store.PatchAPIKey,
	}
}

// list reads a page of the keys that the calling key may see: all of the account, or itself.
func (h *apiKeyHandlers) list(c *call, page account.Page) ([]account.APIKey, bool, error) {
	if c.Key.HasAnyScope(account.ScopeRead) {
		return h.store.ListAPIKeys(c.Context(), c.AccountID(), page)
	}
	if page.BeforeID == "" || c.Key.ID < page.BeforeID {
		return []account.APIKey{*c.Key}, false, nil
	}
	return []account.APIKey{}, false, nil
}

// read reads a key that the calling key may see.
func (h *apiKeyHandlers) read(c *call, id string) (*account.APIKey, error) {
	if !c.Key.HasAnyScope(account.ScopeRead) && id != c.Key.ID {
		return nil, account.Errorf(account.CodeNotFound, "there is no API key %q in this account", account.Shorten(id))
	}
	return h.store.APIKey(c.Context(), c.AccountID(), id)
}

func readAPIKeyPatch(o *object) account.APIKeyPatch {
	var p account.APIKeyPatch
	p.Description, p.Metadata, p.Expiry = readCredentialFields(o)
	if texts := o.textsOrDefault("scopes", []string{string(account.ScopeAdmin)}); texts != nil {
		scopes := make([]account.Scope, len(*texts))
		for i, text := range *texts {
			scopes[i] = account.Scope(text)
		}
		p.Scopes = &scopes
	}
	p.ACL, p.ClusterUID = o.textsOrDefault("acl", nil), o.text("cluster_uid")
	return p
}

// authtokenHandlers serve authtokens.
type authtokenHandlers struct {
	store account.Authtokens
	uris  uris
}

// kind serves authtokens. An answer to a create holds the secret, and no later answer does.
func (h *authtokenHandlers) kind() writable[account.Authtoken, account.AuthtokenPatch] {
	return writable[account.Authtoken, account.AuthtokenPatch]{
		kind: newKind(func(a *account.Authtoken) string { return a.ID },
			func(a *account.Authtoken) { a.URI = h.uris.at(resource.Credentials, a.ID) }),
		readPatch: readAuthtokenPatch, defaults: account.Authtoken{ACL: account.DefaultACL()},
		read:   inAccount(h.store.Authtoken),
		create: h.store.CreateAuthtoken, update: h.store.PatchAuthtoken,
	}
}

func readAuthtokenPatch(o *object) account.AuthtokenPatch {
	p := account.AuthtokenPatch{ACL: o.textsOrDefault("acl", account.DefaultACL())}
	p.Description, p.Metadata, p.Expiry = readCredentialFields(o)
	return p
}

// readCredentialFields reads the fields that API keys and authtokens share. owner_id is ignored:
// there are no users that could own a credential.
func readCredentialFields(o *object) (description, metadata *string, expiry account.ExpiryPatch) {
	description, metadata = o.text("description"), o.text("metadata")
	expiry.At, expiry.Set = o.time("expires_at")
	o.ignore("owner_id")
	return description, metadata, expiry
}
