// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// postgres is the server of this package's tests.
var postgres postgrestest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main{M: m, Shared: &postgres}) }

// owner makes transactions and records what it is asked for.
type owner struct {
	mu    sync.Mutex
	steps []string
}

func (o *owner) record(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.steps = append(o.steps, fmt.Sprintf(format, args...))
}

// take returns the steps since the call before, with a space between two.
func (o *owner) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.steps = nil }()
	return strings.Join(o.steps, " ")
}

func (o *owner) Begin(t sqldb.Tx) *tx { return &tx{Tx: t, owner: o} }

// Migrated fails if a large database has not the time that the chart's startup probe gives it.
func (o *owner) Migrated(t sqldb.Tx, version int, fresh bool) error {
	if at, ok := t.Deadline(); ok && time.Until(at) < 4*time.Minute {
		return fmt.Errorf("migration %d has to end within %s", version, time.Until(at))
	}
	o.record("%d/%v", version, fresh)
	return nil
}

// tx is a transaction of two calls at most.
type tx struct {
	sqldb.Tx
	owner *owner
	calls int
}

func (t *tx) Lock() error       { t.owner.record("lock"); return nil }
func (t *tx) BeginCall() *tx    { return t.owner.Begin(t.Tx) }
func (t *tx) EndCall(*tx) error { t.calls++; return nil }
func (t *tx) Full() bool        { return t.calls == 2 }
func (t *tx) Flush() error      { t.owner.record("flush"); return nil }
func (t *tx) Ended(err error)   { t.owner.record("ended:%v", err) }

// schema has so many tables t1, t2, … as its version says.
func (o *owner) schema(version, compatibleFrom int) sqldb.Schema {
	files := fstest.MapFS{}
	for v := 1; v <= version; v++ {
		text := fmt.Sprintf(`CREATE TABLE t%d (name TEXT NOT NULL);`, v)
		files[fmt.Sprintf("migrations/%04d_table.sql", v)] = &fstest.MapFile{Data: []byte(text)}
	}
	return sqldb.Schema{Migrations: files, Version: version, Owner: o,
		CompatibleFrom: fmt.Sprintf(`SELECT %d`, compatibleFrom)}
}

func open(t *testing.T, dir string, schema sqldb.Schema) *sqldb.DB {
	t.Helper()
	return openAt(t, sqldb.Options{DataDir: dir, Schema: schema})
}

func openAt(t *testing.T, opt sqldb.Options) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), opt)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func names(t *testing.T, db *sqldb.DB) string {
	t.Helper()
	var all []string
	err := db.Read(t.Context(), "reading names", func(tx sqldb.Tx) (err error) {
		all, err = sqldb.Values[string](tx, `SELECT name FROM t1 ORDER BY name`)
		return err
	})
	must.Succeed(t, err)
	return strings.Join(all, " ")
}

func TestOpen_AppliesMissingMigrations(t *testing.T) {
	t.Parallel()
	o, dir := &owner{}, t.TempDir()
	_ = open(t, dir, o.schema(2, 1)).Close()
	equal(t, "migrations of a new database", o.take(), "1/true 2/true")
	_ = open(t, dir, o.schema(3, 1)).Close()
	equal(t, "migrations of an older database", o.take(), "3/false")
	_ = open(t, dir, o.schema(2, 2)).Close()
	equal(t, "migrations of a newer database", o.take(), "")
	_, err := sqldb.Open(t.Context(), sqldb.Options{DataDir: dir, Schema: o.schema(2, 3)})
	if err == nil || !strings.Contains(err.Error(), "it has schema version 3 and this program knows 2: ") ||
		!strings.HasSuffix(err.Error(), "; run that version or a newer one, or choose another --data-dir") {
		t.Errorf("a database that is not compatible: %v", err)
	}
}

// TestWrites_ShareTransaction lets four calls wait, of which one fails: the transaction runs again
// with savepoints, and is full after two calls that have not failed.
func TestWrites_ShareTransaction(t *testing.T) {
	t.Parallel()
	refused := account.Errorf(account.CodeInUse, "the name is taken")
	for engine, database := range map[string]func() string{
		"SQLite":     func() string { return "" },
		"PostgreSQL": func() string { return postgres.Server(t).URL(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			shareTransaction(t, database(), func(*tx) error { return refused }, account.CodeInUse,
				"lock lock flush ended:<nil> lock flush ended:<nil>")
		})
		t.Run(engine+", a statement fails", func(t *testing.T) {
			t.Parallel()
			databaseURL, steps := database(), "lock lock flush ended:<nil> lock flush ended:<nil>"
			if databaseURL != "" { // the statement waits for the commit
				steps = "lock flush ended:error preprocessing batch (prepare): ERROR: relation \"none\" does not " +
					"exist (SQLSTATE 42P01) lock flush ended:<nil> lock flush ended:<nil>"
			}
			shareTransaction(t, databaseURL, func(t *tx) error {
				return t.Exec(`INSERT INTO none (name) VALUES ($1)`, "n1")
			}, account.CodeInternal, steps)
		})
	}
}

// shareTransaction lets four calls wait, of which the second ends with fail.
func shareTransaction(
	t *testing.T, databaseURL string, fail func(*tx) error, code account.Code, steps string,
) {
	t.Helper()
	o := &owner{}
	db := openAt(t, sqldb.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL, Schema: o.schema(1, 1)})
	writes := sqldb.NewWrites(db, o)
	o.take()
	release, err := writes.Hold(t.Context())
	must.Succeed(t, err)
	results := make([]error, 4)
	var calls sync.WaitGroup
	for i := range results {
		calls.Go(func() {
			results[i] = writes.Do(context.WithoutCancel(t.Context()), "writing a name", true, func(t *tx) error {
				if err := t.Exec(`INSERT INTO t1 (name) VALUES ($1)`, fmt.Sprintf("n%d", i)); err != nil || i != 1 {
					return err
				}
				return fail(t)
			})
		})
		wait.Until(t, "the call to wait", func() bool { return writes.Waiting() == i+1 })
	}
	release()
	calls.Wait()
	for i, err := range results {
		if (err == nil) == (i == 1) || i == 1 && account.CodeOf(err) != code {
			t.Errorf("call %d: %v", i, err)
		}
	}
	equal(t, "steps", o.take(), steps)
	equal(t, "names", names(t, db), "n0 n2 n3")
}

// TestWrites_FailTogetherWithoutUndo lets two calls wait, of which one fails and cannot be undone: the
// error of the transaction is that of both, and not the failed call's.
func TestWrites_FailTogetherWithoutUndo(t *testing.T) {
	t.Parallel()
	o := &owner{}
	db := open(t, t.TempDir(), o.schema(1, 1))
	writes := sqldb.NewWrites(db, o)
	release, err := writes.Hold(t.Context())
	must.Succeed(t, err)
	results := make([]error, 2)
	var calls sync.WaitGroup
	for i := range results {
		calls.Go(func() {
			results[i] = writes.Do(context.WithoutCancel(t.Context()), "writing a name", true, func(t *tx) error {
				if err := t.Exec(`INSERT INTO t1 (name) VALUES ('n')`); err != nil || i != 1 {
					return err
				}
				_ = t.Release() // the undo finds none
				return account.Errorf(account.CodeInUse, "the name is taken")
			})
		})
		wait.Until(t, "the call to wait", func() bool { return writes.Waiting() == i+1 })
	}
	release()
	calls.Wait()
	for i, err := range results {
		if account.CodeOf(err) != account.CodeInternal {
			t.Errorf("call %d: %v", i, err)
		}
	}
	equal(t, "names", names(t, db), "")
}

func TestTx_FindsRows(t *testing.T) {
	t.Parallel()
	o := &owner{}
	db := open(t, t.TempDir(), o.schema(1, 1))
	ids := make([]string, 503) // more than one list
	for i := range ids {
		ids[i] = fmt.Sprintf("n%03d", i)
	}
	err := sqldb.NewWrites(db, o).Do(t.Context(), "writing names", false, func(t *tx) error {
		for _, id := range ids {
			if err := t.Exec(`INSERT INTO t1 (name) VALUES ($1)`, id); err != nil {
				return err
			}
		}
		return t.EachIn(ids[2:], "n500", nil, `DELETE FROM t1 WHERE name <> $1 AND name IN IDS`)
	})
	must.Succeed(t, err)
	equal(t, "names", names(t, db), "n000 n001 n500")
	var name string
	for wanted, want := range map[string]bool{"n001": true, "n002": false} {
		if found, err := db.Row(t.Context(), `SELECT name FROM t1 WHERE name = $1`, wanted).Find(&name); err != nil ||
			found != want {
			t.Errorf("finding %s: %v, %v", wanted, found, err)
		}
	}
}
