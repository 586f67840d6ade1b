// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// postgres is the server of this package's tests.
var postgres postgrestest.Shared

func TestPostgres_Conforms(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	storetest.Run(t, func(t *testing.T) storetest.Open {
		databaseURL := server.URL(t)
		return func(opt store.Options) (*store.Store, error) {
			opt.DatabaseURL = databaseURL
			return store.Open(context.WithoutCancel(t.Context()), opt)
		}
	})
}

// columns reads "table.column" of every column, a line each, sorted.
func columns(t *testing.T, driver, name, query string) string {
	t.Helper()
	db, err := sql.Open(driver, name)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, db.Close()) }()
	rows, err := db.QueryContext(t.Context(), query)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, rows.Close()) }()
	var all strings.Builder
	for rows.Next() {
		var table, column, kind string
		storetest.Must(t, rows.Scan(&table, &column, &kind))
		fmt.Fprintf(&all, "%s.%s %s\n", table, column, kind)
	}
	storetest.Must(t, rows.Err())
	return all.String()
}

// TestMigrations_MakeSameTables compares the tables and indices of both engines.
func TestMigrations_MakeSameTables(t *testing.T) {
	t.Parallel()
	databaseURL := postgres.Server(t).URL(t)
	dir := t.TempDir()
	for _, opt := range []store.Options{{DataDir: dir}, {DatabaseURL: databaseURL}} {
		s, err := store.Open(t.Context(), opt)
		storetest.Must(t, err)
		storetest.Must(t, s.Close())
	}
	kinds := strings.NewReplacer(" INTEGER", " BIGINT", " BLOB", " BYTEA")
	lite := kinds.Replace(columns(t, "sqlite", filepath.Join(dir, "fairlead.db"),
		`SELECT m.name, c.name, upper(c.type) FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
		WHERE m.type = 'table' ORDER BY 1, 2`))
	post := columns(t, "pgx", databaseURL,
		`SELECT table_name, column_name, replace(upper(data_type), '''''', '') FROM information_schema.columns
		WHERE table_schema = current_schema() AND table_name <> 'fairlead_schema'
		ORDER BY table_name COLLATE "C", column_name COLLATE "C"`)
	storetest.Equal(t, "columns", post, lite)
	if !strings.Contains(lite, "endpoints.traffic_policy BYTEA\n") {
		t.Errorf("the columns were not read: %s", lite)
	}
	count := func(driver, name, query string) string { return columns(t, driver, name, query) }
	storetest.Equal(t, "indices",
		count("pgx", databaseURL,
			`SELECT tablename, indexname, '' FROM pg_indexes WHERE schemaname = current_schema()
			AND indexname NOT LIKE '%_key' AND indexname NOT LIKE '%_pkey'
			ORDER BY 1, 2`),
		count("sqlite", filepath.Join(dir, "fairlead.db"),
			`SELECT tbl_name, name, '' FROM sqlite_master WHERE type = 'index'
			AND name NOT LIKE 'sqlite_%' ORDER BY 1, 2`))
}

func TestOpen_ExplainsPostgresErrors(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	changed := func(statements string) string {
		databaseURL := server.URL(t)
		s, err := store.Open(t.Context(), store.Options{DatabaseURL: databaseURL})
		storetest.Must(t, err)
		storetest.Must(t, s.Close())
		storetest.Must(t, server.Exec(t.Context(), databaseURL, statements))
		return databaseURL
	}
	foreign := server.URL(t)
	storetest.Must(t, server.Exec(t.Context(), foreign, `CREATE TABLE accounts (x BIGINT)`))
	guest := server.URL(t)
	storetest.Must(t, server.Exec(t.Context(), guest, `CREATE ROLE guest LOGIN`))
	protected := server.URL(t)
	storetest.Must(t, server.Exec(t.Context(), protected, `CREATE ROLE locked NOLOGIN`))
	for name, c := range map[string]struct {
		url   string
		parts []string
	}{
		"newer schema": {changed(`UPDATE fairlead_schema SET version = 99; UPDATE store SET compatible_from = 99`),
			[]string{"schema version 99", "newer fairlead-server", "--database-url"}},
		"another program's": {foreign, []string{"not a database of fairlead-server"}},
		"no rights": {strings.Replace(guest, "fairlead@", "guest:hunter2@", 1),
			[]string{"postgres://guest@", "owner of the database"}},
		"no such database": {strings.Replace(foreign, "/postgres?", "/none?", 1), []string{"/none", "does not exist"}},
		"nothing listens": {"postgres://fairlead:hunter2@127.0.0.1:1/db?password=hunter2",
			[]string{"postgres://fairlead@127.0.0.1:1/db", "connection refused; is PostgreSQL running there?"}},
		"no such name": {"postgres://fairlead:hunter2@none.invalid/db",
			[]string{"postgres://fairlead@none.invalid:5432/db", "cannot be reached"}},
		"no such socket": {"postgres://fairlead:hunter2@/db?host=/none", []string{"/none/db", "there is no socket"}},
		"a wrong password": {strings.Replace(protected, "fairlead@", "locked:hunter2@", 1),
			[]string{"postgres://locked@", "not permitted to log in", "FAIRLEAD_DATABASE_URL"}},
		"no URL":     {"host=localhost password=hunter2", []string{"--database-url", "postgres://"}},
		"broken URL": {"postgres://fairlead:hunter2 %@localhost/db", []string{"--database-url", "percent-encoded"}},
		"bad port":   {"postgres://fairlead:x@localhost:hunter2/db", []string{"--database-url"}},
		"bad sslmode": {"postgres://fairlead:hunter2@localhost/db?sslmode=maybe",
			[]string{"--database-url", "sslmode"}},
		"no TLS there": {"postgres://fairlead:hunter2@127.0.0.1:1/db?sslmode=require&sslrootcert=/none/x",
			[]string{"--database-url", "certificate files"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkExplained(t, "opening", openAndClose(t.Context(), c.url), c.parts)
			err := lockAndRelease(t, c.url)
			if err == nil && strings.Contains(c.url, "search_path") {
				return // locking needs no right but to connect
			}
			checkExplained(t, "locking", err, c.parts)
		})
	}
}

// checkExplained checks that the error has the parts, and neither the driver's words nor the
// password.
func checkExplained(t *testing.T, what string, err error, parts []string) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s works", what)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: error %q does not name %q", what, err, part)
		}
	}
	if strings.Contains(err.Error(), "failed to connect") || strings.Contains(err.Error(), "tls error") {
		t.Errorf("%s: error %q is the driver's, not in words", what, err)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%s: error %q has the password", what, err)
	}
}

func openAndClose(ctx context.Context, databaseURL string) error {
	s, err := store.Open(ctx, store.Options{DatabaseURL: databaseURL})
	if err != nil {
		return err
	}
	return s.Close()
}

func lockAndRelease(t *testing.T, databaseURL string) error {
	lock, err := store.LockServer(t.Context(), store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL})
	if err != nil {
		return err
	}
	return lock.Release()
}

// TestOpen_NeverShowsDatabasePassword holds that the store names itself without it, and that the
// database does ask for it.
func TestOpen_NeverShowsDatabasePassword(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	u, err := url.Parse(server.URL(t))
	storetest.Must(t, err)
	u.User = url.UserPassword("fairlead", "hunter2")
	s, err := store.Open(t.Context(), store.Options{DatabaseURL: u.String()})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, s.Close()) }()
	if place := s.DisplayName(); strings.Contains(place, "hunter2") ||
		!strings.HasPrefix(place, "postgres://fairlead@") {
		t.Errorf("DisplayName is %s", place)
	}
}

// TestMigrations_UpgradePostgres checks that keys of a store of version 1 stay valid.
func TestMigrations_UpgradePostgres(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	databaseURL := server.URL(t)
	schema, err := os.ReadFile("migrations/0001_initial.sql")
	storetest.Must(t, err)
	key := account.NewSecret(account.APIKeyPrefix)
	storetest.Must(t, server.Exec(t.Context(), databaseURL, sqldb.PostgresSchema(string(schema))+fmt.Sprintf(`
		CREATE TABLE fairlead_schema (version BIGINT NOT NULL, server_term BIGINT NOT NULL);
		INSERT INTO fairlead_schema VALUES (1, 0);
		INSERT INTO store VALUES (1, 'st-old', 7);
		INSERT INTO accounts (id, name, created_at) VALUES ('ac-1', 'old', 1);
		INSERT INTO api_keys (id, account_id, description, scopes, secret_hash, created_at)
			VALUES ('ak-1', 'ac-1', 'key', '["admin"]', '\x%x', 1);`, account.HashSecret(key))))
	s, err := store.Open(t.Context(), store.Options{DatabaseURL: databaseURL})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, s.Close()) }()
	storetest.Equal(t, "store", s.StoreID(), "st-old")
	got, err := s.APIKeyBySecret(t.Context(), key)
	storetest.Must(t, err)
	storetest.Equal(t, "key", got.ID, "ak-1")

	fresh := server.URL(t)
	storetest.Must(t, openAndClose(t.Context(), fresh))
	for what, at := range map[string]string{"an upgraded store": databaseURL, "a new store": fresh} {
		storetest.Equal(t, "programs that may use "+what,
			columns(t, "pgx", at, `SELECT 'store', 'compatible_from', compatible_from FROM store`),
			"store.compatible_from 8\n")
	}
}
