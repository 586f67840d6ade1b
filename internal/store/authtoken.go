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

	"github.com/fairlead-dev/fairlead/internal/account"
)

// CreateAuthtoken implements account.Authtokens. CodeNotFound for an unknown account.
func (s *Store) CreateAuthtoken(
	ctx context.Context, by account.Caller, p account.AuthtokenPatch,
) (*account.Authtoken, error) {
	secret := account.NewSecret(account.AuthtokenPrefix)
	var token *account.Authtoken
	err := s.write(ctx, "creating an authtoken", func(t *tx) (err error) {
		if err := t.limit("authtokens", "authtokens", by.AccountID, s.opt.MaxAuthtokens); err != nil {
			return err
		}
		token, err = t.createAuthtoken(by, p, secret)
		return err
	})
	if err != nil {
		return nil, err
	}
	token.Token = &secret
	return token, nil
}

// IssueAuthtoken is CreateAuthtoken for the commands: the secret is returned beside the token. No
// rules mean account.DefaultACL.
func (s *Store) IssueAuthtoken(ctx context.Context, accountID, description string, acl []string) (
	token *account.Authtoken, secret string, err error) {
	p := account.AuthtokenPatch{Description: &description}
	if len(acl) > 0 {
		p.ACL = &acl
	}
	token, err = s.CreateAuthtoken(ctx, account.Caller{AccountID: accountID}, p)
	if err != nil {
		return nil, "", err
	}
	secret, token.Token = *token.Token, nil
	return token, secret, nil
}

func (t *tx) createAuthtoken(by account.Caller, p account.AuthtokenPatch, secret string) (*account.Authtoken, error) {
	if err := t.accountExists(by.AccountID); err != nil {
		return nil, err
	}
	token, err := p.Apply(account.Authtoken{ID: account.NewID(account.PrefixCredential, t.now), AccountID: by.AccountID,
		CreatedAt: t.now, ACL: account.DefaultACL()}, t.now)
	if err != nil {
		return nil, err
	}
	acl, err := json.Marshal(token.ACL)
	if err != nil {
		return nil, fmt.Errorf("encoding ACL: %w", err)
	}
	t.audit(by, account.AuditCredentialCreated, token.ID, map[string]string{"description": token.Description})
	return &token,
		t.exec(`INSERT INTO authtokens (id, account_id, description, metadata, acl, secret_hash, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			token.ID, by.AccountID, token.Description, token.Metadata, string(acl), account.HashSecret(secret), micros(t.now),
			microsOf(token.ExpiresAt))
}

func (t *tx) authtoken(accountID, id string) (*account.Authtoken, error) {
	token, err := scanAuthtoken(t.row(`SELECT `+authtokenColumns+` FROM authtokens WHERE account_id = $1 AND id = $2`,
		accountID, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound("authtoken", id)
	}
	return &token, err
}

// Authtoken implements account.Authtokens.
func (s *Store) Authtoken(ctx context.Context, accountID, id string) (*account.Authtoken, error) {
	var token *account.Authtoken
	err := s.read(ctx, "reading an authtoken", func(t *tx) (err error) {
		token, err = t.authtoken(accountID, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return token, nil
}

// ListAuthtokens implements account.Authtokens.
func (s *Store) ListAuthtokens(
	ctx context.Context, accountID string, p account.Page,
) (*account.AuthtokenPage, error) {
	var page account.AuthtokenPage
	err := s.read(ctx, "listing authtokens", func(t *tx) (err error) {
		page.Authtokens, page.More, err = pageOf(t, accountID, p, authtokenColumns, "authtokens", scanAuthtoken)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &page, nil
}

// AllAuthtokens returns all authtokens of an account, newest first. CodeNotFound for an unknown
// account.
func (s *Store) AllAuthtokens(ctx context.Context, accountID string) ([]account.Authtoken, error) {
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

// PatchAuthtoken implements account.Authtokens.
func (s *Store) PatchAuthtoken(
	ctx context.Context, by account.Caller, id string, p account.AuthtokenPatch,
) (*account.Authtoken, error) {
	var patched account.Authtoken
	err := s.write(ctx, "changing an authtoken", func(t *tx) error {
		existing, err := t.authtoken(by.AccountID, id)
		if err != nil {
			return err
		}
		if patched, err = p.Apply(*existing, t.now); err != nil {
			return err
		}
		if reflect.DeepEqual(patched, *existing) {
			return nil
		}
		acl, err := json.Marshal(patched.ACL)
		if err != nil {
			return fmt.Errorf("encoding ACL: %w", err)
		}
		t.audit(by, account.AuditCredentialUpdated, id, map[string]string{"description": patched.Description})
		return t.exec(
			`UPDATE authtokens SET description = $1, metadata = $2, acl = $3, expires_at = $4 WHERE account_id = $5 AND id = $6`,
			patched.Description, patched.Metadata, string(acl), microsOf(patched.ExpiresAt), by.AccountID, id)
	})
	if err != nil {
		return nil, err
	}
	return &patched, nil
}

// DeleteAuthtoken implements account.Authtokens.
func (s *Store) DeleteAuthtoken(ctx context.Context, by account.Caller, id string) error {
	return s.write(ctx, "deleting an authtoken", func(t *tx) error {
		existing, err := t.authtoken(by.AccountID, id)
		if err != nil {
			return err
		}
		t.audit(by, account.AuditCredentialDeleted, id, map[string]string{"description": existing.Description})
		return t.exec(`DELETE FROM authtokens WHERE account_id = $1 AND id = $2`, by.AccountID, id)
	})
}
