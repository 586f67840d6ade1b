// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// ACMEKind is a kind of rows of ACME.
type ACMEKind string

// Kinds of rows, and what their names are.
const (
	ACMEAccount     ACMEKind = "account"     // URL of the directory
	ACMECertificate ACMEKind = "certificate" // host
	ACMEHTTP01      ACMEKind = "http-01"     // token of a challenge
	ACMETLSALPN01   ACMEKind = "tls-alpn-01" // host
)

// challengeAge is how long the answer to a challenge is kept that no replica has deleted.
const challengeAge = time.Hour

// ACME keeps, for all replicas, the account at an ACME directory, the certificates from there and the
// answers to its challenges. All values are sealed.
type ACME struct {
	db      *database
	key     *seal.Key
	domains *Domains
}

// ACMEHosts returns the hosts of all https endpoints with the public binding whose account is granted
// them, sorted.
func (a *ACME) ACMEHosts(ctx context.Context) ([]string, error) {
	return result(ctx, a.db, "listing the hosts of public endpoints", func(t *tx) (hosts []string, err error) {
		owners := map[string]string{}
		err = t.Each(func(from scanner) error {
			var pattern, owner string
			err := from.Scan(&pattern, &owner)
			owners[pattern] = owner
			return err
		}, `SELECT pattern, account_id FROM domains ORDER BY pattern`)
		if err != nil {
			return nil, err
		}
		return hosts, t.Each(func(from scanner) error {
			var host, accountID string
			if err := from.Scan(&host, &accountID); err != nil || slices.Contains(a.domains.ownHosts, host) {
				return err
			}
			owned := func(pattern string) bool { return owners[pattern] == accountID }
			if slices.ContainsFunc(account.DomainPatterns(host), owned) {
				hosts = append(hosts, host)
			}
			return nil
		}, `SELECT DISTINCT host, account_id FROM endpoints WHERE binding = $1 AND scheme = 'https' ORDER BY host`,
			account.BindingPublic)
	})
}

// ACMEVersions returns when each row of the kind was changed last, by name.
func (a *ACME) ACMEVersions(ctx context.Context, kind ACMEKind) (map[string]int64, error) {
	return result(ctx, a.db, "listing what is from the ACME directory", func(t *tx) (map[string]int64, error) {
		versions := map[string]int64{}
		return versions, t.Each(func(from scanner) error {
			var name string
			var at int64
			err := from.Scan(&name, &at)
			versions[name] = at
			return err
		}, `SELECT name, changed_at FROM acme WHERE kind = $1 ORDER BY name`, kind)
	})
}

// ACMEValue returns the value of a row, "" when there is none.
func (a *ACME) ACMEValue(ctx context.Context, kind ACMEKind, name string) (string, error) {
	return result(ctx, a.db, "reading what is from the ACME directory", func(t *tx) (string, error) {
		var sealed []byte
		found, err := t.Row(`SELECT sealed FROM acme WHERE kind = $1 AND name = $2`, kind, name).Find(&sealed)
		if err != nil || !found {
			return "", err
		}
		return a.key.Unseal(sealed, string(kind)+" "+name)
	})
}

// PutACME stores the value of a row; "" deletes it.
func (a *ACME) PutACME(ctx context.Context, kind ACMEKind, name, value string) error {
	return a.db.write(ctx, "storing what is from the ACME directory", func(t *tx) error {
		if value == "" {
			return t.Exec(`DELETE FROM acme WHERE kind = $1 AND name = $2`, kind, name)
		}
		err := t.Exec(`DELETE FROM acme WHERE kind IN ($1, $2) AND changed_at < $3`, ACMEHTTP01, ACMETLSALPN01,
			sqldb.Micros(t.now.Add(-challengeAge)))
		if err != nil {
			return err
		}
		return t.Exec(`INSERT INTO acme (kind, name, sealed, changed_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (kind, name) DO UPDATE SET sealed = excluded.sealed, changed_at = excluded.changed_at`,
			kind, name, a.key.Seal(value, string(kind)+" "+name), sqldb.Micros(t.now))
	})
}
