// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// SignIn implements account.DashboardSessions.
func (s *Store) SignIn(ctx context.Context, key *account.APIKey, tokenHash []byte) (*account.DashboardSession, error) {
	session := &account.DashboardSession{}
	err := s.write(ctx, "signing in to the dashboard", func(t *tx) error {
		current, err := apiKeys.get(t, key.AccountID, key.ID)
		if account.CodeOf(err) == account.CodeNotFound || err == nil && !current.Valid(t.now) {
			return errSignedOut()
		}
		if err != nil {
			return err
		}
		session.Key, session.ExpiresAt = *current, t.now.Add(account.DashboardLife)
		return t.Exec(
			`INSERT INTO dashboard_sessions (token_hash, account_id, api_key_id, expires_at) VALUES ($1, $2, $3, $4)`,
			notNil(tokenHash), current.AccountID, current.ID, micros(session.ExpiresAt))
	})
	if err != nil {
		return nil, err
	}
	return session, nil
}

// DashboardSession implements account.DashboardSessions.
func (s *Store) DashboardSession(ctx context.Context, tokenHash []byte) (*account.DashboardSession, error) {
	session := &account.DashboardSession{}
	err := s.read(ctx, "looking for a dashboard session", func(t *tx) error {
		var accountID, keyID string
		var expires int64
		_, err := t.Row(`SELECT account_id, api_key_id, expires_at FROM dashboard_sessions WHERE token_hash = $1`,
			notNil(tokenHash)).Find(&accountID, &keyID, &expires)
		if err != nil {
			return err
		}
		if expires <= micros(t.now) { // or there is none
			return errSignedOut()
		}
		key, err := apiKeys.get(t, accountID, keyID)
		if account.CodeOf(err) == account.CodeNotFound || err == nil && !key.Valid(t.now) {
			return errSignedOut()
		}
		if err != nil {
			return err
		}
		session.Key, session.ExpiresAt = *key, fromMicros(expires)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.recordUse(apiKeyUsed, session.Key.ID)
	return session, nil
}

// SignOut implements account.DashboardSessions.
func (s *Store) SignOut(ctx context.Context, tokenHash []byte) error {
	return s.write(ctx, "signing out of the dashboard", func(t *tx) error {
		return t.Exec(`DELETE FROM dashboard_sessions WHERE token_hash = $1`, notNil(tokenHash))
	})
}

func errSignedOut() error {
	return account.Errorf(account.CodeUnknownCredential,
		"this sign-in is over, or its API key is deleted or expired; sign in again")
}
