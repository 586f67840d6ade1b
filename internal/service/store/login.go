// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Login implements account.Logins.
func (s *Store) Login(ctx context.Context, accountID string, l account.NewLogin) (*account.LiveSession, error) {
	if s.opt.Key == nil {
		return nil, s.db.MapError("logging in", errNoKey)
	}
	if len(l.TokenHash) == 0 || l.Key == "" {
		return nil, s.db.MapError("logging in", errors.New("a login has a key and the hash of a secret"))
	}
	device, err := json.Marshal(l.Device)
	if err != nil {
		return nil, s.db.MapError("encoding a device", err)
	}
	var session *account.LiveSession
	err = s.write(ctx, "logging in", func(t *tx) error {
		if err := t.mayLogIn(accountID, l); err != nil {
			return err
		}
		userID, err := t.saveUser(accountID, l)
		if err != nil {
			return err
		}
		l.Identity.ID = userID
		replaced, err := t.endReplaced(accountID, l)
		if err != nil {
			return err
		}
		if session, err = t.saveSession(accountID, l, string(device)); err == nil {
			session.ReplacedSessionID = replaced
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return session, nil
}

// saveUser makes the user at the first login, and updates what the provider reports.
func (t *tx) saveUser(accountID string, l account.NewLogin) (id string, err error) {
	key, who := t.s.identityKey(accountID, l.Key), l.Identity
	name, url, providerID := providerText(l.Provider.Name), providerText(l.Provider.URL),
		providerText(who.ProviderUserID)
	username, email, fullName := providerText(who.Username), providerText(who.Email), providerText(who.Name)
	known, err := t.Row(`SELECT id FROM app_users WHERE account_id = $1 AND identity_key = $2`, accountID, key).
		Find(&id)
	switch {
	case err == nil && !known:
		if err := t.checkLimit("app_users", "application users", accountID, t.s.opt.MaxUsers,
			deleteUnused); err != nil {
			return "", err
		}
		id = account.NewID(account.PrefixUser, t.now)
		err = t.Exec(
			`INSERT INTO app_users (id, account_id, identity_key, provider_name, provider_url, provider_user_id,
			username, email, name, search, provider_search, created_at, last_active, last_login)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $12)`,
			id, accountID, key, name, url, providerID,
			username, email, fullName, userSearch(id, name, providerID, username, email, fullName), searchable(name),
			micros(t.now))
	case err == nil:
		err = t.Exec(
			`UPDATE app_users SET provider_name = $1, provider_url = $2, provider_user_id = $3, username = $4,
			email = $5, name = $6, search = $7, provider_search = $8, last_active = $9, last_login = $9 WHERE id = $10`,
			name, url, providerID, username, email, fullName,
			userSearch(id, name, providerID, username, email, fullName), searchable(name), micros(t.now), id)
	}
	return id, err
}

// saveSession makes the session. From here on its row is updated or deleted, and never made again.
func (t *tx) saveSession(accountID string, l account.NewLogin, device string) (*account.LiveSession, error) {
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
	life := lifetime{lastActive: micros(t.now), endsAt: micros(sessionEnd(l, t.now)), idle: l.Idle.Microseconds()}
	if life.expires() <= micros(t.now) {
		return nil, account.Errorf(account.CodeLoginFailed,
			"what the identity provider confirmed has expired already; sign in again")
	}
	live := account.LiveSession{ID: account.NewID(account.PrefixAppSession, t.now), UserID: l.Identity.ID,
		AccountID: accountID, Scope: l.Scope,
		Identity: l.Identity, Provider: l.Provider, ExpiresAt: fromMicros(life.expires()),
		LastUse: account.LastUse{Device: l.Device}}
	if err := t.endLeastUsed(accountID, l); err != nil {
		return nil, err
	}
	issuer, subject, providerSession := audience(l.Issuer, l.Client), l.Subject, l.SessionID
	err = t.Exec(
		`INSERT INTO app_sessions (id, account_id, user_id, token_hash, bound, endpoint_id, url, issuer, subject,
		provider_session, identity, device, last_device, search, created_at, last_active, idle, ends_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $14, $14, $15, $16, $17)`,
		live.ID, accountID, live.UserID, l.TokenHash, l.Scope, l.EndpointID, l.URL, issuer, subject, providerSession,
		t.s.opt.Key.Seal(string(identity), live.ID), device,
		searchable(l.URL, l.Device.IPAddress), micros(t.now), life.idle, life.endsAt, life.expires())
	if err != nil {
		return nil, err
	}
	t.audit(account.Caller{AccountID: accountID, PrincipalID: live.UserID}, account.AuditAppSessionCreated, live.ID,
		map[string]string{
			"user_id": live.UserID, "url": l.URL, "provider": providerText(l.Provider.Name),
			"provider_user_id": providerText(l.Identity.ProviderUserID), "ip": l.Device.IPAddress})
	return &live,
		t.Exec(`INSERT INTO app_accesses (user_id, url, endpoint_id, first_at, last_at) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT (user_id, url) DO UPDATE SET endpoint_id = excluded.endpoint_id, last_at = excluded.last_at`,
			live.UserID, l.URL, l.EndpointID, micros(t.now))
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
func (t *tx) endReplaced(accountID string, l account.NewLogin) (id string, err error) {
	if len(l.Replaces) == 0 {
		return "", nil
	}
	by := account.Caller{AccountID: accountID, PrincipalID: l.Identity.ID}
	err = t.auditSessions(by, account.RevokedByNewLogin, `s.token_hash = $1 AND s.account_id = $2 AND s.bound = $3`,
		l.Replaces, accountID, l.Scope)
	if err != nil {
		return "", err
	}
	var done account.Revocation
	err = t.endAppSessions(&done, `token_hash = $1 AND account_id = $2 AND bound = $3`, l.Replaces, accountID, l.Scope)
	if err != nil || len(done.SessionIDs) == 0 {
		return "", err
	}
	return done.SessionIDs[0], nil
}

// endLeastUsed ends the user's least recently used sessions, each with an audit event, until one
// more is within the limit. l.Identity.ID is the user's.
func (t *tx) endLeastUsed(accountID string, l account.NewLogin) error {
	userID, most := l.Identity.ID, t.s.opt.MaxUserSessions
	ended := map[string]string{} // URLs by session id
	err := t.Each(func(from scanner) error {
		var id, url string
		err := from.Scan(&id, &url)
		ended[id] = url
		return err
	},
		`DELETE FROM app_sessions WHERE id IN (SELECT id FROM app_sessions WHERE user_id = $1
			ORDER BY last_active DESC, id DESC LIMIT $2 OFFSET $3) RETURNING id, url`,
		userID, 10*most, most-1)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(ended)) {
		t.audit(account.Caller{AccountID: accountID, PrincipalID: userID}, account.AuditAppSessionRevoked, id,
			map[string]string{
				"reason": account.RevokedByLimit, "sessions": "1", "user_id": userID, "url": ended[id],
				"provider":         providerText(l.Provider.Name),
				"provider_user_id": providerText(l.Identity.ProviderUserID)})
	}
	return nil
}
