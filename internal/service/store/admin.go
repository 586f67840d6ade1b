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

// DefaultAccount is the name of the account that Bootstrap makes.
const DefaultAccount = "default"

// CreateAccount makes an account. A name that is taken is CodeInUse; an empty or too long one
// CodeInvalid.
func (s *Store) CreateAccount(ctx context.Context, name string) (*account.Account, error) {
	var made *account.Account
	err := s.write(ctx, "creating an account", func(t *tx) (err error) {
		made, err = t.createAccount(name)
		return err
	})
	return made, err
}

func (t *tx) createAccount(name string) (*account.Account, error) {
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
		micros(made.CreatedAt))
}

// ListAccounts returns all accounts, oldest first.
func (s *Store) ListAccounts(ctx context.Context) ([]account.Account, error) {
	return result(ctx, s, "listing accounts", func(t *tx) ([]account.Account, error) {
		return sqldb.List(t.Tx, func(a *account.Account) []any {
			return []any{&a.ID, &a.Name, timeField(&a.CreatedAt)}
		}, `SELECT id, name, created_at FROM accounts ORDER BY created_at, id`)
	})
}

func (t *tx) accountExists(id string) error {
	found, err := t.Exists(`SELECT id FROM accounts WHERE id = $1`, id)
	if err == nil && !found {
		return account.Errorf(account.CodeNotFound, "there is no account %q", account.Shorten(id))
	}
	return err
}

// Bootstrapped holds the first rows of a store that was empty. The secrets are shown this once.
type Bootstrapped struct {
	Account         account.Account
	APIKeySecret    string // scope admin
	AuthtokenSecret string // all rights
}

// Bootstrap gives an empty store one account with one admin API key and one authtoken with all
// rights. created is false, and the result nil, when the store has an account already.
func (s *Store) Bootstrap(ctx context.Context) (made *Bootstrapped, created bool, err error) {
	err = s.write(ctx, "setting up the first account", func(t *tx) error {
		first, err := t.firstAccount()
		if err != nil || first != "" {
			return err
		}
		a, err := t.createAccount(DefaultAccount)
		if err != nil {
			return err
		}
		made = &Bootstrapped{Account: *a, APIKeySecret: account.NewSecret(account.APIKeyPrefix),
			AuthtokenSecret: account.NewSecret(account.AuthtokenPrefix)}
		if _, err := t.createAPIKey(account.Caller{AccountID: a.ID},
			account.APIKeyPatch{Description: new("first start")},
			made.APIKeySecret); err != nil {
			return err
		}
		_, err = t.createAuthtoken(account.Caller{AccountID: a.ID},
			account.AuthtokenPatch{Description: new("first start"), ACL: new(allRules())}, made.AuthtokenSecret)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return made, made != nil, nil
}

// EnsureAPIKey makes sure that the secret, which the administrator chose and keeps in a bootstrap
// file, is a key: if no key has it, the oldest account (made when there is none) gets an admin key
// with it. created reports whether it did. A secret of the wrong form is CodeInvalid.
func (s *Store) EnsureAPIKey(ctx context.Context, secret string) (created bool, err error) {
	if err := account.ValidateSecret("bootstrap API key", account.APIKeyPrefix, secret); err != nil {
		return false, err
	}
	err = s.ensure(ctx, `SELECT id FROM api_keys WHERE secret_hash = $1`, secret, func(t *tx, accountID string) error {
		created = true
		_, err := t.createAPIKey(account.Caller{AccountID: accountID},
			account.APIKeyPatch{Description: new("bootstrap file")}, secret)
		return err
	})
	return created && err == nil, err
}

// EnsureAuthtoken does for an authtoken with all rights what EnsureAPIKey does for an admin key.
func (s *Store) EnsureAuthtoken(ctx context.Context, secret string) (created bool, err error) {
	if err := account.ValidateSecret("bootstrap authtoken", account.AuthtokenPrefix, secret); err != nil {
		return false, err
	}
	err = s.ensure(ctx, `SELECT id FROM authtokens WHERE secret_hash = $1`, secret,
		func(t *tx, accountID string) error {
			created = true
			_, err := t.createAuthtoken(account.Caller{AccountID: accountID},
				account.AuthtokenPatch{Description: new("bootstrap file"), ACL: new(allRules())}, secret)
			return err
		})
	return created && err == nil, err
}

func (s *Store) ensure(ctx context.Context, lookUp, secret string, create func(t *tx, accountID string) error) error {
	return s.write(ctx, "ensuring a bootstrap secret", func(t *tx) error {
		if found, err := t.Exists(lookUp, account.HashSecret(secret)); err != nil || found {
			return err
		}
		first, err := t.firstAccount()
		if err != nil {
			return err
		}
		if first == "" {
			a, err := t.createAccount(DefaultAccount)
			if err != nil {
				return err
			}
			first = a.ID
		}
		return create(t, first)
	})
}

func allRules() []string { return []string{"bind:*", "connect:*"} }

// firstAccount returns the id of the oldest account, "" when there is none.
func (t *tx) firstAccount() (id string, err error) {
	_, err = t.Row(`SELECT id FROM accounts ORDER BY created_at, id LIMIT 1`).Find(&id)
	return id, err
}
