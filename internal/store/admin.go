// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// DefaultAccount is the name of the account that Bootstrap makes.
const DefaultAccount = "default"

// CreateAccount makes an account. A name that is taken is CodeInUse; an empty or too long one CodeInvalid.
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
	if name == "" || len(name) > account.MaxName || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' }) {
		return nil, account.Invalid("name", account.Shorten(name), fmt.Sprintf("must have 1 to %d bytes of text on one line", account.MaxName))
	}
	var taken int
	if err := t.row(`SELECT COUNT(*) FROM accounts WHERE name = $1`, name).Scan(&taken); err != nil {
		return nil, err
	}
	if taken > 0 {
		return nil, account.Errorf(account.CodeInUse, "there is an account %q already; choose another name", name)
	}
	made := account.Account{ID: account.NewID(account.PrefixAccount, t.now), Name: name, CreatedAt: t.now}
	return &made, t.exec(`INSERT INTO accounts (id, name, created_at) VALUES ($1, $2, $3)`, made.ID, made.Name, micros(made.CreatedAt))
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

// CreateAPIKey makes an API key; the secret is returned this once and only its hash is stored. No scopes mean admin; a nil expires means
// never. CodeNotFound for an unknown account.
func (s *Store) CreateAPIKey(ctx context.Context, accountID, description string, scopes []account.Scope, expires *time.Time) (
	key *account.APIKey, secret string, err error) {
	secret = account.NewSecret(account.APIKeyPrefix)
	err = s.write(ctx, "creating an API key", func(t *tx) error {
		key, err = t.createAPIKey(accountID, description, scopes, expires, secret)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return key, secret, nil
}

func (t *tx) createAPIKey(accountID, description string, scopes []account.Scope, expires *time.Time, secret string) (*account.APIKey, error) {
	if len(scopes) == 0 {
		scopes = []account.Scope{account.ScopeAdmin}
	}
	if err := errors.Join(account.ValidateScopes(scopes), account.ValidateDescription(description), t.accountExists(accountID)); err != nil {
		return nil, err
	}
	if expires != nil && !expires.After(t.now) {
		return nil, account.Invalid("expires_at", expires.Format(time.RFC3339), "must lie in the future")
	}
	encoded, err := json.Marshal(scopes)
	if err != nil {
		return nil, fmt.Errorf("encoding scopes: %w", err)
	}
	id := account.NewID(account.PrefixAPIKey, t.now)
	err = t.exec(`INSERT INTO api_keys (id, account_id, description, scopes, secret_hash, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		id, accountID, description, string(encoded), account.HashSecret(secret), micros(t.now), microsOf(expires))
	if err != nil {
		return nil, err
	}
	key, err := scanAPIKey(t.row(`SELECT `+apiKeyColumns+` FROM api_keys WHERE id = $1`, id))
	return &key, err
}

// ListAPIKeys returns the API keys of an account, newest first.
func (s *Store) ListAPIKeys(ctx context.Context, accountID string) ([]account.APIKey, error) {
	var all []account.APIKey
	err := s.read(ctx, "listing API keys", func(t *tx) (err error) {
		if err := t.accountExists(accountID); err != nil {
			return err
		}
		all, err = t.apiKeys(accountID)
		return err
	})
	return all, err
}

func (t *tx) apiKeys(accountID string) ([]account.APIKey, error) {
	var all []account.APIKey
	err := t.each(func(from scanner) error {
		k, err := scanAPIKey(from)
		all = append(all, k)
		return err
	}, `SELECT `+apiKeyColumns+` FROM api_keys WHERE account_id = $1 ORDER BY id DESC`, accountID)
	return all, err
}

// DeleteAPIKey deletes an API key; what it has open ends within a second. The account's last admin key that has not expired stays:
// CodeInUse. Unknown: CodeNotFound.
func (s *Store) DeleteAPIKey(ctx context.Context, accountID, id string) error {
	return s.write(ctx, "deleting an API key", func(t *tx) error {
		keys, err := t.apiKeys(accountID)
		if err != nil {
			return err
		}
		found, otherAdmin, admin := false, false, false
		for _, k := range keys {
			live := k.Has() && (k.ExpiresAt == nil || k.ExpiresAt.After(t.now)) // Has without scopes asks for admin
			found = found || k.ID == id
			admin = admin || k.ID == id && live
			otherAdmin = otherAdmin || k.ID != id && live
		}
		switch {
		case !found:
			return notFound("API key", id)
		case admin && !otherAdmin:
			return account.Errorf(account.CodeInUse, "API key %s is the account's last admin key; create another admin key first", id)
		}
		return t.exec(`DELETE FROM api_keys WHERE account_id = $1 AND id = $2`, accountID, id)
	})
}

// CreateAuthtoken makes an authtoken; the secret is returned this once. Without rules it may bind anything and connect as nothing.
func (s *Store) CreateAuthtoken(ctx context.Context, accountID, description string, acl []string) (
	token *account.Authtoken, secret string, err error) {
	secret = account.NewSecret(account.AuthtokenPrefix)
	err = s.write(ctx, "creating an authtoken", func(t *tx) error {
		token, err = t.createAuthtoken(accountID, description, acl, secret)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return token, secret, nil
}

func (t *tx) createAuthtoken(accountID, description string, acl []string, secret string) (*account.Authtoken, error) {
	if len(acl) == 0 {
		acl = []string{"bind:*"}
	}
	normal, err := account.NormaliseACL(acl)
	if err := errors.Join(err, account.ValidateDescription(description), t.accountExists(accountID)); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(normal)
	if err != nil {
		return nil, fmt.Errorf("encoding ACL: %w", err)
	}
	id := account.NewID(account.PrefixCredential, t.now)
	err = t.exec(`INSERT INTO authtokens (id, account_id, description, acl, secret_hash, created_at) VALUES ($1, $2, $3, $4, $5, $6)`,
		id, accountID, description, string(encoded), account.HashSecret(secret), micros(t.now))
	if err != nil {
		return nil, err
	}
	token, err := scanAuthtoken(t.row(`SELECT `+authtokenColumns+` FROM authtokens WHERE id = $1`, id))
	return &token, err
}

// ListAuthtokens returns the authtokens of an account, newest first.
func (s *Store) ListAuthtokens(ctx context.Context, accountID string) ([]account.Authtoken, error) {
	var all []account.Authtoken
	err := s.read(ctx, "listing authtokens", func(t *tx) error {
		if err := t.accountExists(accountID); err != nil {
			return err
		}
		return t.each(func(from scanner) error {
			a, err := scanAuthtoken(from)
			all = append(all, a)
			return err
		}, `SELECT `+authtokenColumns+` FROM authtokens WHERE account_id = $1 ORDER BY id DESC`, accountID)
	})
	return all, err
}

// DeleteAuthtoken deletes an authtoken; sessions that it opened end within a second. Unknown: CodeNotFound.
func (s *Store) DeleteAuthtoken(ctx context.Context, accountID, id string) error {
	return s.write(ctx, "deleting an authtoken", func(t *tx) error {
		var found string
		err := t.row(`DELETE FROM authtokens WHERE account_id = $1 AND id = $2 RETURNING id`, accountID, id).Scan(&found)
		if errors.Is(err, sql.ErrNoRows) {
			return notFound("authtoken", id)
		}
		return err
	})
}

func (t *tx) accountExists(id string) error {
	var found string
	err := t.row(`SELECT id FROM accounts WHERE id = $1`, id).Scan(&found)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Errorf(account.CodeNotFound, "there is no account %q", account.Shorten(id))
	}
	return err
}
