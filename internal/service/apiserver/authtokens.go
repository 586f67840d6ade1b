// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/fairlead-dev/fairlead/internal/account"
)

type authtokenList struct {
	Credentials []account.Authtoken `json:"credentials"`
	pageLinks
}

// authtokens serves authtokens. An answer to a create holds the secret, and no later answer does.
func (s *server) authtokens() writable[account.Authtoken, account.AuthtokenPatch] {
	return writable[account.Authtoken, account.AuthtokenPatch]{
		kind: newKind(func(a *account.Authtoken) string { return a.ID },
			func(a *account.Authtoken) { a.URI = s.uri("credentials", a.ID) },
			func(tokens []account.Authtoken, l pageLinks) any { return authtokenList{tokens, l} }, "credentials"),
		readPatch: readAuthtokenPatch, defaults: account.Authtoken{ACL: account.DefaultACL()},
		check: func(a account.Authtoken, p account.AuthtokenPatch) error {
			_, err := p.Apply(a, s.opt.Clock())
			return err
		},
		read:   inAccount(s.opt.Store.Authtoken),
		create: s.opt.Store.CreateAuthtoken, update: s.opt.Store.PatchAuthtoken,
	}
}

func (s *server) listAuthtokens(c *call, page account.Page) ([]account.Authtoken, bool, error) {
	found, err := s.opt.Store.ListAuthtokens(c.Context(), c.AccountID(), page)
	if err != nil {
		return nil, false, err
	}
	return found.Authtokens, found.More, nil
}

func readAuthtokenPatch(o *object) account.AuthtokenPatch {
	p := account.AuthtokenPatch{ACL: o.textsOrDefault("acl", account.DefaultACL())}
	p.Description, p.Metadata, p.Expiry = readCredentialFields(o)
	return p
}
