// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

const (
	people   = 10_000
	loggedIn = 200 // of them with a session that can be read
)

// identityStore is a store with an account in which many people have a session each.
type identityStore struct {
	*store.Store
	b       *testing.B
	account string
	newest  string // user
}

func secretOf(i int) []byte {
	h := sha256.Sum256(fmt.Append(nil, "secret ", i))
	return h[:]
}

func newIdentityStore(b *testing.B, open engine) *identityStore {
	b.Helper()
	opt, driver, dataSource := open(b)
	var err error
	opt.Key, err = seal.New([]byte(strings.Repeat("k", seal.KeySize)))
	must(b, err)
	c := &identityStore{b: b}
	ctx := context.WithoutCancel(b.Context())
	c.Store, err = store.Open(ctx, opt)
	must(b, err)
	b.Cleanup(func() { must(b, c.Close()) })
	owner, err := c.CreateAccount(ctx, "bench")
	must(b, err)
	c.account = owner.ID
	for i := range loggedIn {
		live, err := c.Login(ctx, c.account,
			account.NewLogin{Authentication: account.Authentication{Key: fmt.Sprint("person ", i),
				Provider: account.IdentityProvider{Name: "Example ID", URL: "https://id.example"},
				Identity: account.LoginIdentity{ProviderUserID: fmt.Sprint(i), Username: fmt.Sprint("person", i),
					Email: fmt.Sprintf("person%d@example.com", i), Groups: []string{"staff", "ops"}}},
				URL: "https://app.example.com", TokenHash: secretOf(i), Idle: time.Hour,
				Device: account.Device{IPAddress: "203.0.113.9"}})
		must(b, err)
		c.newest = live.Identity.ID
	}
	c.fill(driver, dataSource)
	return c
}

// fill copies the newest user and session to older ones until there are 10,000 people, by SQL.
func (c *identityStore) fill(driver, dataSource string) {
	c.b.Helper()
	db, err := sql.Open(driver, dataSource)
	must(c.b, err)
	defer func() { must(c.b, db.Close()) }()
	hash := map[string]string{"sqlite": "CAST('h' || i AS BLOB)", "pgx": "CAST('h' || i AS BYTEA)"}[driver]
	for _, table := range []struct {
		name, newest string // the column with the id of the newest user
		changed      map[string]string
	}{
		{"app_users", "id", map[string]string{"id": number("au"), "identity_key": "'k' || i",
			"username": "'other' || i",
			"search":   "'other' || i || ' other' || i || '@example.org'"}},
		{"app_sessions", "user_id", map[string]string{"id": number("as"), "user_id": number("au"), "token_hash": hash,
			"search": "'https://other.example.com 198.51.100.' || i"}},
	} {
		copyRows(c.b, db, table.name, fmt.Sprintf("%s = '%s'", table.newest, c.newest), table.changed, loggedIn+1,
			people)
	}
	if driver == "pgx" {
		_, err = db.ExecContext(c.b.Context(), "ANALYZE")
		must(c.b, err)
	}
}

// reads are the measured calls, by metric name.
var reads = map[string]func(*identityStore){
	"session": func(c *identityStore) {
		_, err := c.LiveSession(c.b.Context(), c.account, secretOf(rand.N(loggedIn)))
		must(c.b, err)
	},
	"no-session":         func(c *identityStore) { _, _ = c.LiveSession(c.b.Context(), c.account, secretOf(-1)) },
	"page":               func(c *identityStore) { c.users(account.UserFilter{}, 100) },
	"search-one-of-many": func(c *identityStore) { c.users(account.UserFilter{Query: "OTHER1234@"}, 1) },
	"search-no-match": func(c *identityStore) {
		c.users(account.UserFilter{Query: "unknown", Provider: "example"}, 0)
	},
	"search-many":      func(c *identityStore) { c.users(account.UserFilter{Query: "other"}, 100) },
	"sessions-search":  func(c *identityStore) { c.sessions(account.AppSessionFilter{Query: "no such address"}, 0) },
	"sessions-of-user": func(c *identityStore) { c.sessions(account.AppSessionFilter{UserID: c.newest}, 1) },
}

func (c *identityStore) users(f account.UserFilter, want int) {
	c.b.Helper()
	got, _, err := c.Users(c.b.Context(), c.account, f, account.Page{Limit: 100})
	must(c.b, err)
	if len(got) != want {
		c.b.Fatalf("%+v: %d users, not %d", f, len(got), want)
	}
}

func (c *identityStore) sessions(f account.AppSessionFilter, want int) {
	c.b.Helper()
	got, _, err := c.AppSessions(c.b.Context(), c.account, f, account.Page{Limit: 100})
	must(c.b, err)
	if len(got) != want {
		c.b.Fatalf("%+v: %d sessions, not %d", f, len(got), want)
	}
}

// BenchmarkIdentities measures the session lookup of every request, and lists, with 10,000 people.
func BenchmarkIdentities(b *testing.B) {
	for name, open := range engines(b) {
		b.Run(name, func(b *testing.B) {
			c := newIdentityStore(b, open)
			took := map[string][]time.Duration{}
			b.ResetTimer()
			for range b.N * rounds {
				for name, read := range reads {
					begin := time.Now()
					read(c)
					took[name] = append(took[name], time.Since(begin))
				}
			}
			b.ReportMetric(0, "ns/op")
			for _, what := range slices.Sorted(maps.Keys(took)) {
				b.Logf("%s: p50 %s, p99 %s", what, percentile(took[what], 0.5), percentile(took[what], 0.99))
				b.ReportMetric(float64(percentile(took[what], 0.5).Microseconds()), what+"-us")
			}
		})
	}
}
