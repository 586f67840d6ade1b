// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
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
	var taken int
	if err := t.row(`SELECT COUNT(*) FROM accounts WHERE name = $1`, name).Scan(&taken); err != nil {
		return nil, err
	}
	if taken > 0 {
		return nil, account.Errorf(account.CodeInUse, "there is an account %q already; choose another name", name)
	}
	made := account.Account{ID: account.NewID(account.PrefixAccount, t.now), Name: name, CreatedAt: t.now}
	return &made, t.exec(`INSERT INTO accounts (id, name, created_at) VALUES ($1, $2, $3)`, made.ID, made.Name,
		micros(made.CreatedAt))
}

// ListAccounts returns all accounts, oldest first.
func (s *Store) ListAccounts(ctx context.Context) ([]account.Account, error) {
	var all []account.Account
	err := s.read(ctx, "listing accounts", func(t *tx) error {
		return t.each(func(from scanner) error {
			var a account.Account
			var made int64
			err := from.Scan(&a.ID, &a.Name, &made)
			a.CreatedAt = fromMicros(made)
			all = append(all, a)
			return err
		}, `SELECT id, name, created_at FROM accounts ORDER BY created_at, id`)
	})
	return all, err
}

func (t *tx) accountExists(id string) error {
	var found string
	err := t.row(`SELECT id FROM accounts WHERE id = $1`, id).Scan(&found)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Errorf(account.CodeNotFound, "there is no account %q", account.Shorten(id))
	}
	return err
}
