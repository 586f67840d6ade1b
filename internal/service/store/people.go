// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// People are the users of applications: those who have logged in to an endpoint.
type People struct {
	db *database
}

const userColumns = `id, provider_name, provider_url, provider_user_id, username, email, name, created_at, last_active,
	last_login`

// withSessions adds how many sessions of the user live; $1 is the time.
const withSessions = userColumns +
	`, (SELECT COUNT(*) FROM app_sessions AS s WHERE s.user_id = app_users.id AND s.expires_at > $1)`

func scanUser(from scanner) (account.User, error) {
	var u account.User
	var made, active, login int64
	err := from.Scan(&u.ID, &u.Provider.Name, &u.Provider.URL, &u.ProviderUserID, &u.Username, &u.Email, &u.Name, &made,
		&active, &login, &u.Sessions)
	u.CreatedAt, u.LastActive, u.LastLogin = sqldb.FromMicros(made), sqldb.FromMicros(active), sqldb.FromMicros(login)
	return u, err
}

func (ps *People) get(t *tx, accountID, id string) (*account.User, error) {
	u, err := scanUser(t.Row(`SELECT `+withSessions+` FROM app_users WHERE account_id = $2 AND id = $3`,
		sqldb.Micros(t.now), accountID, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound("application user", id)
	}
	return &u, err
}

// User implements account.Identities.
func (ps *People) User(ctx context.Context, accountID, id string) (*account.User, error) {
	return result(ctx, ps.db, "reading an application user", func(t *tx) (*account.User, error) {
		return ps.get(t, accountID, id)
	})
}

// Users implements account.Identities.
func (ps *People) Users(
	ctx context.Context, accountID string, f account.UserFilter, p account.Page,
) (users []account.User, more bool, err error) {
	limit := pageLimit(p)
	err = ps.db.read(ctx, "listing application users", func(t *tx) (err error) {
		q := query{args: []any{sqldb.Micros(t.now), accountID}, text: `account_id = $2`}
		order := `id DESC`
		switch {
		case f.ByActivity && p.BeforeID != "":
			q.args = append(q.args, sqldb.Micros(f.ActiveBefore), p.BeforeID)
			q.text += fmt.Sprintf(` AND (last_active, id) < ($%d, $%d)`, len(q.args)-1, len(q.args))
		case p.BeforeID != "":
			q.andIf(true, `id < `, p.BeforeID)
		}
		if f.ByActivity {
			order = `last_active DESC, id DESC`
		}
		q.andIf(f.UserID != "", `id = `, f.UserID)
		q.andAccessed(f.AccessFilter)
		q.andHasWords(`search`, f.Query)
		q.andHas(`provider_search`, f.Provider)
		users, err = sqldb.Collect(t.Tx, scanUser, `SELECT `+withSessions+` FROM app_users WHERE `+q.text+
			fmt.Sprintf(` ORDER BY %s LIMIT %d`, order, limit+1), q.args...)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	users, more = cut(users, limit)
	return users, more, nil
}

// AccessedEndpoints implements account.Identities.
func (ps *People) AccessedEndpoints(ctx context.Context, accountID, userID string) ([]account.AccessedEndpoint, error) {
	return result(ctx, ps.db, "listing accessed endpoints", func(t *tx) ([]account.AccessedEndpoint, error) {
		if _, err := ps.get(t, accountID, userID); err != nil {
			return nil, err
		}
		all, err := sqldb.List(t.Tx, func(a *account.AccessedEndpoint) []any {
			return []any{&a.URL, refField(&a.Endpoint), sqldb.TimeField(&a.First), sqldb.TimeField(&a.Last)}
		}, `SELECT url, endpoint_id, first_at, last_at FROM app_accesses WHERE user_id = $1 ORDER BY last_at DESC, url`,
			userID)
		return append([]account.AccessedEndpoint{}, all...), err
	})
}

// IdentityProviders implements account.Identities.
func (ps *People) IdentityProviders(ctx context.Context, accountID string) ([]account.IdentityProvider, error) {
	return result(ctx, ps.db, "listing identity providers", func(t *tx) ([]account.IdentityProvider, error) {
		all, err := sqldb.List(t.Tx, func(p *account.IdentityProvider) []any { return []any{&p.Name, &p.URL} },
			`SELECT DISTINCT provider_name, provider_url FROM app_users
			WHERE account_id = $1 ORDER BY provider_name, provider_url`, accountID)
		return append([]account.IdentityProvider{}, all...), err
	})
}

// AccessChoices implements account.Identities.
func (ps *People) AccessChoices(ctx context.Context, accountID string) (*account.AccessChoices, error) {
	const doing = "listing what identities can be filtered by"
	return result(ctx, ps.db, doing, func(t *tx) (choices *account.AccessChoices, err error) {
		choices = &account.AccessChoices{}
		choices.Endpoints, err = sqldb.Values[string](t.Tx, `SELECT DISTINCT a.url
			FROM app_accesses AS a JOIN app_users AS u ON u.id = a.user_id
			WHERE u.account_id = $1 ORDER BY a.url LIMIT $2`,
			accountID, account.MaxAccessChoices)
		if err != nil {
			return nil, err
		}
		choices.Countries, err = sqldb.Values[string](t.Tx, `SELECT DISTINCT country FROM
			(SELECT `+sessionCountry+` AS country FROM app_sessions AS s WHERE s.account_id = $1 AND s.expires_at > $2)
			AS c WHERE country IS NOT NULL ORDER BY country`, accountID, sqldb.Micros(t.now))
		return choices, err
	})
}
