// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// SignIns are the sessions of the dashboard, each with an API key.
type SignIns struct {
	db   *database
	uses *lastUsedTimes
}

// SignIn implements account.DashboardSessions.
func (ds *SignIns) SignIn(
	ctx context.Context, key *account.APIKey, tokenHash []byte,
) (*account.DashboardSession, error) {
	return writeResult(ctx, ds.db, "signing in to the dashboard", func(t *tx) (*account.DashboardSession, error) {
		session, err := sessionOfKey(t, key.AccountID, key.ID, t.now.Add(account.DashboardLife))
		if err != nil {
			return nil, err
		}
		return session, t.Exec(
			`INSERT INTO dashboard_sessions (token_hash, account_id, api_key_id, expires_at) VALUES ($1, $2, $3, $4)`,
			sqldb.NotNil(tokenHash), key.AccountID, key.ID, sqldb.Micros(session.ExpiresAt))
	})
}

// sessionOfKey returns a session of the dashboard whose API key is valid.
func sessionOfKey(t *tx, accountID, keyID string, expires time.Time) (*account.DashboardSession, error) {
	key, err := apiKeys.get(t, accountID, keyID)
	switch {
	case account.CodeOf(err) == account.CodeNotFound || err == nil && !key.Valid(t.now):
		return nil, errSignedOut()
	case err != nil:
		return nil, err
	}
	return &account.DashboardSession{Key: *key, ExpiresAt: expires}, nil
}

// DashboardSession implements account.DashboardSessions.
func (ds *SignIns) DashboardSession(ctx context.Context, tokenHash []byte) (*account.DashboardSession, error) {
	const doing = "looking for a dashboard session"
	session, err := result(ctx, ds.db, doing, func(t *tx) (*account.DashboardSession, error) {
		var accountID, keyID string
		var expires int64
		_, err := t.Row(`SELECT account_id, api_key_id, expires_at FROM dashboard_sessions WHERE token_hash = $1`,
			sqldb.NotNil(tokenHash)).Find(&accountID, &keyID, &expires)
		if err == nil && expires <= sqldb.Micros(t.now) { // or there is none
			err = errSignedOut()
		}
		if err != nil {
			return nil, err
		}
		return sessionOfKey(t, accountID, keyID, sqldb.FromMicros(expires))
	})
	if err != nil {
		return nil, err
	}
	ds.uses.record(apiKeyUsed, session.Key.ID)
	return session, nil
}

// SignOut implements account.DashboardSessions.
func (ds *SignIns) SignOut(ctx context.Context, tokenHash []byte) error {
	return ds.db.write(ctx, "signing out of the dashboard", func(t *tx) error {
		return t.Exec(`DELETE FROM dashboard_sessions WHERE token_hash = $1`, sqldb.NotNil(tokenHash))
	})
}

func errSignedOut() error {
	return account.Errorf(account.CodeUnknownCredential,
		"this sign-in is over, or its API key is deleted or expired; sign in again")
}
