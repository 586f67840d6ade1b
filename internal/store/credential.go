// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	apiKeyColumns    = `id, account_id, description, metadata, scopes, created_at, expires_at, last_used_at`
	authtokenColumns = `id, account_id, description, metadata, acl, created_at, expires_at, last_used_at`
)

func scanAPIKey(from scanner) (account.APIKey, error) {
	var k account.APIKey
	var scopes string
	var made, expires, used int64
	if err := from.Scan(&k.ID, &k.AccountID, &k.Description, &k.Metadata, &scopes, &made, &expires, &used); err != nil {
		return k, err
	}
	k.CreatedAt, k.ExpiresAt, k.LastUsedAt = fromMicros(made), timePointer(expires), timePointer(used)
	if err := json.Unmarshal([]byte(scopes), &k.Scopes); err != nil {
		return k, fmt.Errorf("decoding scopes of API key %s: %w", k.ID, err)
	}
	return k, nil
}

func scanAuthtoken(from scanner) (account.Authtoken, error) {
	var a account.Authtoken
	var acl string
	var made, expires, used int64
	if err := from.Scan(&a.ID, &a.AccountID, &a.Description, &a.Metadata, &acl, &made, &expires, &used); err != nil {
		return a, err
	}
	a.CreatedAt, a.ExpiresAt, a.LastUsedAt = fromMicros(made), timePointer(expires), timePointer(used)
	if err := json.Unmarshal([]byte(acl), &a.ACL); err != nil {
		return a, fmt.Errorf("decoding ACL of authtoken %s: %w", a.ID, err)
	}
	return a, nil
}

// APIKeyBySecret implements account.Authenticator. There is no cache: a deleted key is unknown at
// once.
func (s *Store) APIKeyBySecret(ctx context.Context, secret string) (*account.APIKey, error) {
	switch {
	case secret == "":
		return nil, account.Errorf(account.CodeNoCredential, "an API key is required")
	case strings.HasPrefix(secret, account.AuthtokenPrefix):
		return nil, account.Errorf(account.CodeWrongKind, "this is an authtoken (%s…); an API key (%s…) is required here",
			account.AuthtokenPrefix, account.APIKeyPrefix)
	}
	var key account.APIKey
	err := s.read(ctx, "looking for an API key", func(t *tx) (err error) {
		key, err = scanAPIKey(t.row(`SELECT `+apiKeyColumns+` FROM api_keys WHERE secret_hash = $1`,
			account.HashSecret(secret)))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return account.Errorf(account.CodeUnknownCredential, "the API key is not known; it may have been deleted")
		case err == nil && !key.Valid(t.now):
			return account.Errorf(account.CodeExpired, "the API key expired at %s", key.ExpiresAt.Format(time.RFC3339))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.touch(touchAPIKey, key.ID)
	return &key, nil
}

// AuthtokenBySecret implements account.Authenticator.
func (s *Store) AuthtokenBySecret(ctx context.Context, secret string) (*account.Authtoken, error) {
	switch {
	case secret == "":
		return nil, account.Errorf(account.CodeNoCredential, "an authtoken is required")
	case strings.HasPrefix(secret, account.APIKeyPrefix):
		return nil, account.Errorf(account.CodeWrongKind, "this is an API key (%s…); an authtoken (%s…) is required here",
			account.APIKeyPrefix, account.AuthtokenPrefix)
	}
	var token account.Authtoken
	err := s.read(ctx, "looking for an authtoken", func(t *tx) (err error) {
		token, err = scanAuthtoken(t.row(`SELECT `+authtokenColumns+` FROM authtokens WHERE secret_hash = $1`,
			account.HashSecret(secret)))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return account.Errorf(account.CodeUnknownCredential, "the authtoken is not known; it may have been deleted")
		case err == nil && token.ExpiresAt != nil && !token.ExpiresAt.After(t.now):
			return account.Errorf(account.CodeExpired, "the authtoken expired at %s", token.ExpiresAt.Format(time.RFC3339))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.touch(touchAuthtoken, token.ID)
	return &token, nil
}

// LiveCredentials implements account.Authenticator.
func (s *Store) LiveCredentials(ctx context.Context, ids []string) (map[string]bool, error) {
	alive := make(map[string]bool, len(ids))
	err := s.read(ctx, "looking for live credentials", func(t *tx) error {
		for some := range slices.Chunk(ids, 500) {
			if err := t.aliveOf(some, alive); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return alive, nil
}

func (t *tx) aliveOf(ids []string, alive map[string]bool) error {
	in, args := inList(ids, micros(t.now))
	const live = ` WHERE (expires_at = 0 OR expires_at > $1) AND id IN `
	return t.each(func(from scanner) error {
		var id string
		err := from.Scan(&id)
		alive[id] = true
		return err
	}, `SELECT id FROM api_keys`+live+in+` UNION ALL SELECT id FROM authtokens`+live+in, args...)
}

// LiveAuthtokens implements account.Authenticator.
func (s *Store) LiveAuthtokens(ctx context.Context, ids []string) (map[string]*account.Authtoken, error) {
	live := make(map[string]*account.Authtoken, len(ids))
	err := s.read(ctx, "looking for live authtokens", func(t *tx) error {
		for some := range slices.Chunk(ids, 500) {
			in, args := inList(some, micros(t.now))
			err := t.each(func(from scanner) error {
				a, err := scanAuthtoken(from)
				live[a.ID] = &a
				return err
			}, `SELECT `+authtokenColumns+` FROM authtokens WHERE (expires_at = 0 OR expires_at > $1) AND id IN `+in, args...)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return live, nil
}

// inList returns the marks of an IN list, "($2, $3)", and all arguments: the first, then the ids.
func inList(ids []string, first any) (in string, args []any) {
	args = append(args, first)
	marks := make([]string, len(ids))
	for i, id := range ids {
		args = append(args, id)
		marks[i] = fmt.Sprintf("$%d", i+2)
	}
	return `(` + strings.Join(marks, ", ") + `)`, args
}

// pageOf reads a page of a table's rows of the account, newest first.
func pageOf[T any](
	t *tx, accountID string, p account.Page, columns, table string, scan func(scanner) (T, error),
) (found []T, more bool, err error) {
	limit := pageLimit(p)
	q := query{args: []any{accountID}, text: `account_id = $1`}
	q.andIf(p.BeforeID != "", `id < `, p.BeforeID)
	found = []T{}
	err = t.each(func(from scanner) error {
		v, err := scan(from)
		found = append(found, v)
		return err
	}, `SELECT `+columns+` FROM `+table+` WHERE `+q.text+fmt.Sprintf(` ORDER BY id DESC LIMIT %d`, limit+1), q.args...)
	if more = len(found) > limit; more {
		found = found[:limit]
	}
	return found, more, err
}

// limit refuses one more row of the account in a table that has as many as it may.
func (t *tx) limit(table, what, accountID string, most int) error {
	var count int
	if err := t.row(`SELECT COUNT(*) FROM `+table+` WHERE account_id = $1`, accountID).Scan(&count); err != nil {
		return err
	}
	if count >= most {
		return account.Errorf(account.CodeLimit, "the account has %d %s, which is its limit; delete those that nobody uses",
			count, what)
	}
	return nil
}
