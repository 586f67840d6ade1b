// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Revocations ends sessions of people, and deletes people. After a revocation, tombstones make the
// provider ask the person again at the next login.
type Revocations struct {
	db     *database
	logins *Logins
	keep   time.Duration // keep is how long users are kept after they were last active; 0 = for ever.
}

// Revoke implements account.Revoker for stored sessions and users. It ends no open connection.
func (rs *Revocations) Revoke(
	ctx context.Context, by account.Caller, sel account.RevokeSelector, reason string,
) (*account.Revocation, error) {
	done, err := writeResult(ctx, rs.db, "revoking sessions", func(t *tx) (*account.Revocation, error) {
		done, key := &account.Revocation{}, ""
		var err error
		switch {
		case sel.UserID != "":
			key, err = deleteUser(t, done, by, sel.UserID, reason)
		case sel.SessionsOf != "":
			key, err = endSessionsOf(t, done, by, sel.SessionsOf, reason)
		case sel.SessionID != "":
			key, err = endSession(t, done, by, sel.SessionID, reason)
		case sel.Issuer != "" && (sel.ProviderSession != "" || sel.Subject != ""):
			return done, rs.revokeOfProvider(t, done, by, sel, reason)
		default:
			err = errors.New("revoking needs a user, a session, or an issuer with a session or a subject")
		}
		if err != nil {
			return nil, err
		}
		return done, writeTombstone(t, by.AccountID, key) // without a session, too: a login may be under way
	})
	if err != nil {
		return nil, err
	}
	done.At = rs.db.Now()
	return done, nil
}

// deleteUser deletes the user with their sessions and accessed endpoints, and returns the user's
// identity key.
func deleteUser(
	t *tx, done *account.Revocation, by account.Caller, userID, reason string,
) (identityKey string, err error) {
	done.SessionIDs, err = sqldb.Values[string](t.Tx, `DELETE FROM app_sessions
		WHERE account_id = $1 AND user_id = $2 RETURNING id`, by.AccountID, userID)
	if err != nil {
		return "", err
	}
	var provider, providerID string
	err = t.Row(`DELETE FROM app_users WHERE account_id = $1 AND id = $2
		RETURNING identity_key, provider_name, provider_user_id`, by.AccountID, userID).
		Require(notFound("application user", userID), &identityKey, &provider, &providerID)
	if err != nil {
		return "", err
	}
	done.UserIDs = append(done.UserIDs, userID)
	t.audit(by, account.AuditAppUserRevoked, userID, map[string]string{
		"reason": reason, "sessions": strconv.Itoa(len(done.SessionIDs)), "provider": provider,
		"provider_user_id": providerID})
	return identityKey, nil
}

// endSessionsOf ends the sessions of a user, who stays, and returns the user's identity key.
func endSessionsOf(
	t *tx, done *account.Revocation, by account.Caller, userID, reason string,
) (identityKey string, err error) {
	err = t.Row(`SELECT identity_key FROM app_users WHERE account_id = $1 AND id = $2`, by.AccountID, userID).
		Require(notFound("application user", userID), &identityKey)
	if err != nil {
		return "", err
	}
	return identityKey, endSessions(t, done, by, reason, `s.account_id = $1 AND s.user_id = $2`, by.AccountID, userID)
}

// endSession ends one session and returns the identity key of its user.
func endSession(
	t *tx, done *account.Revocation, by account.Caller, id, reason string,
) (identityKey string, err error) {
	err = t.Row(`SELECT u.identity_key FROM app_sessions AS s JOIN app_users AS u ON u.id = s.user_id
		WHERE s.account_id = $1 AND s.id = $2`, by.AccountID, id).
		Require(notFound("application session", id), &identityKey)
	if err != nil {
		return "", err
	}
	return identityKey, endSessions(t, done, by, reason, `s.account_id = $1 AND s.id = $2`, by.AccountID, id)
}

// endSessions deletes the sessions s that the condition selects, each with an audit event.
func endSessions(
	t *tx, done *account.Revocation, by account.Caller, reason, condition string, args ...any,
) error {
	type session struct{ id, userID, url, provider, providerUserID string }
	ended, err := sqldb.List(t.Tx, func(s *session) []any {
		return []any{&s.id, &s.userID, &s.url, &s.provider, &s.providerUserID}
	}, `DELETE FROM app_sessions AS s WHERE `+condition+` RETURNING id, user_id, url,
		(SELECT u.provider_name FROM app_users AS u WHERE u.id = user_id),
		(SELECT u.provider_user_id FROM app_users AS u WHERE u.id = user_id)`, args...)
	slices.SortFunc(ended, func(a, b session) int { return cmp.Compare(a.id, b.id) })
	for _, s := range ended {
		done.SessionIDs = append(done.SessionIDs, s.id)
		t.audit(by, account.AuditAppSessionRevoked, s.id, map[string]string{
			"reason": reason, "sessions": "1", "user_id": s.userID, "url": s.url, "provider": s.provider,
			"provider_user_id": s.providerUserID})
	}
	return err
}

// writeTombstone records a revocation, as the last thing of the transaction, so that its time is
// not before anything that the transaction has waited for.
func writeTombstone(t *tx, accountID, key string) error {
	now, err := t.clock()
	if err != nil {
		return err
	}
	return t.Exec(`INSERT INTO login_tombstones (account_id, identity_key, revoked_at, until) VALUES ($1, $2, $3, $4)
		ON CONFLICT (account_id, identity_key) DO UPDATE SET revoked_at = excluded.revoked_at, until = excluded.until`,
		accountID, key, sqldb.Micros(now), sqldb.Micros(now.Add(account.MaxSessionDuration)))
}

// revokeOfProvider ends what a provider's logout names: one of its sessions, else all of its
// subject. The tombstones are there without a session, too: a login may be under way.
func (rs *Revocations) revokeOfProvider(
	t *tx, done *account.Revocation, by account.Caller, sel account.RevokeSelector, reason string,
) error {
	if rs.logins.key == nil {
		return errNoKey
	}
	if sel.ReplayKey != "" { // in the same transaction: a logout that ended no session can be sent again
		first, err := rs.logins.once(t, by.AccountID, sel.ReplayKey, sel.ReplayUntil)
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
	q := query{args: []any{by.AccountID, whose, sel.Issuer}, text: `s.account_id = $1 AND s.issuer IN ($2, $3)`}
	q.andIf(sel.Subject != "", `s.subject = `, sel.Subject)
	if sel.ProviderSession != "" { // or the subject's whose session the provider did not name
		q.args = append(q.args, sel.ProviderSession, sel.Subject)
		q.text += fmt.Sprintf(
			` AND (s.provider_session = $%d OR s.provider_session = '' AND s.subject = $%d AND s.subject <> '')`,
			len(q.args)-1, len(q.args))
	}
	if err := endSessions(t, done, by, reason, q.text, q.args...); err != nil {
		return err
	}
	for _, key := range rs.logins.logoutKeys(by.AccountID, whose, sel.ProviderSession, sel.Subject) {
		if err := writeTombstone(t, by.AccountID, key); err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes the users that were inactive for longer than they are kept. It leaves no
// tombstones: their next login needs no reauthentication.
func (rs *Revocations) sweep(ctx context.Context) error {
	if rs.keep <= 0 {
		return nil
	}
	before := sqldb.Micros(rs.db.Now().Add(-rs.keep))
	return rs.db.writeWhile(ctx, "deleting application users that were away for long",
		func(t *tx) error { return deleteInactive(t, before) },
		`SELECT 1 FROM app_users WHERE last_active <= $1 LIMIT 1`, before)
}

// deleteInactive deletes a batch of the users who were last active before the time.
func deleteInactive(t *tx, before int64) error {
	type who struct{ accountID, id string }
	gone, err := sqldb.List(t.Tx, func(w *who) []any { return []any{&w.accountID, &w.id} }, `SELECT account_id, id
		FROM app_users WHERE last_active <= $1 ORDER BY last_active, id LIMIT $2`, before, sweepBatch)
	if err != nil {
		return err
	}
	for _, w := range gone {
		if _, err := deleteUser(t, &account.Revocation{}, account.Caller{AccountID: w.accountID}, w.id,
			account.RevokedByRetention); err != nil {
			return fmt.Errorf("deleting application user %s: %w", w.id, err)
		}
	}
	return nil
}

// revokeAll is what a restore does: whose sessions were revoked since the backup is not known, so
// all are over, and every user that there is has to be confirmed by the identity provider anew.
func (rs *Revocations) revokeAll(t *tx) error {
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
		sqldb.Micros(t.now), sqldb.Micros(t.now.Add(account.MaxSessionDuration)))
}
