// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Logins makes sessions of people, unless they were revoked.
type Logins struct {
	db       *database
	key      *seal.Key
	people   *People
	sessions *UserSessions
}

// Login implements account.Logins.
func (ls *Logins) Login(ctx context.Context, accountID string, l account.NewLogin) (*account.LiveSession, error) {
	if len(l.TokenHash) == 0 || l.Key == "" {
		return nil, ls.db.MapError("logging in", errors.New("a login has a key and the hash of a secret"))
	}
	device, err := json.Marshal(l.Device)
	if err != nil {
		return nil, ls.db.MapError("encoding a device", err)
	}
	return writeSealed(ctx, ls, "logging in", func(t *tx) (*account.LiveSession, error) {
		if err := ls.mayLogIn(t, accountID, l); err != nil {
			return nil, err
		}
		userID, err := ls.people.save(t, accountID, l)
		if err != nil {
			return nil, err
		}
		l.Identity.ID = userID
		replaced, err := ls.sessions.endReplaced(t, accountID, l)
		if err != nil {
			return nil, err
		}
		session, err := ls.sessions.create(t, accountID, l, string(device))
		if err == nil {
			session.ReplacedSessionID = replaced
		}
		return session, err
	})
}

// writeSealed is writeResult for what needs the secret key.
func writeSealed[V any](ctx context.Context, ls *Logins, doing string, fn func(*tx) (V, error)) (made V, err error) {
	if ls.key == nil {
		return made, ls.db.MapError(doing, errNoKey)
	}
	return writeResult(ctx, ls.db, doing, fn)
}

// providerSkew is how far the clock of an identity provider may be ahead of ours.
const providerSkew = time.Minute

// audience returns the value of a session's column issuer: the issuer and client whose logouts end
// it.
func audience(issuer, client string) string {
	if issuer == "" || client == "" {
		return issuer
	}
	return issuer + " " + client
}

// logoutKeys are the keyed digests of what a provider's logout may name: its session, its subject.
func (ls *Logins) logoutKeys(accountID, issuer, providerSession, subject string) []string {
	var keys []string
	for _, named := range [][2]string{{"sid", providerSession}, {"sub", subject}} {
		if issuer != "" && named[1] != "" {
			keys = append(keys,
				ls.key.Digest(strings.Join([]string{"logout", accountID, named[0], issuer, named[1]}, "\x00")))
		}
	}
	return keys
}

// mayLogIn compares a login with the tombstones, in the transaction that makes the session: of a
// login and a revocation one is first, and either the revocation ends the session or the login sees
// the tombstone. A login is refused when it began before the revocation was stored. After a
// revocation of the person, or of one of their sessions, the provider must have asked them since,
// too: it was told to (ForceReauth), or reports an AuthTime later than the revocation by more than
// providerSkew. A provider that reports none has to ask again. A provider that ended its own
// session, by a back-channel logout, asks without being told.
func (ls *Logins) mayLogIn(t *tx, accountID string, l account.NewLogin) error {
	again := account.Errorf(account.CodeLoginAgain,
		"sessions of this person were revoked; the identity provider has to ask again")
	revoked, err := ls.tombstone(t, accountID, ls.people.identityKey(accountID, l.Key))
	if err != nil {
		return err
	}
	if !revoked.IsZero() && (!l.StartedAt.After(revoked) || !l.ForceReauth &&
		!l.AuthTime.After(revoked.Add(providerSkew))) {
		return again
	}
	for _, key := range ls.logoutKeys(accountID, audience(l.Issuer, l.Client), l.SessionID, l.Subject) {
		if revoked, err = ls.tombstone(t, accountID, key); err != nil {
			return err
		}
		if !revoked.IsZero() && !l.StartedAt.After(revoked) {
			return again
		}
	}
	return nil
}

// tombstone returns when what the key stands for was revoked; zero = never, or long ago.
func (ls *Logins) tombstone(t *tx, accountID, key string) (time.Time, error) {
	var at int64
	_, err := t.Row(`SELECT revoked_at FROM login_tombstones
		WHERE account_id = $1 AND identity_key = $2 AND until > $3`, accountID, key, sqldb.Micros(t.now)).Find(&at)
	return sqldb.FromMicros(at), err
}

// Time implements account.Logins.
func (ls *Logins) Time(ctx context.Context) (time.Time, error) {
	return result(ctx, ls.db, "reading the store's clock", (*tx).clock)
}

// sweep writes when sessions were used, and drops what is over. Nothing reads a session
// that is over; its row stays a minute longer, for uses that are still to be written.
func (ls *Logins) sweep(ctx context.Context) error {
	if err := ls.sessions.flush(ctx, false); err != nil {
		return err
	}
	now := sqldb.Micros(ls.db.Now())
	ended := now - ls.sessions.retention()
	return ls.db.writeWhile(ctx, "dropping sessions that are over", func(t *tx) error { return ls.drop(t, ended, now) },
		`SELECT 1 WHERE EXISTS (SELECT 1 FROM app_sessions WHERE expires_at <= $1)
		OR EXISTS (SELECT 1 FROM login_tombstones WHERE until <= $2)
		OR EXISTS (SELECT 1 FROM login_once WHERE until <= $2)
		OR EXISTS (SELECT 1 FROM login_tickets WHERE until <= $2)
		OR EXISTS (SELECT 1 FROM dashboard_sessions WHERE expires_at <= $2)`, ended, now)
}

// drop deletes a batch of the sessions that had ended, and what else was over at the time.
func (ls *Logins) drop(t *tx, ended, now int64) error {
	err := t.Exec(`DELETE FROM app_sessions WHERE id IN
		(SELECT id FROM app_sessions WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, ended, 5*sweepBatch)
	for _, over := range []string{`login_tombstones WHERE until`, `login_once WHERE until`, `login_tickets WHERE until`,
		`dashboard_sessions WHERE expires_at`} {
		if err == nil {
			err = t.Exec(`DELETE FROM `+over+` <= $1`, now)
		}
	}
	return err
}

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
		accountID, ls.key.Digest("once\x00"+key), sqldb.Micros(until), sqldb.Micros(t.now))
}

// SaveTicket implements account.Logins.
func (ls *Logins) SaveTicket(ctx context.Context, accountID string, hash, data []byte, until time.Time) error {
	if ls.key == nil {
		return ls.db.MapError("keeping a login", errNoKey)
	}
	return ls.db.write(ctx, "keeping a login", func(t *tx) error {
		return t.Exec(`INSERT INTO login_tickets (hash, account_id, data, until) VALUES ($1, $2, $3, $4)`,
			sqldb.NotNil(hash), accountID, ls.key.Seal(string(data), ticketOwner(accountID, hash)), sqldb.Micros(until))
	})
}

// RedeemTicket implements account.Logins.
func (ls *Logins) RedeemTicket(ctx context.Context, accountID string, hash []byte) ([]byte, error) {
	return writeSealed(ctx, ls, "taking a login", func(t *tx) ([]byte, error) {
		var sealed []byte
		err := t.Row(`DELETE FROM login_tickets WHERE hash = $1 AND account_id = $2 AND until > $3 RETURNING data`,
			sqldb.NotNil(hash), accountID, sqldb.Micros(t.now)).Require(account.Errorf(account.CodeNotFound,
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
