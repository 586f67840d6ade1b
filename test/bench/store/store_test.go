// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
)

const (
	few, many = 1_000, 100_000
	rounds    = 100
	maxRatio  = 1.5
)

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// endpointStore is a store with an account that has many endpoints.
type endpointStore struct {
	*store.Store
	b                  *testing.B
	account, session   string
	driver, dataSource string
	ids                []string
	made               int
}

// engine makes an empty database, and returns the options of its store and its SQL data source.
type engine func(b *testing.B) (opt store.Options, driver, dataSource string)

func engines(b *testing.B) map[string]engine {
	var postgres *postgrestest.Server
	return map[string]engine{
		"sqlite": func(b *testing.B) (store.Options, string, string) {
			dir := b.TempDir()
			return store.Options{DataDir: dir}, "sqlite", filepath.Join(dir, "fairlead.db")
		},
		"postgres": func(inner *testing.B) (store.Options, string, string) {
			if postgres == nil {
				var err error
				postgres, err = postgrestest.Start()
				postgrestest.SkipWithout(inner, err)
				b.Cleanup(func() { must(b, postgres.Remove()) })
			}
			databaseURL := postgres.URL(inner)
			return store.Options{DataDir: inner.TempDir(), DatabaseURL: databaseURL}, "pgx", databaseURL
		},
	}
}

func newEndpointStore(b *testing.B, open engine, size int) *endpointStore {
	b.Helper()
	f := &endpointStore{b: b}
	var opt store.Options
	opt, f.driver, f.dataSource = open(b)
	opt.MaxEndpoints = 10 * many
	ctx := context.WithoutCancel(b.Context())
	var err error
	f.Store, err = store.Open(ctx, opt)
	must(b, err)
	b.Cleanup(func() { must(b, f.Close()) })
	owner, err := f.CreateAccount(ctx, "bench")
	must(b, err)
	f.account, f.session = owner.ID, account.NewID(account.PrefixTunnelSession, time.Now())
	must(b, f.StartSession(ctx, account.TunnelSession{ID: f.session, AccountID: f.account, IP: "127.0.0.1",
		InstanceID: "bench"}))
	f.create()
	f.fill(size)
	return f
}

// create binds one more endpoint and returns its id.
func (f *endpointStore) create() string {
	f.b.Helper()
	f.made++
	u, err := account.ParseEndpointURL(fmt.Sprintf("http://new-%d.demo", f.made))
	must(f.b, err)
	e := account.NewEndpoint(account.BindingKubernetes, u)
	e.AccountID, e.EndpointSettings = f.account, account.EndpointSettings{UpstreamURL: "http://localhost:8080",
		UpstreamProtocol: "http1", HostMode: account.HostPassthrough}
	got, err := f.Bind(f.b.Context(), account.BindRequest{Endpoint: e, SessionID: f.session})
	must(f.b, err)
	return got.Endpoint.ID
}

// copies are the tables of which an endpoint has a row, with the columns that differ from one
// endpoint to the next, i being its number.
var copies = map[string]map[string]string{
	"endpoints": {"id": number("ep"), "host": "'e' || i || '.demo'", "url": "'http://e' || i || '.demo'", "seq": "i",
		"projection_id": number("ep")},
	"events":    {"url": "'http://e' || i || '.demo'", "seq": "i"},
	"hostnames": {"host": "'e' || i || '.demo'", "projection_id": number("ep")},
}

// number is an expression for ids that are sorted as their numbers are.
func number(prefix string) string { return "'" + prefix + "-00000000000000000' || (100000000 + i)" }

// fill copies the rows of the first endpoint by SQL until there are size endpoints: binding each
// would take minutes.
func (f *endpointStore) fill(size int) {
	f.b.Helper()
	ctx := f.b.Context()
	db, err := sql.Open(f.driver, f.dataSource)
	must(f.b, err)
	defer func() { must(f.b, db.Close()) }()
	for table, changed := range copies {
		copyRows(f.b, db, table, "1 = 1", changed, 2, size)
	}
	for i := 2; i <= size; i++ {
		f.ids = append(f.ids, fmt.Sprintf("ep-00000000000000000%d", 100_000_000+i))
	}
	_, err = db.ExecContext(ctx, "UPDATE accounts SET seq = $1, endpoints = $1 WHERE id = $2", size, f.account)
	must(f.b, err)
	if f.driver == "pgx" { // as the database's autovacuum does in time
		_, err = db.ExecContext(ctx, "ANALYZE")
		must(f.b, err)
	}
}

// operations are the measured calls, by metric name.
var operations = map[string]func(*endpointStore){
	"list": func(f *endpointStore) { f.list("") },
	"page": func(f *endpointStore) { f.list(f.ids[rand.N(len(f.ids)-200)+200]) },
	"get": func(f *endpointStore) {
		_, err := f.Endpoint(f.b.Context(), f.account, f.ids[rand.N(len(f.ids))])
		must(f.b, err)
	},
	"create": func(f *endpointStore) { f.create() },
}

func (f *endpointStore) list(before string) {
	f.b.Helper()
	page, err := f.ListEndpoints(f.b.Context(), f.account,
		account.EndpointFilter{Bindings: []string{account.BindingKubernetes}},
		account.Page{Limit: 100, BeforeID: before})
	must(f.b, err)
	if len(page.Endpoints) != 100 || !page.More {
		f.b.Fatalf("a page of %d endpoints", len(page.Endpoints))
	}
}

// copyRows copies the rows that the condition selects once for each number i of from to last, with
// the changed columns as SQL expressions of i.
func copyRows(b *testing.B, db *sql.DB, table, condition string, changed map[string]string, from, last int) {
	b.Helper()
	rows, err := db.QueryContext(b.Context(), "SELECT * FROM "+table+" WHERE 1 = 0")
	must(b, err)
	columns, err := rows.Columns()
	must(b, err)
	must(b, rows.Close())
	values := slices.Clone(columns)
	for i, column := range columns {
		if expression, ok := changed[column]; ok {
			values[i] = expression
		}
	}
	_, err = db.ExecContext(b.Context(), fmt.Sprintf(
		"WITH RECURSIVE numbers (i) AS (SELECT %d UNION ALL SELECT i + 1 FROM numbers WHERE i < %d) INSERT INTO "+
			"%s (%s) "+
			"SELECT %s FROM %[3]s, numbers WHERE %[6]s",
		from, last, table, strings.Join(columns, ", "), strings.Join(values, ", "), condition))
	must(b, err)
}

// percentile sorts the durations and returns the one at p, from 0 to 1.
func percentile(all []time.Duration, p float64) time.Duration {
	slices.Sort(all)
	return all[int(p*float64(len(all)-1))]
}

// BenchmarkSize compares the same operations on stores of two sizes, in turns.
func BenchmarkSize(b *testing.B) {
	for name, open := range engines(b) {
		b.Run(name, func(b *testing.B) {
			stores := []*endpointStore{newEndpointStore(b, open, few), newEndpointStore(b, open, many)}
			took := map[string][2][]time.Duration{}
			b.ResetTimer()
			for range b.N * rounds {
				for what, do := range operations {
					samples := took[what]
					for i, f := range stores {
						begin := time.Now()
						do(f)
						samples[i] = append(samples[i], time.Since(begin))
					}
					took[what] = samples
				}
			}
			b.ReportMetric(0, "ns/op")
			for what, samples := range took {
				small, large := percentile(samples[0], 0.5), percentile(samples[1], 0.5)
				ratio := float64(large) / float64(small)
				b.Logf("%s: p50 %s with %d endpoints, %s with %d: ratio %.2f, goal at most %.1f", what, small, few,
					large, many,
					ratio, maxRatio)
				b.ReportMetric(ratio, what+"-ratio")
				if ratio > maxRatio {
					b.Errorf("%s costs %.2f times as much", what, ratio)
				}
			}
		})
	}
}
