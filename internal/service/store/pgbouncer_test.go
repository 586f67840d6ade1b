// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestPgBouncer_InSessionMode holds that a server, a replica and a command work through a pooler that
// gives each connection a process of the database, and that their settings hold there.
func TestPgBouncer_InSessionMode(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	through := server.PgBouncer(t, "session")
	for _, r := range []*membership.Replica{nil, {ID: "one"}} {
		opt := store.Options{DataDir: t.TempDir(), DatabaseURL: through(server.URL(t)), Replica: r}
		var err error
		opt.Lock, err = store.LockServer(t.Context(), opt)
		storetest.Must(t, err)
		s, err := store.Open(t.Context(), opt)
		storetest.Must(t, err)
		storetest.Must(t, s.BeginServerTerm(t.Context()))
		command, err := store.Open(t.Context(), store.Options{DatabaseURL: opt.DatabaseURL})
		storetest.Must(t, err)
		a, err := command.CreateAccount(t.Context(), "team")
		storetest.Must(t, err)
		_, err = s.CreateAPIKey(t.Context(), account.Caller{AccountID: a.ID}, account.APIKeyPatch{})
		storetest.Must(t, err)
		for name, want := range map[string]string{"lock_timeout": "10s", "statement_timeout": "25s",
			"idle_in_transaction_session_timeout": "3s", "application_name": "fairlead-server"} {
			if got, err := s.Setting(t.Context(), name); err != nil || got != want {
				t.Errorf("%s is %q (%v), want %s", name, got, err, want)
			}
		}
		storetest.Must(t, command.Close())
		storetest.Must(t, s.Close())
		storetest.Must(t, opt.Lock.Release())
	}
}

// TestPgBouncer_InTransactionModeIsRefused holds that a server, a replica and a command say so, also
// where the pooler has processes of earlier connections.
func TestPgBouncer_InTransactionModeIsRefused(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	databaseURL := server.PgBouncer(t, "transaction")(server.URL(t))
	for range 2 {
		for _, r := range []*membership.Replica{nil, {ID: "one"}} {
			_, err := store.LockServer(t.Context(), store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL,
				Replica: r})
			if err == nil || !strings.Contains(err.Error(), "pooler in transaction mode") {
				t.Errorf("a server: %v", err)
			}
		}
		_, err := store.Open(t.Context(), store.Options{DatabaseURL: databaseURL})
		if err == nil || !strings.Contains(err.Error(), "pooler in transaction mode") {
			t.Errorf("a command: %v", err)
		}
	}
}
