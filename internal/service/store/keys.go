// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

var apiKeys = credentialTable[account.APIKey]{
	table: newTable(table[account.APIKey]{
		name: "api_keys", noun: "API key",
		columns: func(k *account.APIKey) []sqldb.Column {
			return []sqldb.Column{
				sqldb.Fixed("id", &k.ID),
				sqldb.Fixed("account_id", &k.AccountID),
				sqldb.Updatable("description", &k.Description),
				sqldb.Updatable("metadata", &k.Metadata),
				sqldb.Updatable("scopes", sqldb.JSONField(&k.Scopes)),
				sqldb.Updatable("acl", sqldb.JSONField(&k.ACL)),
				sqldb.Updatable("cluster_uid", &k.ClusterUID),
				sqldb.Fixed("created_at", sqldb.TimeField(&k.CreatedAt)),
				sqldb.Updatable("expires_at", sqldb.OptionalTimeField(&k.ExpiresAt)),
				sqldb.Fixed("last_used_at", sqldb.OptionalTimeField(&k.LastUsedAt)),
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

var authtokens = credentialTable[account.Authtoken]{
	table: newTable(table[account.Authtoken]{
		name: "authtokens", noun: "authtoken",
		columns: func(a *account.Authtoken) []sqldb.Column {
			return []sqldb.Column{
				sqldb.Fixed("id", &a.ID),
				sqldb.Fixed("account_id", &a.AccountID),
				sqldb.Updatable("description", &a.Description),
				sqldb.Updatable("metadata", &a.Metadata),
				sqldb.Updatable("acl", sqldb.JSONField(&a.ACL)),
				sqldb.Fixed("created_at", sqldb.TimeField(&a.CreatedAt)),
				sqldb.Updatable("expires_at", sqldb.OptionalTimeField(&a.ExpiresAt)),
				sqldb.Fixed("last_used_at", sqldb.OptionalTimeField(&a.LastUsedAt)),
			}
		},
		created: account.AuditCredentialCreated, updated: account.AuditCredentialUpdated,
		deleted: account.AuditCredentialDeleted,
		details: func(a *account.Authtoken) map[string]string {
			return map[string]string{"description": a.Description}
		},
	}),
	prefix:    account.AuthtokenPrefix,
	expiresAt: func(a *account.Authtoken) *time.Time { return a.ExpiresAt },
	recordUse: authtokenUsed,
}

// CreateAuthtoken implements account.Authtokens. CodeNotFound for an unknown account.
func (cr *Credentials) CreateAuthtoken(
	ctx context.Context, by account.Caller, p account.AuthtokenPatch,
) (*account.Authtoken, error) {
	secret := account.NewSecret(account.AuthtokenPrefix)
	token, err := writeResult(ctx, cr.db, "creating an authtoken", func(t *tx) (*account.Authtoken, error) {
		if err := authtokens.checkLimit(t, by.AccountID, cr.maxTokens, deleteUnused); err != nil {
			return nil, err
		}
		return cr.createAuthtoken(t, by, p, secret)
	})
	if err != nil {
		return nil, err
	}
	token.Token = &secret
	return token, nil
}

// IssueAuthtoken is CreateAuthtoken for the commands: the secret is returned beside the token. No
// rules mean account.DefaultACL.
func (cr *Credentials) IssueAuthtoken(
	ctx context.Context, accountID, description string, acl []string,
) (token *account.Authtoken, secret string, err error) {
	p := account.AuthtokenPatch{Description: &description}
	if len(acl) > 0 {
		p.ACL = &acl
	}
	token, err = cr.CreateAuthtoken(ctx, account.Caller{AccountID: accountID}, p)
	if err != nil {
		return nil, "", err
	}
	secret, token.Token = *token.Token, nil
	return token, secret, nil
}

func (cr *Credentials) createAuthtoken(
	t *tx, by account.Caller, p account.AuthtokenPatch, secret string,
) (*account.Authtoken, error) {
	if err := cr.accounts.exists(t, by.AccountID); err != nil {
		return nil, err
	}
	token, err := p.Apply(account.Authtoken{ID: account.NewID(account.PrefixCredential, t.now), AccountID: by.AccountID,
		CreatedAt: t.now, ACL: account.DefaultACL()}, t.now)
	if err != nil {
		return nil, err
	}
	return &token, authtokens.create(t, by, &token, secret)
}

// Authtoken implements account.Authtokens.
func (cr *Credentials) Authtoken(ctx context.Context, accountID, id string) (*account.Authtoken, error) {
	return readRow(ctx, cr.db, &authtokens.table, accountID, id)
}

// ListAuthtokens implements account.Authtokens.
func (cr *Credentials) ListAuthtokens(
	ctx context.Context, accountID string, p account.Page,
) (page []account.Authtoken, more bool, err error) {
	return readPage(ctx, cr.db, &authtokens.table, accountID, p)
}

// AllAuthtokens returns all authtokens of an account, newest first. CodeNotFound for an unknown
// account.
func (cr *Credentials) AllAuthtokens(ctx context.Context, accountID string) ([]account.Authtoken, error) {
	return authtokens.allOf(ctx, cr, accountID)
}

// PatchAuthtoken implements account.Authtokens.
func (cr *Credentials) PatchAuthtoken(
	ctx context.Context, by account.Caller, id string, p account.AuthtokenPatch,
) (*account.Authtoken, error) {
	return patchRow(ctx, cr.db, &authtokens.table, by, id, func(t *tx, a account.Authtoken) (account.Authtoken, error) {
		return p.Apply(a, t.now)
	})
}

// DeleteAuthtoken implements account.Authtokens.
func (cr *Credentials) DeleteAuthtoken(ctx context.Context, by account.Caller, id string) error {
	return deleteRow(ctx, cr.db, &authtokens.table, by, id, nil)
}
