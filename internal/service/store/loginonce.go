// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// UseOnce implements account.Logins. It returns false for a time that has passed.
func (s *Store) UseOnce(ctx context.Context, accountID, key string, until time.Time) (bool, error) {
	if s.opt.Key == nil {
		return false, s.db.MapError("using a login's part", errNoKey)
	}
	var first bool
	err := s.write(ctx, "using a login's part", func(t *tx) (err error) {
		first, err = t.once(accountID, key, until)
		return err
	})
	return first && err == nil, err
}

func (t *tx) once(accountID, key string, until time.Time) (first bool, err error) {
	if !until.After(t.now) {
		return false, nil
	}
	return t.Exists(`INSERT INTO login_once (account_id, digest, until) VALUES ($1, $2, $3)
		ON CONFLICT (account_id, digest) DO UPDATE SET until = excluded.until WHERE login_once.until <= $4
		RETURNING until`,
		accountID, t.s.opt.Key.Digest("once\x00"+key), micros(until), micros(t.now))
}

// SaveTicket implements account.Logins.
func (s *Store) SaveTicket(ctx context.Context, accountID string, hash, data []byte, until time.Time) error {
	if s.opt.Key == nil {
		return s.db.MapError("keeping a login", errNoKey)
	}
	return s.write(ctx, "keeping a login", func(t *tx) error {
		return t.Exec(`INSERT INTO login_tickets (hash, account_id, data, until) VALUES ($1, $2, $3, $4)`,
			notNil(hash), accountID, s.opt.Key.Seal(string(data), ticketOwner(accountID, hash)), micros(until))
	})
}

// RedeemTicket implements account.Logins.
func (s *Store) RedeemTicket(ctx context.Context, accountID string, hash []byte) ([]byte, error) {
	if s.opt.Key == nil {
		return nil, s.db.MapError("taking a login", errNoKey)
	}
	var data []byte
	err := s.write(ctx, "taking a login", func(t *tx) error {
		var sealed []byte
		err := t.Row(`DELETE FROM login_tickets WHERE hash = $1 AND account_id = $2 AND until > $3 RETURNING data`,
			notNil(hash), accountID, micros(t.now)).Scan(&sealed)
		if errors.Is(err, sql.ErrNoRows) {
			return account.Errorf(account.CodeNotFound,
				"this login is finished already, or took too long; begin it again")
		}
		if err != nil {
			return err
		}
		text, err := s.opt.Key.Unseal(sealed, ticketOwner(accountID, hash))
		data = []byte(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

func ticketOwner(accountID string, hash []byte) string {
	return "ticket " + accountID + " " + hex.EncodeToString(hash)
}

// sweepSessions writes when sessions were used, and drops what is over. Nothing reads a session
// that is over; its row stays a minute longer, for uses that are still to be written.
func (s *Store) sweepSessions(ctx context.Context) error {
	if err := s.flushUses(ctx, false); err != nil {
		return err
	}
	for {
		now := micros(s.now())
		some, err := s.exists(ctx,
			`SELECT 1 WHERE EXISTS (SELECT 1 FROM app_sessions WHERE expires_at <= $1)
			OR EXISTS (SELECT 1 FROM login_tombstones WHERE until <= $2)
			OR EXISTS (SELECT 1 FROM login_once WHERE until <= $2)
			OR EXISTS (SELECT 1 FROM login_tickets WHERE until <= $2)
			OR EXISTS (SELECT 1 FROM dashboard_sessions WHERE expires_at <= $2)`, now-s.retention(), now)
		if err != nil || !some {
			return err
		}
		if err := s.write(ctx, "dropping sessions that are over", func(t *tx) error {
			return t.dropLogins(now)
		}); err != nil {
			return err
		}
	}
}

// dropLogins deletes a batch of what was over at the time.
func (t *tx) dropLogins(now int64) error {
	if err := t.Exec(
		`DELETE FROM app_sessions WHERE id IN
		(SELECT id FROM app_sessions WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`,
		now-t.s.retention(), 5*sweepBatch); err != nil {
		return err
	}
	for _, statement := range []string{
		`DELETE FROM login_tombstones WHERE until <= $1`, `DELETE FROM login_once WHERE until <= $1`,
		`DELETE FROM login_tickets WHERE until <= $1`,
		`DELETE FROM dashboard_sessions WHERE expires_at <= $1`,
	} {
		if err := t.Exec(statement, now); err != nil {
			return err
		}
	}
	return nil
}

// endLogins is what a restore does: whose sessions were revoked since the backup is not known, so
// all are over, and every user that there is has to be confirmed by the identity provider anew.
func (t *tx) endLogins() error {
	for _, statement := range []string{`DELETE FROM app_sessions`, `DELETE FROM login_tickets`,
		`DELETE FROM dashboard_sessions`} {
		if err := t.Exec(statement); err != nil {
			return err
		}
	}
	return t.Exec(
		`INSERT INTO login_tombstones (account_id, identity_key, revoked_at, until)
		SELECT account_id, identity_key, $1, $2 FROM app_users WHERE id <> ''
		ON CONFLICT (account_id, identity_key) DO UPDATE SET revoked_at = excluded.revoked_at, until = excluded.until`,
		micros(t.now), micros(t.now.Add(account.MaxSessionDuration)))
}
