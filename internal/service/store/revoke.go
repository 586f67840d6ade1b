// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// providerSkew is how far the clock of an identity provider may be ahead of ours.
const providerSkew = time.Minute

// identityKey is the keyed digest under which a person is known.
func (s *Store) identityKey(accountID, key string) string {
	return s.opt.Key.Digest("identity\x00" + accountID + "\x00" + key)
}

// audience returns the value of a session's column issuer: the issuer and client whose logouts end
// it.
func audience(issuer, client string) string {
	if issuer == "" || client == "" {
		return issuer
	}
	return issuer + " " + client
}

// logoutKeys are the keyed digests of what a provider's logout may name: its session, its subject.
func (s *Store) logoutKeys(accountID, issuer, providerSession, subject string) []string {
	var keys []string
	for _, named := range [][2]string{{"sid", providerSession}, {"sub", subject}} {
		if issuer != "" && named[1] != "" {
			keys = append(keys,
				s.opt.Key.Digest(strings.Join([]string{"logout", accountID, named[0], issuer, named[1]}, "\x00")))
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
func (t *tx) mayLogIn(accountID string, l account.NewLogin) error {
	again := account.Errorf(account.CodeLoginAgain,
		"sessions of this person were revoked; the identity provider has to ask again")
	revoked, err := t.tombstone(accountID, t.s.identityKey(accountID, l.Key))
	if err != nil {
		return err
	}
	if !revoked.IsZero() && (!l.StartedAt.After(revoked) || !l.ForceReauth &&
		!l.AuthTime.After(revoked.Add(providerSkew))) {
		return again
	}
	for _, key := range t.s.logoutKeys(accountID, audience(l.Issuer, l.Client), l.SessionID, l.Subject) {
		if revoked, err = t.tombstone(accountID, key); err != nil {
			return err
		}
		if !revoked.IsZero() && !l.StartedAt.After(revoked) {
			return again
		}
	}
	return nil
}

// tombstone returns when what the key stands for was revoked; zero = never, or long ago.
func (t *tx) tombstone(accountID, key string) (time.Time, error) {
	var at int64
	_, err := t.Row(`SELECT revoked_at FROM login_tombstones
		WHERE account_id = $1 AND identity_key = $2 AND until > $3`, accountID, key, micros(t.now)).Find(&at)
	return fromMicros(at), err
}

// Time implements account.Logins.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	return result(ctx, s, "reading the store's clock", (*tx).clock)
}

// RevokedSince implements account.Logins.
func (s *Store) RevokedSince(ctx context.Context, accountID, key string) (time.Time, error) {
	if s.opt.Key == nil {
		return time.Time{}, s.db.MapError("looking for a revocation", errNoKey)
	}
	return result(ctx, s, "looking for a revocation", func(t *tx) (time.Time, error) {
		return t.tombstone(accountID, s.identityKey(accountID, key))
	})
}

// Revoke implements account.Revoker for stored sessions and users. It ends no open connection.
func (s *Store) Revoke(
	ctx context.Context, by account.Caller, sel account.RevokeSelector, reason string,
) (*account.Revocation, error) {
	var done *account.Revocation
	err := s.write(ctx, "revoking sessions", func(t *tx) error {
		done = &account.Revocation{}
		switch {
		case sel.UserID != "":
			return t.revokeUser(done, by, sel.UserID, reason)
		case sel.SessionsOf != "":
			return t.revokeSessionsOf(done, by, sel.SessionsOf, reason)
		case sel.SessionID != "":
			return t.revokeSession(done, by, sel.SessionID, reason)
		case sel.Issuer != "" && (sel.ProviderSession != "" || sel.Subject != ""):
			return t.revokeOfProvider(done, by, sel, reason)
		}
		return errors.New("revoking needs a user, a session, or an issuer with a session or a subject")
	})
	if err != nil {
		return nil, err
	}
	done.At = s.now()
	return done, nil
}

// writeTombstone records a revocation, as the last thing of the transaction, so that its time is
// not before anything that the transaction has waited for.
func (t *tx) writeTombstone(accountID, key string) error {
	now, err := t.clock()
	if err != nil {
		return err
	}
	return t.Exec(`INSERT INTO login_tombstones (account_id, identity_key, revoked_at, until) VALUES ($1, $2, $3, $4)
		ON CONFLICT (account_id, identity_key) DO UPDATE SET revoked_at = excluded.revoked_at, until = excluded.until`,
		accountID, key, micros(now), micros(now.Add(account.MaxSessionDuration)))
}

// revokeUser deletes the user with all that is known of them.
func (t *tx) revokeUser(done *account.Revocation, by account.Caller, userID, reason string) error {
	key, err := t.deleteUser(done, by, userID, reason)
	if err != nil {
		return err
	}
	return t.writeTombstone(by.AccountID, key)
}

// deleteUser deletes the user, their sessions and where they have been, and returns what they are
// known by.
func (t *tx) deleteUser(
	done *account.Revocation, by account.Caller, userID, reason string,
) (identityKey string, err error) {
	if err := t.endAppSessions(done, `account_id = $1 AND user_id = $2`, by.AccountID, userID); err != nil {
		return "", err
	}
	var provider, providerID string
	err = t.Row(
		`DELETE FROM app_users WHERE account_id = $1 AND id = $2
			RETURNING identity_key, provider_name, provider_user_id`,
		by.AccountID, userID).
		Scan(&identityKey, &provider, &providerID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", notFound("application user", userID)
	}
	if err != nil {
		return "", err
	}
	done.UserIDs = append(done.UserIDs, userID)
	t.audit(by, account.AuditAppUserRevoked, userID, map[string]string{
		"reason": reason, "sessions": strconv.Itoa(len(done.SessionIDs)), "provider": provider,
		"provider_user_id": providerID})
	return identityKey, nil
}

// revokeSessionsOf ends the sessions of a user, who stays. The tombstone is there without a
// session, too: a login may be under way.
func (t *tx) revokeSessionsOf(done *account.Revocation, by account.Caller, userID, reason string) error {
	var key string
	err := t.Row(`SELECT identity_key FROM app_users WHERE account_id = $1 AND id = $2`, by.AccountID, userID).
		Scan(&key)
	if errors.Is(err, sql.ErrNoRows) {
		return notFound("application user", userID)
	}
	if err != nil {
		return err
	}
	if err := t.auditSessions(by, reason, `s.account_id = $1 AND s.user_id = $2`, by.AccountID, userID); err != nil {
		return err
	}
	if err := t.endAppSessions(done, `account_id = $1 AND user_id = $2`, by.AccountID, userID); err != nil {
		return err
	}
	return t.writeTombstone(by.AccountID, key)
}

func (t *tx) revokeSession(done *account.Revocation, by account.Caller, id, reason string) error {
	var key string
	err := t.Row(
		`SELECT u.identity_key FROM app_sessions AS s JOIN app_users AS u ON u.id = s.user_id
		WHERE s.account_id = $1 AND s.id = $2`, by.AccountID, id).Scan(&key)
	if errors.Is(err, sql.ErrNoRows) {
		return notFound("application session", id)
	}
	if err != nil {
		return err
	}
	if err := t.auditSessions(by, reason, `s.account_id = $1 AND s.id = $2`, by.AccountID, id); err != nil {
		return err
	}
	if err := t.endAppSessions(done, `account_id = $1 AND id = $2`, by.AccountID, id); err != nil {
		return err
	}
	return t.writeTombstone(by.AccountID, key)
}

// revokeOfProvider ends what a provider's logout names: one of its sessions, else all of its
// subject. The tombstones are there without a session, too: a login may be under way.
func (t *tx) revokeOfProvider(
	done *account.Revocation, by account.Caller, sel account.RevokeSelector, reason string,
) error {
	if t.s.opt.Key == nil {
		return errNoKey
	}
	if sel.ReplayKey != "" { // in the same transaction: a logout that ended no session can be sent again
		first, err := t.once(by.AccountID, sel.ReplayKey, sel.ReplayUntil)
		if err != nil {
			return err
		}
		if !first {
			return account.Errorf(account.CodeLoginFailed,
				"this logout of the identity provider was used before, or is too old")
		}
	}
	whose := audience(sel.Issuer, sel.Client)
	// Sessions with an issuer alone were made by a version that did not keep the client.
	q := query{args: []any{by.AccountID, whose, sel.Issuer}, text: `account_id = $1 AND issuer IN ($2, $3)`}
	q.andIf(sel.Subject != "", `subject = `, sel.Subject)
	if sel.ProviderSession != "" { // or the subject's whose session the provider did not name
		q.args = append(q.args, sel.ProviderSession, sel.Subject)
		q.text += fmt.Sprintf(
			` AND (provider_session = $%d OR provider_session = '' AND subject = $%d AND subject <> '')`,
			len(q.args)-1, len(q.args))
	}
	if err := t.auditSessions(by, reason, `s.id IN (SELECT id FROM app_sessions WHERE `+q.text+`)`,
		q.args...); err != nil {
		return err
	}
	if err := t.endAppSessions(done, q.text, q.args...); err != nil {
		return err
	}
	for _, key := range t.s.logoutKeys(by.AccountID, whose, sel.ProviderSession, sel.Subject) {
		if err := t.writeTombstone(by.AccountID, key); err != nil {
			return err
		}
	}
	return nil
}

// auditSessions writes an audit event for each session that the condition selects.
func (t *tx) auditSessions(by account.Caller, reason, condition string, args ...any) error {
	return t.Each(func(from scanner) error {
		var id, userID, url, provider, providerID string
		err := from.Scan(&id, &userID, &url, &provider, &providerID)
		t.audit(by, account.AuditAppSessionRevoked, id, map[string]string{
			"reason": reason, "sessions": "1", "user_id": userID, "url": url, "provider": provider,
			"provider_user_id": providerID})
		return err
	},
		`SELECT s.id, s.user_id, s.url, u.provider_name, u.provider_user_id
		FROM app_sessions AS s JOIN app_users AS u ON u.id = s.user_id WHERE `+condition+` ORDER BY s.id`, args...)
}

// endAppSessions deletes the sessions that the condition selects.
func (t *tx) endAppSessions(done *account.Revocation, condition string, args ...any) error {
	ended, err := sqldb.Values[string](t.Tx, `DELETE FROM app_sessions WHERE `+condition+` RETURNING id`, args...)
	done.SessionIDs = append(done.SessionIDs, ended...)
	return err
}

// sweepUsers deletes the users that were inactive for longer than they are kept. It leaves no
// tombstones: their next login needs no reauthentication.
func (s *Store) sweepUsers(ctx context.Context) error {
	if s.opt.KeepUsers <= 0 {
		return nil
	}
	for {
		before := micros(s.now().Add(-s.opt.KeepUsers))
		some, err := s.exists(ctx, `SELECT 1 FROM app_users WHERE last_active <= $1 LIMIT 1`, before)
		if err != nil || !some {
			return err
		}
		err = s.write(ctx, "deleting application users that were away for long", func(t *tx) error {
			return t.deleteUsersBefore(before)
		})
		if err != nil {
			return err
		}
	}
}

func (t *tx) deleteUsersBefore(before int64) error {
	type who struct{ accountID, id string }
	gone, err := sqldb.List(t.Tx, func(w *who) []any { return []any{&w.accountID, &w.id} }, `SELECT account_id, id
		FROM app_users WHERE last_active <= $1 ORDER BY last_active, id LIMIT $2`, before, sweepBatch)
	if err != nil {
		return err
	}
	for _, w := range gone {
		if _, err := t.deleteUser(&account.Revocation{}, account.Caller{AccountID: w.accountID}, w.id,
			account.RevokedByRetention); err != nil {
			return fmt.Errorf("deleting application user %s: %w", w.id, err)
		}
	}
	return nil
}
