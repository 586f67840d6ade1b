// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// The address and the country of a session s, read from its device. The JSON functions are those
// that both engines have.
const (
	sessionAddress = `json(s.device) ->> 'ip_address'`
	sessionCountry = `json(s.device) -> 'location' ->> 'country_code'`
)

// andAccess narrows a query of app_sessions AS s.
func (q *query) andAccess(f account.AccessFilter) {
	q.andEndpoint(`s`, f.Endpoint)
	if address, whole := f.Address(); whole {
		q.andIf(true, sessionAddress+` = `, address)
	} else if address != "" { // its letters are hexadecimal: no wildcards
		q.andIf(true, sessionAddress+` LIKE `, address+`%`)
	}
	q.andIf(f.Country != "", sessionCountry+` = `, strings.ToUpper(f.Country))
}

// andEndpoint narrows a query of app_sessions or app_accesses to the endpoints that the text is a
// part of the URL, or the id, of.
func (q *query) andEndpoint(table, endpoint string) {
	if endpoint != "" {
		q.args = append(q.args, `%`+likeEscapes.Replace(strings.ToLower(endpoint))+`%`, endpoint)
		q.text += fmt.Sprintf(` AND (%[1]s.url LIKE $%[2]d ESCAPE '\' OR %[1]s.endpoint_id = $%[3]d)`, table,
			len(q.args)-1,
			len(q.args))
	}
}

// andAccessed narrows a query of app_users, whose first argument is the time, to the users of whom
// a session, or a past access, matches.
func (q *query) andAccessed(f account.AccessFilter) {
	switch {
	case f == account.AccessFilter{}:
	case f.IP == "" && f.Country == "":
		q.text += ` AND EXISTS (SELECT 1 FROM app_accesses AS a WHERE a.user_id = app_users.id`
		q.andEndpoint(`a`, f.Endpoint)
		q.text += `)`
	default:
		q.text += ` AND EXISTS (SELECT 1 FROM app_sessions AS s WHERE s.user_id = app_users.id AND s.expires_at > $1`
		q.andAccess(f)
		q.text += `)`
	}
}

// AccessChoices implements account.Identities.
func (s *Store) AccessChoices(ctx context.Context, accountID string) (*account.AccessChoices, error) {
	choices := &account.AccessChoices{}
	err := s.read(ctx, "listing what identities can be filtered by", func(t *tx) error {
		into := func(list *[]string) func(scanner) error {
			return func(from scanner) error {
				var one string
				err := from.Scan(&one)
				*list = append(*list, one)
				return err
			}
		}
		err := t.each(into(&choices.Endpoints), `SELECT DISTINCT a.url
			FROM app_accesses AS a JOIN app_users AS u ON u.id = a.user_id
			WHERE u.account_id = $1 ORDER BY a.url LIMIT $2`,
			accountID, account.MaxAccessChoices)
		if err != nil {
			return err
		}
		return t.each(into(&choices.Countries), `SELECT DISTINCT country FROM (SELECT `+sessionCountry+` AS country
			FROM app_sessions AS s WHERE s.account_id = $1 AND s.expires_at > $2) AS c
			WHERE country IS NOT NULL ORDER BY country`, accountID, micros(t.now))
	})
	if err != nil {
		return nil, err
	}
	return choices, nil
}
