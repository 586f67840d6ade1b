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
		micros(made.CreatedAt))
}

// ListAccounts returns all accounts, oldest first.
func (as *Accounts) ListAccounts(ctx context.Context) ([]account.Account, error) {
	return result(ctx, as.db, "listing accounts", func(t *tx) ([]account.Account, error) {
		return sqldb.List(t.Tx, func(a *account.Account) []any {
			return []any{&a.ID, &a.Name, timeField(&a.CreatedAt)}
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
