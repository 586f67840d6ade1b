// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// CreateAPIKey implements account.APIKeys. CodeNotFound for an unknown account.
func (s *Store) CreateAPIKey(ctx context.Context, by account.Caller, p account.APIKeyPatch) (*account.APIKey, error) {
	secret := account.NewSecret(account.APIKeyPrefix)
	var key *account.APIKey
	err := s.write(ctx, "creating an API key", func(t *tx) (err error) {
		if err := t.limit("api_keys", "API keys", by.AccountID, s.opt.MaxAPIKeys); err != nil {
			return err
		}
		key, err = t.createAPIKey(by, p, secret)
		return err
	})
	if err != nil {
		return nil, err
	}
	key.Token = &secret
	return key, nil
}

// IssueAPIKey is CreateAPIKey for the commands: the secret is returned beside the key. No scopes
// mean admin; a nil expires means never.
func (s *Store) IssueAPIKey(ctx context.Context, accountID, description string, scopes []account.Scope,
	expires *time.Time) (
	key *account.APIKey, secret string, err error) {
	p := account.APIKeyPatch{Description: &description, Expiry: account.ExpiryPatch{Set: true, At: expires}}
	if len(scopes) > 0 {
		p.Scopes = &scopes
	}
	key, err = s.CreateAPIKey(ctx, account.Caller{AccountID: accountID}, p)
	if err != nil {
		return nil, "", err
	}
	secret, key.Token = *key.Token, nil
	return key, secret, nil
}

func (t *tx) createAPIKey(by account.Caller, p account.APIKeyPatch, secret string) (*account.APIKey, error) {
	if err := t.accountExists(by.AccountID); err != nil {
		return nil, err
	}
	key, err := p.Apply(account.APIKey{ID: account.NewID(account.PrefixAPIKey, t.now), AccountID: by.AccountID,
		CreatedAt: t.now, Scopes: account.DefaultScopes()}, t.now)
	if err != nil {
		return nil, err
	}
	scopes, err := json.Marshal(key.Scopes)
	if err != nil {
		return nil, fmt.Errorf("encoding scopes: %w", err)
	}
	t.audit(by, account.AuditAPIKeyCreated, key.ID, map[string]string{"description": key.Description})
	return &key,
		t.exec(`INSERT INTO api_keys (id, account_id, description, metadata, scopes, secret_hash, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			key.ID, by.AccountID, key.Description, key.Metadata, string(scopes), account.HashSecret(secret), micros(t.now),
			microsOf(key.ExpiresAt))
}

func (t *tx) apiKey(accountID, id string) (*account.APIKey, error) {
	key, err := scanAPIKey(t.row(`SELECT `+apiKeyColumns+` FROM api_keys WHERE account_id = $1 AND id = $2`, accountID,
		id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound("API key", id)
	}
	return &key, err
}

// APIKey implements account.APIKeys.
func (s *Store) APIKey(ctx context.Context, accountID, id string) (*account.APIKey, error) {
	var key *account.APIKey
	err := s.read(ctx, "reading an API key", func(t *tx) (err error) {
		key, err = t.apiKey(accountID, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return key, nil
}

// ListAPIKeys implements account.APIKeys.
func (s *Store) ListAPIKeys(ctx context.Context, accountID string, p account.Page) (*account.APIKeyPage, error) {
	var page account.APIKeyPage
	err := s.read(ctx, "listing API keys", func(t *tx) (err error) {
		page.Keys, page.More, err = pageOf(t, accountID, p, apiKeyColumns, "api_keys", scanAPIKey)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &page, nil
}

// AllAPIKeys returns all API keys of an account, newest first. CodeNotFound for an unknown
// account.
func (s *Store) AllAPIKeys(ctx context.Context, accountID string) ([]account.APIKey, error) {
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

// PatchAPIKey implements account.APIKeys.
func (s *Store) PatchAPIKey(
	ctx context.Context, by account.Caller, id string, p account.APIKeyPatch,
) (*account.APIKey, error) {
	var patched account.APIKey
	err := s.write(ctx, "changing an API key", func(t *tx) error {
		existing, err := t.apiKey(by.AccountID, id)
		if err != nil {
			return err
		}
		if patched, err = p.Apply(*existing, t.now); err != nil {
			return err
		}
		if reflect.DeepEqual(patched, *existing) {
			return nil
		}
		if existing.HasAnyScope() && !patched.HasAnyScope() {
			if err := t.keepAnAdmin(existing); err != nil {
				return err
			}
		}
		scopes, err := json.Marshal(patched.Scopes)
		if err != nil {
			return fmt.Errorf("encoding scopes: %w", err)
		}
		t.audit(by, account.AuditAPIKeyUpdated, id, map[string]string{"description": patched.Description})
		return t.exec(
			`UPDATE api_keys SET description = $1, metadata = $2, scopes = $3, expires_at = $4 WHERE account_id = $5 AND id = $6`,
			patched.Description, patched.Metadata, string(scopes), microsOf(patched.ExpiresAt), by.AccountID, id)
	})
	if err != nil {
		return nil, err
	}
	return &patched, nil
}

// DeleteAPIKey implements account.APIKeys.
func (s *Store) DeleteAPIKey(ctx context.Context, by account.Caller, id string) error {
	return s.write(ctx, "deleting an API key", func(t *tx) error {
		key, err := t.apiKey(by.AccountID, id)
		if err != nil {
			return err
		}
		if err := t.keepAnAdmin(key); err != nil {
			return err
		}
		t.audit(by, account.AuditAPIKeyDeleted, id, map[string]string{"description": key.Description})
		return t.exec(`DELETE FROM api_keys WHERE account_id = $1 AND id = $2`, by.AccountID, id)
	})
}

// keepAnAdmin refuses what would take from the account its last admin key that has not expired.
func (t *tx) keepAnAdmin(key *account.APIKey) error {
	if !key.HasAnyScope() || !key.Valid(t.now) { // Has without scopes asks for admin
		return nil
	}
	keys, err := t.apiKeys(key.AccountID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(keys, func(k account.APIKey) bool {
		return k.ID != key.ID && k.HasAnyScope() && k.Valid(t.now)
	}) {
		return nil
	}
	return account.Errorf(account.CodeInUse, "API key %s is the account's last admin key; create another admin key first",
		key.ID)
}
