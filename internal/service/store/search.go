// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// query is a growing WHERE clause with its arguments.
type query struct {
	text string
	args []any
}

func (q *query) andIf(wanted bool, comparison string, value any) {
	if wanted {
		q.args = append(q.args, value)
		q.text += fmt.Sprintf(" AND %s$%d", comparison, len(q.args))
	}
}

// andIn adds the condition that the column has one of the values, if there are any.
func (q *query) andIn(column string, values []string) {
	if len(values) > 0 {
		q.text += ` AND ` + q.in(column, values)
	}
}

// in returns the condition that a column has one of the values.
func (q *query) in(column string, values []string) string {
	places := make([]string, len(values))
	for i, v := range values {
		q.args = append(q.args, v)
		places[i] = fmt.Sprintf("$%d", len(q.args))
	}
	return column + ` IN (` + strings.Join(places, `, `) + `)`
}

// likeEscapes quotes what LIKE has a meaning for.
var likeEscapes = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// andHas narrows the query to rows whose folded column holds the text; "" narrows nothing.
func (q *query) andHas(column, text string) {
	if text != "" {
		q.args = append(q.args, `%`+likeEscapes.Replace(fold(text))+`%`)
		q.text += fmt.Sprintf(` AND (%s) LIKE $%d ESCAPE '\'`, column, len(q.args))
	}
}

// andHasWords narrows the query to rows whose folded column holds every word of the text, in any
// order. The longest word, which few rows hold, is looked for first.
func (q *query) andHasWords(column, text string) {
	words := strings.Fields(fold(text))
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	for _, word := range words {
		q.andHas(column, word)
	}
}

// foldedLetters are those that Unicode does not decompose into a letter of ASCII and a mark.
var foldedLetters = strings.NewReplacer("ø", "o", "ł", "l", "đ", "d", "ð", "d", "ħ", "h", "ŧ", "t", "ı", "i",
	"ß", "ss", "æ", "ae", "œ", "oe", "þ", "th", "ς", "σ")

// fold returns the text as searches compare it: lower case, without the accents of Latin, Greek and
// Cyrillic letters, and with one form for what looks the same, such as wide letters. Replicas and
// rows of older versions must agree: a change needs a migration that calls foldUsers.
func fold(text string) string {
	text = norm.NFKD.String(strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.Map(func(r rune) rune {
		if r >= 0x300 && r <= 0x36f { // combining diacritical marks
			return -1
		}
		return r
	}, text)
	return foldedLetters.Replace(strings.ToLower(norm.NFC.String(text)))
}

// searchable joins the searched texts of a row.
func searchable(texts ...string) string { return fold(strings.Join(texts, "\n")) }

// userSearch returns the searched text of a user.
func userSearch(id, provider, providerUserID, username, email, name string) string {
	return searchable(username, email, name, provider, providerUserID, id)
}

// foldUsers rewrites the searched text of all users.
func foldUsers(t sqldb.Tx) error {
	for last := ""; ; {
		var rows strings.Builder
		var args []any
		err := t.Each(func(from scanner) error {
			var id, provider, providerUserID, username, email, name string
			err := from.Scan(&id, &provider, &providerUserID, &username, &email, &name)
			args = append(args, id, userSearch(id, provider, providerUserID, username, email, name),
				searchable(provider))
			fmt.Fprintf(&rows, `, ($%d, $%d, $%d)`, len(args)-2, len(args)-1, len(args))
			last = id
			return err
		}, `SELECT id, provider_name, provider_user_id, username, email, name FROM app_users
			WHERE id > $1 ORDER BY id LIMIT 500`, last)
		if err != nil || len(args) == 0 {
			return err
		}
		err = t.Exec(`WITH folded (id, search, provider_search) AS (VALUES `+rows.String()[2:]+`)
			UPDATE app_users SET search = folded.search, provider_search = folded.provider_search
			FROM folded WHERE app_users.id = folded.id`, args...)
		if err != nil {
			return err
		}
	}
}

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
			len(q.args)-1, len(q.args))
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
