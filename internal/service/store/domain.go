// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// GrantDomain implements account.Domains.
func (s *Store) GrantDomain(ctx context.Context, accountID, raw string) (*account.Domain, error) {
	pattern, err := account.ParseDomainPattern(raw)
	if err != nil {
		return nil, err
	}
	d := &account.Domain{Pattern: pattern, AccountID: accountID}
	err = s.write(ctx, "granting a domain", func(t *tx) error {
		d.CreatedAt = t.now
		if err := t.accountExists(accountID); err != nil {
			return err
		}
		var made int64
		err := t.row(`SELECT created_at FROM domains WHERE account_id = $1 AND pattern = $2`, accountID, pattern).
			Scan(&made)
		if err == nil {
			d.CreatedAt = fromMicros(made)
			return nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err := t.refuseOwnHost(pattern); err != nil {
			return err
		}
		if err := t.refuseOverlap(accountID, pattern); err != nil {
			return err
		}
		err = t.exec(`INSERT INTO domains (pattern, account_id, created_at) VALUES ($1, $2, $3)`, pattern, accountID,
			micros(t.now))
		if err != nil {
			return err
		}
		t.audit(account.Caller{AccountID: accountID}, account.AuditDomainGranted, pattern, map[string]string{})
		return t.followGrants(accountID)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// refuseOwnHost refuses a host of the server's own URLs, as the server has recorded them.
func (t *tx) refuseOwnHost(pattern string) error {
	var own string
	if err := t.row(`SELECT own_hosts FROM store`).Scan(&own); err != nil {
		return err
	}
	if slices.Contains(strings.Fields(own), pattern) {
		return account.Invalid("pattern", pattern, "is the host of the server's --base-url or --tunnel-url, which no "+
			"endpoint gets; grant another host, or every host below a domain, such as *."+pattern)
	}
	return nil
}

// refuseOverlap holds the rule that a host belongs to one account at most.
func (t *tx) refuseOverlap(accountID, pattern string) error {
	q := query{args: []any{accountID}, text: `account_id <> $1`}
	overlaps := q.in(`pattern`, account.DomainPatterns(pattern)) // itself, and the wildcards above it
	if below, ok := strings.CutPrefix(pattern, "*"); ok {
		q.args = append(q.args, "%"+below) // no character of a domain means anything to LIKE
		overlaps += fmt.Sprintf(` OR pattern LIKE $%d`, len(q.args))
	}
	var taken, owner string
	err := t.row(
		`SELECT pattern, (SELECT name FROM accounts WHERE accounts.id = domains.account_id) FROM domains WHERE `+
			q.text+` AND (`+overlaps+`)
		ORDER BY pattern LIMIT 1`, q.args...).Scan(&taken, &owner)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return account.Errorf(account.CodeInUse,
		"%s overlaps %s, which is granted to account %s; a host belongs to one account: revoke that grant first",
		pattern,
		taken, owner)
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

// RevokeDomain implements account.Domains.
func (s *Store) RevokeDomain(ctx context.Context, accountID, raw string) error {
	pattern, err := account.ParseDomainPattern(raw)
	if err != nil {
		return err
	}
	return s.write(ctx, "revoking a domain", func(t *tx) error {
		var found string
		err := t.row(`DELETE FROM domains WHERE account_id = $1 AND pattern = $2 RETURNING pattern`, accountID,
			pattern).
			Scan(&found)
		if errors.Is(err, sql.ErrNoRows) {
			return account.Errorf(account.CodeNotFound, "%s is not granted to this account", pattern)
		}
		if err != nil {
			return err
		}
		t.audit(account.Caller{AccountID: accountID}, account.AuditDomainRevoked, pattern, map[string]string{})
		return t.followGrants(accountID)
	})
}

// followGrants applies the account's grants to its public endpoints: those without one go offline;
// endpoints of type cloud, which have no agent to bring them back, are online again when theirs is
// back.
func (t *tx) followGrants(accountID string) error {
	granted, err := t.grantsOf(accountID)
	if err != nil {
		return err
	}
	rows, err := t.endpointsWhere(`account_id = $1 AND binding = $2 ORDER BY id`, accountID, account.BindingPublic)
	if err != nil {
		return err
	}
	for _, row := range rows {
		switch covered := granted(row.e.Host); {
		case !covered && row.online():
			row.setOffline(t.now)
		case covered && !row.online() && row.e.Type == account.TypeCloud:
			row.e.Status, row.e.OfflineSince, row.e.UpdatedAt = account.StatusOnline, nil, t.now
			row.onlineSince = t.now
		default:
			continue
		}
		t.changed(account.Modified, row)
	}
	return nil
}

// grantsOf returns a function that reports whether the account may have a host.
func (t *tx) grantsOf(accountID string) (func(host string) bool, error) {
	patterns := map[string]bool{}
	err := t.each(func(from scanner) error {
		var p string
		err := from.Scan(&p)
		patterns[p] = true
		return err
	}, `SELECT pattern FROM domains WHERE account_id = $1 ORDER BY pattern`, accountID)
	return func(host string) bool {
		return !t.s.reserved(host) && slices.ContainsFunc(account.DomainPatterns(host), func(p string) bool {
			return patterns[p]
		})
	}, err
}

// reserved reports whether the host is the service's own.
func (s *Store) reserved(host string) bool { return slices.Contains(s.opt.OwnHosts, host) }

// ListDomains implements account.Domains.
func (s *Store) ListDomains(ctx context.Context, accountID string) ([]account.Domain, error) {
	var all []account.Domain
	err := s.read(ctx, "listing domains", func(t *tx) error {
		return t.each(func(from scanner) error {
			var d account.Domain
			var made int64
			err := from.Scan(&d.Pattern, &d.AccountID, &made)
			d.CreatedAt = fromMicros(made)
			all = append(all, d)
			return err
		}, `SELECT pattern, account_id, created_at FROM domains WHERE account_id = $1 OR $1 = '' ORDER BY pattern`,
			accountID)
	})
	return all, err
}

// ruleUngranted is the one text for a host that the account may not have: it does not tell whether
// another account has it.
const ruleUngranted = "the host is not under a domain that is granted to this account; ask the administrator of the " +
	"server " +
	"(fairlead-server domain grant)"

// mayHaveHost refuses a URL of the public binding whose host the account may not have. Whether
// another account has it makes no difference, and is not looked up. Other bindings have no grants.
func (t *tx) mayHaveHost(accountID, binding string, u account.EndpointURL) error {
	if binding != account.BindingPublic {
		return nil
	}
	owner, err := t.ownerOf(u.Host)
	if err == nil && (owner != accountID || owner == "") {
		return account.Invalid("url", account.Shorten(u.String()), ruleUngranted)
	}
	return err
}

// ownerOf returns the account that may have the public host, "" for none.
func (t *tx) ownerOf(host string) (accountID string, err error) {
	if t.s.reserved(host) {
		return "", nil
	}
	var q query
	err = t.row(`SELECT account_id FROM domains WHERE `+q.in(`pattern`, account.DomainPatterns(host))+
		` ORDER BY pattern LIMIT 1`, q.args...).Scan(&accountID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return accountID, err
}

// GrantedHosts implements account.PublicHosts.
func (s *Store) GrantedHosts(ctx context.Context, accountID string, hosts []string) (map[string]bool, error) {
	granted := make(map[string]bool, len(hosts))
	err := s.read(ctx, "reading grants of domains", func(t *tx) error {
		may, err := t.grantsOf(accountID)
		if err != nil {
			return err
		}
		for _, h := range hosts {
			granted[h] = may(h)
		}
		return nil
	})
	return granted, err
}

// PublicEndpoint implements account.PublicHosts.
func (s *Store) PublicEndpoint(ctx context.Context, host string, port int) (*account.Endpoint, error) {
	var e *account.Endpoint
	err := s.read(ctx, "finding a public endpoint", func(t *tx) error {
		owner, err := t.ownerOf(host)
		if err != nil {
			return err
		}
		row, err := t.endpointWhere(
			`account_id = $1 AND binding = $2 AND host = $3 AND port = $4 ORDER BY online DESC, id LIMIT 1`,
			owner, account.BindingPublic, host, port)
		if err != nil {
			return err
		}
		if row == nil {
			return account.Errorf(account.CodeNotFound, "there is no public endpoint at %s:%d", account.Shorten(host),
				port)
		}
		p, err := t.policyOf(row) // an endpoint without its policy must not be served
		row.e.TrafficPolicy, e = p.text, &row.e
		return err
	})
	return e, err
}
