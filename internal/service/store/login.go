// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Logins makes the users of applications, at their first login, and their sessions, unless they were
// revoked.
type Logins struct {
	db          *database
	key         *seal.Key
	sessions    *UserSessions
	maxUsers    int // maxUsers bounds the users of an account.
	maxSessions int // maxSessions bounds the sessions of a user.
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
		userID, err := ls.saveUser(t, accountID, l)
		if err != nil {
			return nil, err
		}
		l.Identity.ID = userID
		replaced, err := ls.endReplaced(t, accountID, l)
		if err != nil {
			return nil, err
		}
		session, err := ls.createSession(t, accountID, l, string(device))
		if err == nil {
			session.ReplacedSessionID = replaced
		}
		return session, err
	})
}

// saveUser makes the user at the first login, and updates what the provider reports.
func (ls *Logins) saveUser(t *tx, accountID string, l account.NewLogin) (id string, err error) {
	key, who := ls.identityKey(accountID, l.Key), l.Identity
	name, url, providerID := providerText(l.Provider.Name), providerText(l.Provider.URL),
		providerText(who.ProviderUserID)
	username, email, fullName := providerText(who.Username), providerText(who.Email), providerText(who.Name)
	known, err := t.Row(`SELECT id FROM app_users WHERE account_id = $1 AND identity_key = $2`, accountID, key).
		Find(&id)
	switch {
	case err == nil && !known:
		if err := t.checkLimit("app_users", "application users", accountID, ls.maxUsers, deleteUnused); err != nil {
			return "", err
		}
		id = account.NewID(account.PrefixUser, t.now)
		err = t.Exec(
			`INSERT INTO app_users (id, account_id, identity_key, provider_name, provider_url, provider_user_id,
			username, email, name, search, provider_search, created_at, last_active, last_login)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $12)`,
			id, accountID, key, name, url, providerID,
			username, email, fullName, userSearch(id, name, providerID, username, email, fullName), searchable(name),
			sqldb.Micros(t.now))
	case err == nil:
		err = t.Exec(
			`UPDATE app_users SET provider_name = $1, provider_url = $2, provider_user_id = $3, username = $4,
			email = $5, name = $6, search = $7, provider_search = $8, last_active = $9, last_login = $9 WHERE id = $10`,
			name, url, providerID, username, email, fullName,
			userSearch(id, name, providerID, username, email, fullName), searchable(name), sqldb.Micros(t.now), id)
	}
	return id, err
}

// createSession makes the session. From here on its row is updated or deleted, and never made again.
func (ls *Logins) createSession(
	t *tx, accountID string, l account.NewLogin, device string,
) (*account.LiveSession, error) {
	identity, err := json.Marshal(l.Identity)
	if err != nil {
		return nil, fmt.Errorf("encoding an identity: %w", err)
	}
	if len(identity) > account.MaxIdentity {
		return nil, account.Errorf(account.CodeLoginFailed,
			"the identity provider sends %d bytes about this person; at most %d are stored; let it send fewer "+
				"groups or "+
				"attributes", len(identity), account.MaxIdentity)
	}
	life := lifetime{lastActive: sqldb.Micros(t.now), endsAt: sqldb.Micros(sessionEnd(l, t.now)),
		idle: l.Idle.Microseconds()}
	if life.expires() <= sqldb.Micros(t.now) {
		return nil, account.Errorf(account.CodeLoginFailed,
			"what the identity provider confirmed has expired already; sign in again")
	}
	userID := l.Identity.ID
	live := account.LiveSession{ID: account.NewID(account.PrefixAppSession, t.now), AccountID: accountID,
		Scope: l.Scope, Identity: l.Identity, Provider: l.Provider, ExpiresAt: sqldb.FromMicros(life.expires()),
		LastUse: account.LastUse{Device: l.Device}}
	if err := ls.endLeastUsed(t, accountID, l); err != nil {
		return nil, err
	}
	issuer, subject, providerSession := audience(l.Issuer, l.Client), l.Subject, l.SessionID
	err = t.Exec(
		`INSERT INTO app_sessions (id, account_id, user_id, token_hash, bound, endpoint_id, url, issuer, subject,
		provider_session, identity, device, last_device, search, created_at, last_active, idle, ends_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $14, $14, $15, $16, $17)`,
		live.ID, accountID, userID, l.TokenHash, l.Scope, l.EndpointID, l.URL, issuer, subject, providerSession,
		ls.key.Seal(string(identity), live.ID), device,
		searchable(l.URL, l.Device.IPAddress), sqldb.Micros(t.now), life.idle, life.endsAt, life.expires())
	if err != nil {
		return nil, err
	}
	t.audit(account.Caller{AccountID: accountID, PrincipalID: userID}, account.AuditAppSessionCreated, live.ID,
		map[string]string{
			"user_id": userID, "url": l.URL, "provider": providerText(l.Provider.Name),
			"provider_user_id": providerText(l.Identity.ProviderUserID), "ip": l.Device.IPAddress})
	return &live,
		t.Exec(`INSERT INTO app_accesses (user_id, url, endpoint_id, first_at, last_at) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT (user_id, url) DO UPDATE SET endpoint_id = excluded.endpoint_id, last_at = excluded.last_at`,
			userID, l.URL, l.EndpointID, sqldb.Micros(t.now))
}

// sessionEnd returns when the session ends, whether it is used or not.
func sessionEnd(l account.NewLogin, now time.Time) time.Time {
	ends := now.Add(min(cmp.Or(l.MaxDuration, account.DefaultSessionDuration), account.MaxSessionDuration))
	if !l.NotAfter.IsZero() && l.NotAfter.Before(ends) {
		return l.NotAfter
	}
	return ends
}

// endReplaced ends the session that the login replaces, if there is one, and returns its id.
// l.Identity.ID is the user's.
func (ls *Logins) endReplaced(t *tx, accountID string, l account.NewLogin) (id string, err error) {
	if len(l.Replaces) == 0 {
		return "", nil
	}
	var done account.Revocation
	by := account.Caller{AccountID: accountID, PrincipalID: l.Identity.ID}
	err = endSessions(t, &done, by, account.RevokedByNewLogin,
		`s.token_hash = $1 AND s.account_id = $2 AND s.bound = $3`, l.Replaces, accountID, l.Scope)
	if err != nil || len(done.SessionIDs) == 0 {
		return "", err
	}
	return done.SessionIDs[0], nil
}

// endLeastUsed ends the user's least recently used sessions until one more is within the limit.
// l.Identity.ID is the user's.
func (ls *Logins) endLeastUsed(t *tx, accountID string, l account.NewLogin) error {
	by := account.Caller{AccountID: accountID, PrincipalID: l.Identity.ID}
	return endSessions(t, &account.Revocation{}, by, account.RevokedByLimit, `s.id IN (SELECT id FROM app_sessions
		WHERE user_id = $1 ORDER BY last_active DESC, id DESC LIMIT $2 OFFSET $3)`,
		by.PrincipalID, 10*ls.maxSessions, ls.maxSessions-1)
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
	revoked, err := ls.tombstone(t, accountID, ls.identityKey(accountID, l.Key))
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

// identityKey is the keyed digest under which a person is known.
func (ls *Logins) identityKey(accountID, key string) string {
	return ls.key.Digest("identity\x00" + accountID + "\x00" + key)
}

// maxProviderText bounds a text of an identity provider in characters.
const maxProviderText = 255

// providerText makes a text of an identity provider fit to be stored and listed.
func providerText(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if utf8.RuneCountInString(text) > maxProviderText {
		text = string([]rune(text)[:maxProviderText])
	}
	return text
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
