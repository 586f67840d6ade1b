// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Revocations ends sessions of people, and has their next login confirmed anew.
type Revocations struct {
	db       *database
	people   *People
	sessions *UserSessions
	logins   *Logins
}

// Revoke implements account.Revoker for stored sessions and users. It ends no open connection.
func (rs *Revocations) Revoke(
	ctx context.Context, by account.Caller, sel account.RevokeSelector, reason string,
) (*account.Revocation, error) {
	done, err := writeResult(ctx, rs.db, "revoking sessions", func(t *tx) (*account.Revocation, error) {
		done := &account.Revocation{}
		switch {
		case sel.UserID != "":
			return done, rs.revokeUser(t, done, by, sel.UserID, reason)
		case sel.SessionsOf != "":
			return done, rs.revokeSessionsOf(t, done, by, sel.SessionsOf, reason)
		case sel.SessionID != "":
			return done, rs.revokeSession(t, done, by, sel.SessionID, reason)
		case sel.Issuer != "" && (sel.ProviderSession != "" || sel.Subject != ""):
			return done, rs.revokeOfProvider(t, done, by, sel, reason)
		}
		return nil, errors.New("revoking needs a user, a session, or an issuer with a session or a subject")
	})
	if err != nil {
		return nil, err
	}
	done.At = rs.db.Now()
	return done, nil
}

// revokeUser deletes the user with all that is known of them.
func (rs *Revocations) revokeUser(t *tx, done *account.Revocation, by account.Caller, userID, reason string) error {
	key, err := rs.people.delete(t, done, by, userID, reason)
	if err != nil {
		return err
	}
	return rs.logins.writeTombstone(t, by.AccountID, key)
}

// revokeSessionsOf ends the sessions of a user, who stays. The tombstone is there without a
// session, too: a login may be under way.
func (rs *Revocations) revokeSessionsOf(
	t *tx, done *account.Revocation, by account.Caller, userID, reason string,
) error {
	var key string
	err := t.Row(`SELECT identity_key FROM app_users WHERE account_id = $1 AND id = $2`, by.AccountID, userID).
		Require(notFound("application user", userID), &key)
	if err == nil {
		err = rs.sessions.revoke(t, done, by, reason, `s.account_id = $1 AND s.user_id = $2`, by.AccountID, userID)
	}
	if err != nil {
		return err
	}
	return rs.logins.writeTombstone(t, by.AccountID, key)
}

func (rs *Revocations) revokeSession(t *tx, done *account.Revocation, by account.Caller, id, reason string) error {
	var key string
	err := t.Row(
		`SELECT u.identity_key FROM app_sessions AS s JOIN app_users AS u ON u.id = s.user_id
		WHERE s.account_id = $1 AND s.id = $2`, by.AccountID, id).Require(notFound("application session", id), &key)
	if err == nil {
		err = rs.sessions.revoke(t, done, by, reason, `s.account_id = $1 AND s.id = $2`, by.AccountID, id)
	}
	if err != nil {
		return err
	}
	return rs.logins.writeTombstone(t, by.AccountID, key)
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
	if err := rs.sessions.revoke(t, done, by, reason, q.text, q.args...); err != nil {
		return err
	}
	for _, key := range rs.logins.logoutKeys(by.AccountID, whose, sel.ProviderSession, sel.Subject) {
		if err := rs.logins.writeTombstone(t, by.AccountID, key); err != nil {
			return err
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
