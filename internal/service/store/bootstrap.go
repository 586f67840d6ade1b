// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// DefaultAccount is the name of the account that Bootstrap makes.
const DefaultAccount = "default"

// Bootstrapped holds the first rows of a store that was empty. The secrets are shown this once.
type Bootstrapped struct {
	Account         account.Account
	APIKeySecret    string // scope admin
	AuthtokenSecret string // all rights
}

// Bootstrap gives an empty store one account with one admin API key and one authtoken with all
// rights. created is false, and the result nil, when the store has an account already.
func (cr *Credentials) Bootstrap(ctx context.Context) (made *Bootstrapped, created bool, err error) {
	made, err = writeResult(ctx, cr.db, "setting up the first account", func(t *tx) (*Bootstrapped, error) {
		first, err := cr.accounts.first(t)
		if err != nil || first != "" {
			return nil, err
		}
		a, err := cr.accounts.create(t, DefaultAccount)
		if err != nil {
			return nil, err
		}
		made := &Bootstrapped{Account: *a, APIKeySecret: account.NewSecret(account.APIKeyPrefix),
			AuthtokenSecret: account.NewSecret(account.AuthtokenPrefix)}
		by, description := account.Caller{AccountID: a.ID}, "first start"
		if _, err := cr.createAPIKey(t, by, account.APIKeyPatch{Description: &description},
			made.APIKeySecret); err != nil {
			return nil, err
		}
		_, err = cr.createAuthtoken(t, by, account.AuthtokenPatch{Description: &description, ACL: new(allRules())},
			made.AuthtokenSecret)
		return made, err
	})
	return made, made != nil, err
}

// EnsureAPIKey makes sure that the secret, which the administrator chose and keeps in a bootstrap
// file, is a key: if no key has it, the oldest account (made when there is none) gets an admin key
// with it. created reports whether it did. A secret of the wrong form is CodeInvalid.
func (cr *Credentials) EnsureAPIKey(ctx context.Context, secret string) (created bool, err error) {
	if err := account.ValidateSecret("bootstrap API key", account.APIKeyPrefix, secret); err != nil {
		return false, err
	}
	return cr.ensure(ctx, apiKeys.name, secret, func(t *tx, by account.Caller) error {
		_, err := cr.createAPIKey(t, by, account.APIKeyPatch{Description: new("bootstrap file")}, secret)
		return err
	})
}

// EnsureAuthtoken does for an authtoken with all rights what EnsureAPIKey does for an admin key.
func (cr *Credentials) EnsureAuthtoken(ctx context.Context, secret string) (created bool, err error) {
	if err := account.ValidateSecret("bootstrap authtoken", account.AuthtokenPrefix, secret); err != nil {
		return false, err
	}
	return cr.ensure(ctx, authtokens.name, secret, func(t *tx, by account.Caller) error {
		_, err := cr.createAuthtoken(t, by,
			account.AuthtokenPatch{Description: new("bootstrap file"), ACL: new(allRules())}, secret)
		return err
	})
}

// ensure creates a credential of the oldest account unless the table has the secret.
func (cr *Credentials) ensure(
	ctx context.Context, table, secret string, create func(t *tx, by account.Caller) error,
) (created bool, err error) {
	return writeResult(ctx, cr.db, "ensuring a bootstrap secret", func(t *tx) (bool, error) {
		hash := account.HashSecret(secret)
		if found, err := t.Exists(`SELECT id FROM `+table+` WHERE secret_hash = $1`, hash); err != nil || found {
			return false, err
		}
		first, err := cr.accounts.first(t)
		if err != nil {
			return false, err
		}
		if first == "" {
			a, err := cr.accounts.create(t, DefaultAccount)
			if err != nil {
				return false, err
			}
			first = a.ID
		}
		return true, create(t, account.Caller{AccountID: first})
	})
}

func allRules() []string { return []string{"bind:*", "connect:*"} }
