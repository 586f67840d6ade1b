// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Accounts are the accounts of the store.
type Accounts struct{ db *database }

// CreateAccount makes an account. A name that is taken is CodeInUse; an empty or too long one
// CodeInvalid.
func (as *Accounts) CreateAccount(ctx context.Context, name string) (*account.Account, error) {
	return writeResult(ctx, as.db, "creating an account", func(t *tx) (*account.Account, error) {
		return as.create(t, name)
	})
}

func (as *Accounts) create(t *tx, name string) (*account.Account, error) {
	name = strings.TrimSpace(name)
	if name == "" || len(name) > account.MaxName || strings.ContainsFunc(name, func(c rune) bool {
		return c < ' ' || c == 0x7f || c == '\uFFFD'
	}) {
		return nil, account.Invalid("name", account.Shorten(name),
			fmt.Sprintf("must have 1 to %d bytes of text on one line", account.MaxName))
	}
	taken, err := t.Exists(`SELECT 1 FROM accounts WHERE name = $1`, name)
	if err != nil {
		return nil, err
	}
	if taken {
		return nil, account.Errorf(account.CodeInUse, "there is an account %q already; choose another name", name)
	}
	made := account.Account{ID: account.NewID(account.PrefixAccount, t.now), Name: name, CreatedAt: t.now}
	return &made, t.Exec(`INSERT INTO accounts (id, name, created_at) VALUES ($1, $2, $3)`, made.ID, made.Name,
		sqldb.Micros(made.CreatedAt))
}

// ListAccounts returns all accounts, oldest first.
func (as *Accounts) ListAccounts(ctx context.Context) ([]account.Account, error) {
	return result(ctx, as.db, "listing accounts", func(t *tx) ([]account.Account, error) {
		return sqldb.List(t.Tx, func(a *account.Account) []any {
			return []any{&a.ID, &a.Name, sqldb.TimeField(&a.CreatedAt)}
		}, `SELECT id, name, created_at FROM accounts ORDER BY created_at, id`)
	})
}

func (as *Accounts) exists(t *tx, id string) error {
	found, err := t.Exists(`SELECT id FROM accounts WHERE id = $1`, id)
	if err == nil && !found {
		return account.Errorf(account.CodeNotFound, "there is no account %q", account.Shorten(id))
	}
	return err
}

// first returns the id of the oldest account, "" when there is none.
func (as *Accounts) first(t *tx) (id string, err error) {
	_, err = t.Row(`SELECT id FROM accounts ORDER BY created_at, id LIMIT 1`).Find(&id)
	return id, err
}

// lock makes other changes of the account's backends and their users wait until this one is
// done. Those who wait for changes of the account are woken after it.
func (as *Accounts) lock(t *tx, accountID string) error {
	found, err := t.Exists(`UPDATE accounts SET seq = seq WHERE id = $1 RETURNING id`, accountID)
	if err == nil && !found {
		return account.Errorf(account.CodeNotFound, "there is no account %q", account.Shorten(accountID))
	}
	if _, noted := t.changes[accountID]; err == nil && !noted {
		t.changes[accountID] = nil
	}
	return err
}

// DefaultAccount is the name of the account that Bootstrap makes.
const DefaultAccount = "default"

// Bootstrapped holds the first rows of a store that was empty. The store keeps only hashes of the
// secrets.
type Bootstrapped struct {
	Account         account.Account
	APIKeySecret    string // scope admin, for a person
	AuthtokenSecret string // bind:*, for agents
}

// Bootstrap gives an empty store one account with one admin API key and one authtoken that may bind
// and not connect. created is false, and the result nil, when the store has an account already.
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
		_, err = cr.createAuthtoken(t, by, account.AuthtokenPatch{Description: &description}, made.AuthtokenSecret)
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
			account.AuthtokenPatch{Description: new("bootstrap file"), ACL: &[]string{"bind:*", "connect:*"}}, secret)
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
