// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

var authtokens = credentialTable[account.Authtoken]{
	table: newTable(table[account.Authtoken]{
		name: "authtokens", noun: "authtoken",
		columns: func(a *account.Authtoken) []column {
			return []column{
				{"id", &a.ID, insertOnly},
				{"account_id", &a.AccountID, insertOnly},
				{"description", &a.Description, updatable},
				{"metadata", &a.Metadata, updatable},
				{"acl", jsonField(&a.ACL), updatable},
				{"created_at", timeField(&a.CreatedAt), insertOnly},
				{"expires_at", optionalTimeField(&a.ExpiresAt), updatable},
				{"last_used_at", optionalTimeField(&a.LastUsedAt), insertOnly},
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
