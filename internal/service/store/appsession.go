// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// UserSessions are the sessions of people with endpoints behind a login.
type UserSessions struct {
	db      *database
	key     *seal.Key // key seals identities; nil for commands.
	uses    sessionUses
	devices lastDevices
}

// lookupTimeout bounds how long a request waits for its session.
const lookupTimeout = 10 * time.Second

// lifetime is what decides when a session ends.
type lifetime struct {
	lastActive, endsAt int64 // microseconds
	idle               int64 // 0 = none
}

// expires is the earlier of the end of the session's life and of its idle time.
func (l lifetime) expires() int64 {
	if l.idle > 0 {
		return min(l.endsAt, l.lastActive+l.idle)
	}
	return l.endsAt
}

const appSessionColumns = `s.id, s.user_id, s.endpoint_id, s.url, s.device, s.created_at, s.last_active, s.ends_at,
	s.idle, s.last_device, s.device_changed_at`

func (as *UserSessions) scan(from scanner) (account.AppSession, error) {
	var a account.AppSession
	var life lifetime
	var endpoint, device, last string
	var made, changed int64
	if err := from.Scan(&a.ID, &a.User.ID, &endpoint, &a.PublicURL, &device, &made, &life.lastActive, &life.endsAt,
		&life.idle, &last, &changed); err != nil {
		return a, err
	}
	life.lastActive = max(life.lastActive, as.uses.last(a.ID))
	a.Endpoint, a.CreatedAt, a.LastActive, a.ExpiresAt = refTo(endpoint), sqldb.FromMicros(made),
		sqldb.FromMicros(life.lastActive), sqldb.FromMicros(life.expires())
	if err := json.Unmarshal([]byte(device), &a.Device); err != nil {
		return a, fmt.Errorf("decoding the device of session %s: %w", a.ID, err)
	}
	use, err := lastUse(last, 0, changed)
	if err != nil {
		return a, fmt.Errorf("decoding the last device of session %s: %w", a.ID, err)
	}
	if a.LastDevice = use.Device; changed != 0 {
		a.DeviceChangedAt = &use.ChangedAt
	}
	return a, nil
}

// AppSession implements account.Identities.
func (as *UserSessions) AppSession(ctx context.Context, accountID, id string) (*account.AppSession, error) {
	return result(ctx, as.db, "reading an application session", func(t *tx) (*account.AppSession, error) {
		found, err := as.scan(
			t.Row(`SELECT `+appSessionColumns+
				` FROM app_sessions AS s WHERE s.account_id = $1 AND s.id = $2 AND s.expires_at > $3`,
				accountID, id, sqldb.Micros(t.now)))
		if errors.Is(err, sql.ErrNoRows) {
			return nil, notFound("application session", id)
		}
		return &found, err
	})
}

// AppSessions implements account.Identities.
func (as *UserSessions) AppSessions(
	ctx context.Context, accountID string, f account.AppSessionFilter, p account.Page,
) (sessions []account.AppSession, more bool, err error) {
	limit := pageLimit(p)
	err = as.db.read(ctx, "listing application sessions", func(t *tx) (err error) {
		q := query{args: []any{accountID, sqldb.Micros(t.now)}, text: `s.account_id = $1 AND s.expires_at > $2`}
		if f.UserID != "" { // reads few rows by the user's index, not many by the account's
			q.text = `s.account_id || '' = $1 AND s.expires_at > $2`
		}
		q.andIf(f.UserID != "", `s.user_id = `, f.UserID)
		q.andIf(p.BeforeID != "", `s.id < `, p.BeforeID)
		q.andHas(`u.provider_search`, f.Provider)
		q.andHasWords(`u.search || ' ' || s.search`, f.Query)
		q.andAccess(f.AccessFilter)
		sessions, err = sqldb.Collect(t.Tx, as.scan, `SELECT `+appSessionColumns+`
			FROM app_sessions AS s JOIN app_users AS u ON u.id = s.user_id WHERE `+q.text+
			fmt.Sprintf(` ORDER BY s.id DESC LIMIT %d`, limit+1), q.args...)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	sessions, more = cut(sessions, limit)
	return sessions, more, nil
}

// selectLive finds the session of a secret by two indices.
const selectLive = `SELECT s.id, s.user_id, s.bound, s.url, s.identity, s.last_active, s.ends_at, s.idle,
	u.provider_name, u.provider_url, s.last_device, s.last_device_at, s.device_changed_at
	FROM app_sessions AS s JOIN app_users AS u ON u.id = s.user_id WHERE s.token_hash = $1 AND s.account_id = $2`

// liveRow is what selectLive returns.
type liveRow struct {
	session account.LiveSession
	url     string
	sealed  []byte
	life    lifetime

	lastDevice                    string
	lastDeviceAt, deviceChangedAt int64
}

// liveRow reads the row of a secret by one statement outside a transaction, so that it costs one
// round trip to the database.
func (as *UserSessions) liveRow(ctx context.Context, accountID string, tokenHash []byte) (*liveRow, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	r := &liveRow{session: account.LiveSession{AccountID: accountID}}
	l := &r.session
	found, err := as.db.Row(ctx, selectLive, sqldb.NotNil(tokenHash), accountID).Find(
		&l.ID, &l.Identity.ID, &l.Scope, &r.url, &r.sealed, &r.life.lastActive, &r.life.endsAt, &r.life.idle,
		&l.Provider.Name, &l.Provider.URL, &r.lastDevice, &r.lastDeviceAt, &r.deviceChangedAt)
	if err == nil && !found {
		return nil, errNoSession()
	}
	return r, as.db.MapError("looking for a session", err)
}

// LiveSession implements account.Logins.
func (as *UserSessions) LiveSession(
	ctx context.Context, accountID string, tokenHash []byte,
) (*account.LiveSession, error) {
	for last := false; ; last = true {
		r, err := as.liveRow(ctx, accountID, tokenHash)
		if err != nil {
			return nil, err
		}
		now, written := as.db.Now(), r.life.lastActive
		r.life.lastActive = max(written, as.uses.last(r.session.ID))
		switch over := as.isOver(r.life, sqldb.Micros(now)); {
		case over && (last || r.life.endsAt <= sqldb.Micros(now)):
			return nil, errNoSession()
		case over: // by its idle time, unless a use was written between the reads of the row and of the uses
			continue
		}
		l := &r.session
		if err = as.openIdentity(r.sealed, l); err != nil {
			return nil, as.db.MapError("reading a session", err)
		}
		if l.LastUse, err = lastUse(r.lastDevice, r.lastDeviceAt, r.deviceChangedAt); err != nil {
			return nil, as.db.MapError("reading the last device of a session", err)
		}
		as.uses.record(l.ID, use{userID: l.Identity.ID, url: r.url, at: sqldb.Micros(now), written: written,
			idle: r.life.idle})
		r.life.lastActive = max(r.life.lastActive, sqldb.Micros(now))
		l.ExpiresAt = sqldb.FromMicros(r.life.expires())
		return l, nil
	}
}

func errNoSession() error {
	return account.Errorf(account.CodeNotFound, "there is no such session, or it is over")
}

// openIdentity reads the identity of the session, but for its ID, which has a column.
func (as *UserSessions) openIdentity(sealed []byte, l *account.LiveSession) error {
	if as.key == nil {
		return errNoKey
	}
	text, err := as.key.Unseal(sealed, l.ID)
	if err != nil {
		return fmt.Errorf("opening the identity of session %s: %w", l.ID, err)
	}
	userID := l.Identity.ID
	if err := json.Unmarshal([]byte(text), &l.Identity); err != nil {
		return fmt.Errorf("decoding the identity of session %s: %w", l.ID, err)
	}
	l.Identity.ID = userID
	return nil
}

// LiveSessionIDs implements account.Logins.
func (as *UserSessions) LiveSessionIDs(ctx context.Context, ids []string) (map[string]bool, error) {
	used := as.uses.lastOf(ids) // before the rows are read: what is written from here on is in them
	return result(ctx, as.db, "looking for live sessions", func(t *tx) (map[string]bool, error) {
		live := make(map[string]bool, len(ids))
		return live, t.EachIn(ids, 0, func(from scanner) error {
			var id string
			var life lifetime
			err := from.Scan(&id, &life.lastActive, &life.endsAt, &life.idle)
			life.lastActive = max(life.lastActive, used[id])
			if !as.isOver(life, sqldb.Micros(t.now)) {
				live[id] = true
			}
			return err
		}, `SELECT id, last_active, ends_at, idle FROM app_sessions WHERE ends_at > $1 AND id IN IDS`)
	})
}
