// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// UseOnce implements account.Logins. It returns false for a time that has passed.
func (ls *Logins) UseOnce(ctx context.Context, accountID, key string, until time.Time) (bool, error) {
	return writeSealed(ctx, ls, "using a login's part", func(t *tx) (bool, error) {
		return ls.once(t, accountID, key, until)
	})
}

func (ls *Logins) once(t *tx, accountID, key string, until time.Time) (first bool, err error) {
	if !until.After(t.now) {
		return false, nil
	}
	return t.Exists(`INSERT INTO login_once (account_id, digest, until) VALUES ($1, $2, $3)
		ON CONFLICT (account_id, digest) DO UPDATE SET until = excluded.until WHERE login_once.until <= $4
		RETURNING until`,
		accountID, ls.key.Digest("once\x00"+key), micros(until), micros(t.now))
}

// SaveTicket implements account.Logins.
func (ls *Logins) SaveTicket(ctx context.Context, accountID string, hash, data []byte, until time.Time) error {
	if ls.key == nil {
		return ls.db.MapError("keeping a login", errNoKey)
	}
	return ls.db.write(ctx, "keeping a login", func(t *tx) error {
		return t.Exec(`INSERT INTO login_tickets (hash, account_id, data, until) VALUES ($1, $2, $3, $4)`,
			notNil(hash), accountID, ls.key.Seal(string(data), ticketOwner(accountID, hash)), micros(until))
	})
}

// RedeemTicket implements account.Logins.
func (ls *Logins) RedeemTicket(ctx context.Context, accountID string, hash []byte) ([]byte, error) {
	return writeSealed(ctx, ls, "taking a login", func(t *tx) ([]byte, error) {
		var sealed []byte
		err := t.Row(`DELETE FROM login_tickets WHERE hash = $1 AND account_id = $2 AND until > $3 RETURNING data`,
			notNil(hash), accountID, micros(t.now)).Require(account.Errorf(account.CodeNotFound,
			"this login is finished already, or took too long; begin it again"), &sealed)
		if err != nil {
			return nil, err
		}
		text, err := ls.key.Unseal(sealed, ticketOwner(accountID, hash))
		return []byte(text), err
	})
}

func ticketOwner(accountID string, hash []byte) string {
	return "ticket " + accountID + " " + hex.EncodeToString(hash)
}
