// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

var apiKeys = credentialTable[account.APIKey]{
	table: newTable(table[account.APIKey]{
		name: "api_keys", noun: "API key",
		columns: func(k *account.APIKey) []column {
			return []column{
				{"id", &k.ID, insertOnly},
				{"account_id", &k.AccountID, insertOnly},
				{"description", &k.Description, updatable},
				{"metadata", &k.Metadata, updatable},
				{"scopes", jsonField(&k.Scopes), updatable},
				{"acl", jsonField(&k.ACL), updatable},
				{"cluster_uid", &k.ClusterUID, updatable},
				{"created_at", timeField(&k.CreatedAt), insertOnly},
				{"expires_at", optionalTimeField(&k.ExpiresAt), updatable},
				{"last_used_at", optionalTimeField(&k.LastUsedAt), insertOnly},
			}
		},
		created: account.AuditAPIKeyCreated, updated: account.AuditAPIKeyUpdated, deleted: account.AuditAPIKeyDeleted,
		details: apiKeyDetails,
	}),
	prefix:    account.APIKeyPrefix,
	expiresAt: func(k *account.APIKey) *time.Time { return k.ExpiresAt },
	recordUse: apiKeyUsed,
}

func apiKeyDetails(k *account.APIKey) map[string]string {
	details := map[string]string{"description": k.Description}
	if k.ClusterUID != "" {
		details["cluster_uid"] = k.ClusterUID
	}
	return details
}

// CreateAPIKey implements account.APIKeys. CodeNotFound for an unknown account.
func (cr *Credentials) CreateAPIKey(
	ctx context.Context, by account.Caller, p account.APIKeyPatch,
) (*account.APIKey, error) {
	secret := account.NewSecret(account.APIKeyPrefix)
	key, err := writeResult(ctx, cr.db, "creating an API key", func(t *tx) (*account.APIKey, error) {
		if err := apiKeys.checkLimit(t, by.AccountID, cr.maxKeys, deleteUnused); err != nil {
			return nil, err
		}
		return cr.createAPIKey(t, by, p, secret)
	})
	if err != nil {
		return nil, err
	}
	key.Token = &secret
	return key, nil
}

// IssueAPIKey is CreateAPIKey for the commands: the secret is returned beside the key. No scopes
// mean admin; a nil expires means never.
func (cr *Credentials) IssueAPIKey(
	ctx context.Context, accountID, description string, scopes []account.Scope, expires *time.Time,
) (key *account.APIKey, secret string, err error) {
	p := account.APIKeyPatch{Description: &description, Expiry: account.ExpiryPatch{Set: true, At: expires}}
	if len(scopes) > 0 {
		p.Scopes = &scopes
	}
	key, err = cr.CreateAPIKey(ctx, account.Caller{AccountID: accountID}, p)
	if err != nil {
		return nil, "", err
	}
	secret, key.Token = *key.Token, nil
	return key, secret, nil
}

func (cr *Credentials) createAPIKey(
	t *tx, by account.Caller, p account.APIKeyPatch, secret string,
) (*account.APIKey, error) {
	if err := cr.accounts.exists(t, by.AccountID); err != nil {
		return nil, err
	}
	key, err := p.Apply(account.APIKey{ID: account.NewID(account.PrefixAPIKey, t.now), AccountID: by.AccountID,
		CreatedAt: t.now, Scopes: account.DefaultScopes()}, t.now)
	if err != nil {
		return nil, err
	}
	return &key, apiKeys.create(t, by, &key, secret)
}

// APIKeyBySecret implements account.Authenticator. There is no cache: a deleted key is unknown at
// once.
func (cr *Credentials) APIKeyBySecret(ctx context.Context, secret string) (*account.APIKey, error) {
	return apiKeys.bySecret(ctx, cr, secret, authtokens.noun, authtokens.prefix)
}

// APIKey implements account.APIKeys.
func (cr *Credentials) APIKey(ctx context.Context, accountID, id string) (*account.APIKey, error) {
	return readRow(ctx, cr.db, &apiKeys.table, accountID, id)
}

// ListAPIKeys implements account.APIKeys.
func (cr *Credentials) ListAPIKeys(
	ctx context.Context, accountID string, p account.Page,
) (page []account.APIKey, more bool, err error) {
	return readPage(ctx, cr.db, &apiKeys.table, accountID, p)
}

// AllAPIKeys returns all API keys of an account, newest first. CodeNotFound for an unknown account.
func (cr *Credentials) AllAPIKeys(ctx context.Context, accountID string) ([]account.APIKey, error) {
	return apiKeys.allOf(ctx, cr, accountID)
}

// PatchAPIKey implements account.APIKeys.
func (cr *Credentials) PatchAPIKey(
	ctx context.Context, by account.Caller, id string, p account.APIKeyPatch,
) (*account.APIKey, error) {
	return patchRow(ctx, cr.db, &apiKeys.table, by, id, func(t *tx, existing account.APIKey) (account.APIKey, error) {
		patched, err := p.Apply(existing, t.now)
		if err == nil && existing.HasAnyScope() && !patched.HasAnyScope() {
			err = cr.requireOtherAdmin(t, &existing)
		}
		return patched, err
	})
}

// DeleteAPIKey implements account.APIKeys.
func (cr *Credentials) DeleteAPIKey(ctx context.Context, by account.Caller, id string) error {
	return deleteRow(ctx, cr.db, &apiKeys.table, by, id, cr.requireOtherAdmin)
}

// requireOtherAdmin returns CodeInUse for the account's last admin key that has not expired.
func (cr *Credentials) requireOtherAdmin(t *tx, key *account.APIKey) error {
	if !key.HasAnyScope() || !key.Valid(t.now) { // HasAnyScope of no scopes asks for admin
		return nil
	}
	keys, err := apiKeys.all(t, `account_id = $1`, key.AccountID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(keys, func(k account.APIKey) bool {
		return k.ID != key.ID && k.HasAnyScope() && k.Valid(t.now)
	}) {
		return nil
	}
	return account.Errorf(account.CodeInUse,
		"API key %s is the account's last admin key; create another admin key first",
		key.ID)
}
