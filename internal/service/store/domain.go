// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Domains are the grants of domains to accounts, which their public endpoints follow.
type Domains struct {
	db        *database
	accounts  *Accounts
	endpoints *Endpoints
	ownHosts  []string // ownHosts are those of the service's own URLs, which no endpoint gets.
}

// GrantDomain implements account.Domains.
func (ds *Domains) GrantDomain(ctx context.Context, accountID, raw string) (*account.Domain, error) {
	pattern, err := account.ParseDomainPattern(raw)
	if err != nil {
		return nil, err
	}
	return writeResult(ctx, ds.db, "granting a domain", func(t *tx) (*account.Domain, error) {
		d := &account.Domain{Pattern: pattern, AccountID: accountID, CreatedAt: t.now}
		if err := ds.accounts.exists(t, accountID); err != nil {
			return nil, err
		}
		granted, err := t.Row(`SELECT created_at FROM domains WHERE account_id = $1 AND pattern = $2`, accountID,
			pattern).Find(sqldb.TimeField(&d.CreatedAt))
		if err != nil || granted {
			return d, err
		}
		if err := ds.refuseOwnHost(t, pattern); err != nil {
			return nil, err
		}
		if err := ds.refuseOverlap(t, accountID, pattern); err != nil {
			return nil, err
		}
		err = t.Exec(`INSERT INTO domains (pattern, account_id, created_at) VALUES ($1, $2, $3)`, pattern, accountID,
			sqldb.Micros(t.now))
		if err != nil {
			return nil, err
		}
		t.audit(account.Caller{AccountID: accountID}, account.AuditDomainGranted, pattern, map[string]string{})
		return d, ds.followGrants(t, accountID)
	})
}

// refuseOwnHost refuses a host of the server's own URLs, as the server has recorded them.
func (ds *Domains) refuseOwnHost(t *tx, pattern string) error {
	var own string
	if err := t.Row(`SELECT own_hosts FROM store`).Scan(&own); err != nil {
		return err
	}
	if slices.Contains(strings.Fields(own), pattern) {
		return account.Invalid("pattern", pattern, "is the host of the server's --base-url or --tunnel-url, which no "+
			"endpoint gets; grant another host, or every host below a domain, such as *."+pattern)
	}
	return nil
}

// refuseOverlap holds the rule that a host belongs to one account at most.
func (ds *Domains) refuseOverlap(t *tx, accountID, pattern string) error {
	q := query{args: []any{accountID}, text: `account_id <> $1`}
	overlaps := q.in(`pattern`, account.DomainPatterns(pattern)) // itself, and the wildcards above it
	if below, ok := strings.CutPrefix(pattern, "*"); ok {
		q.args = append(q.args, "%"+below) // no character of a domain means anything to LIKE
		overlaps += fmt.Sprintf(` OR pattern LIKE $%d`, len(q.args))
	}
	var taken, owner string
	overlap, err := t.Row(
		`SELECT pattern, (SELECT name FROM accounts WHERE accounts.id = domains.account_id) FROM domains WHERE `+
			q.text+` AND (`+overlaps+`)
		ORDER BY pattern LIMIT 1`, q.args...).Find(&taken, &owner)
	if err != nil || !overlap {
		return err
	}
	return account.Errorf(account.CodeInUse,
		"%s overlaps %s, which is granted to account %s; a host belongs to one account: revoke that grant first",
		pattern, taken, owner)
}

// RevokeDomain implements account.Domains.
func (ds *Domains) RevokeDomain(ctx context.Context, accountID, raw string) error {
	pattern, err := account.ParseDomainPattern(raw)
	if err != nil {
		return err
	}
	return ds.db.write(ctx, "revoking a domain", func(t *tx) error {
		found, err := t.Exists(`DELETE FROM domains WHERE account_id = $1 AND pattern = $2 RETURNING pattern`,
			accountID, pattern)
		if err == nil && !found {
			return account.Errorf(account.CodeNotFound, "%s is not granted to this account", pattern)
		}
		if err != nil {
			return err
		}
		t.audit(account.Caller{AccountID: accountID}, account.AuditDomainRevoked, pattern, map[string]string{})
		return ds.followGrants(t, accountID)
	})
}

// followGrants applies the account's grants to its public endpoints: those without one go offline;
// endpoints of type cloud, which have no agent to bring them back, are online again when theirs is
// back.
func (ds *Domains) followGrants(t *tx, accountID string) error {
	granted, err := ds.grantsOf(t, accountID)
	if err != nil {
		return err
	}
	rows, err := ds.endpoints.all(t, `account_id = $1 AND binding = $2 ORDER BY id`, accountID, account.BindingPublic)
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
func (ds *Domains) grantsOf(t *tx, accountID string) (func(host string) bool, error) {
	patterns := map[string]bool{}
	err := t.Each(func(from scanner) error {
		var p string
		err := from.Scan(&p)
		patterns[p] = true
		return err
	}, `SELECT pattern FROM domains WHERE account_id = $1 ORDER BY pattern`, accountID)
	return func(host string) bool {
		granted := slices.ContainsFunc(account.DomainPatterns(host), func(p string) bool { return patterns[p] })
		return granted && !slices.Contains(ds.ownHosts, host)
	}, err
}

// ListDomains implements account.Domains.
func (ds *Domains) ListDomains(ctx context.Context, accountID string) ([]account.Domain, error) {
	return result(ctx, ds.db, "listing domains", func(t *tx) ([]account.Domain, error) {
		return sqldb.List(t.Tx, func(d *account.Domain) []any {
			return []any{&d.Pattern, &d.AccountID, sqldb.TimeField(&d.CreatedAt)}
		}, `SELECT pattern, account_id, created_at FROM domains WHERE account_id = $1 OR $1 = '' ORDER BY pattern`,
			accountID)
	})
}

// ruleUngranted is the one text for a host that the account may not have: it does not tell whether
// another account has it.
const ruleUngranted = "the host is not under a domain that is granted to this account; ask the administrator of the " +
	"server " +
	"(fairlead-server domain grant)"

// mayHaveHost refuses a URL of the public binding whose host the account may not have. Whether
// another account has it makes no difference, and is not looked up. Other bindings have no grants.
func (ds *Domains) mayHaveHost(t *tx, e *account.Endpoint) error {
	if e.Bindings[0] != account.BindingPublic {
		return nil
	}
	owner, err := ds.ownerOf(t, e.Host)
	if err == nil && (owner != e.AccountID || owner == "") {
		return account.Invalid("url", account.Shorten(e.URL), ruleUngranted)
	}
	return err
}

// ownerOf returns the account that may have the public host, "" for none.
func (ds *Domains) ownerOf(t *tx, host string) (accountID string, err error) {
	if slices.Contains(ds.ownHosts, host) {
		return "", nil
	}
	var q query
	_, err = t.Row(`SELECT account_id FROM domains WHERE `+q.in(`pattern`, account.DomainPatterns(host))+
		` ORDER BY pattern LIMIT 1`, q.args...).Find(&accountID)
	return accountID, err
}

// GrantedHosts returns which of the hosts the account may have now.
func (ds *Domains) GrantedHosts(ctx context.Context, accountID string, hosts []string) (map[string]bool, error) {
	return result(ctx, ds.db, "reading grants of domains", func(t *tx) (map[string]bool, error) {
		may, err := ds.grantsOf(t, accountID)
		granted := make(map[string]bool, len(hosts))
		for _, h := range hosts {
			granted[h] = may(h)
		}
		return granted, err
	})
}

// PublicEndpoint finds the endpoint with the public binding at the host and the first of the ports
// that has one, of whichever account has the grant; in a pool any member, if possible an online
// one. CodeNotFound when there is none.
func (ds *Domains) PublicEndpoint(ctx context.Context, host string, ports ...int) (*account.Endpoint, error) {
	return result(ctx, ds.db, "finding a public endpoint", func(t *tx) (*account.Endpoint, error) {
		owner, err := ds.ownerOf(t, host)
		if err != nil {
			return nil, err
		}
		for _, port := range ports {
			row, err := ds.endpoints.find(t,
				`account_id = $1 AND binding = $2 AND host = $3 AND port = $4 ORDER BY online DESC, id LIMIT 1`,
				owner, account.BindingPublic, host, port)
			if err != nil {
				return nil, err
			}
			if row != nil {
				p, err := ds.endpoints.policyOf(t, row) // an endpoint without its policy must not be served
				row.e.TrafficPolicy = p.text
				return &row.e, err
			}
		}
		return nil, account.Errorf(account.CodeNotFound, "there is no public endpoint at %s:%v",
			account.Shorten(host), ports)
	})
}
