// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
)

// TestStoreSingle_EndsReplicasMode holds that a database that several servers used refuses one that
// is alone, until a command that finds no server says so.
func TestStoreSingle_EndsReplicasMode(t *testing.T) {
	t.Parallel()
	postgres, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() { // after the server has ended
		if err := postgres.Remove(); err != nil {
			t.Error(err)
		}
	})
	databaseURL := postgres.URL(t)
	database := []string{"--database-url", databaseURL}
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	must.Succeed(t, os.WriteFile(key, []byte(strings.Repeat("0f", 32)), 0o600))
	_, stop := served(t, filepath.Join(dir, "first"), append(database, "--secret-key-file", key)...)
	stop()
	single := append([]string{"store", "single", "--data-dir", dir}, database...)
	if out, _ := ok(t, single...); !strings.Contains(out, "already") {
		t.Errorf("for one server: %s", out)
	}
	killed := startReplica(t, databaseURL)
	if code, _, errs := command(t, single...); code != 1 ||
		!strings.Contains(errs, "in use by several fairlead-servers") {
		t.Errorf("beside a replica: exit %d, %s", code, errs)
	}
	killed()
	ok(t, append([]string{"store", "new-epoch", "--data-dir", dir}, database...)...)
	serve := append([]string{"serve", "--addr", "127.0.0.1:0", "--metrics-addr=", "--secret-key-file", key,
		"--data-dir", filepath.Join(dir, "second")}, database...)
	if code, _, errs := command(t, serve...); code != 1 || !strings.Contains(errs, "--relay-address") ||
		!strings.Contains(errs, "store single") {
		t.Errorf("a server that is alone: exit %d, %s", code, errs)
	}
	if out, _ := ok(t, single...); !strings.Contains(out, "one server now") {
		t.Errorf("for several servers: %s", out)
	}
	_, stop = served(t, filepath.Join(dir, "third"), append(database, "--secret-key-file", key)...)
	stop()
	if code, _, errs := command(t, "store", "single", "--data-dir", dir); code != 1 ||
		!strings.Contains(errs, "--database-url-file") {
		t.Errorf("SQLite: exit %d, %s", code, errs)
	}
}

// startReplica makes the database one of several servers. What it returns ends this one without a
// word to the others.
func startReplica(t *testing.T, databaseURL string) (kill func()) {
	t.Helper()
	opt := store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL, Replica: &membership.Replica{ID: "rp-1"}}
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	lock, err := store.LockServer(t.Context(), opt)
	must(err)
	opt.Lock = lock
	st, err := store.Open(t.Context(), opt)
	must(err)
	must(st.BeginServerTerm(t.Context()))
	return func() {
		must(st.Close())
		must(lock.Release())
	}
}
