// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

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
func (t *tx) foldUsers() error {
	for last := ""; ; {
		var rows strings.Builder
		var args []any
		err := t.each(func(from scanner) error {
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
		err = t.exec(`WITH folded (id, search, provider_search) AS (VALUES `+rows.String()[2:]+`)
			UPDATE app_users SET search = folded.search, provider_search = folded.provider_search
			FROM folded WHERE app_users.id = folded.id`, args...)
		if err != nil {
			return err
		}
	}
}
