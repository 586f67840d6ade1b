// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// Statements about the connections of listening stores of a schema.
const (
	listeners = `SELECT count(*) FROM pg_stat_activity
		WHERE query LIKE 'LISTEN "fairlead changes of ' || current_schema() || '"%'`
	endListeners = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE query LIKE 'LISTEN "fairlead changes of ' || current_schema() || '"%'`
)

// listen opens the fixture's store a second time, as another process does, and lets it listen.
func listen(t *testing.T, f *storetest.Fixture, opt store.Options, poll time.Duration) *store.Store {
	t.Helper()
	other, err := store.Open(t.Context(), opt)
	storetest.Must(t, err)
	other.SetPollInterval(poll)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		other.Listen(ctx)
	}()
	f.T.Cleanup(func() {
		cancel()
		<-done
		storetest.Must(t, other.Close())
	})
	return other
}

// expectWakes changes the account through f and waits until other has woken for both logs.
func expectWakes(t *testing.T, f *storetest.Fixture, other *store.Store, url string) {
	t.Helper()
	endpoints, cancel := other.Subscribe(f.AccountID)
	defer cancel()
	audit, cancel := other.SubscribeAudit(f.AccountID)
	defer cancel()
	f.Bind(f.Session(), url)
	wait.Receive(t, "an event of endpoints", endpoints)
	wait.Receive(t, "an audit event", audit)
}

func TestListen_PollsSQLite(t *testing.T) {
	t.Parallel()
	opt := store.Options{DataDir: t.TempDir()}
	f := storetest.NewFixture(t, func(o store.Options) (*store.Store, error) {
		o.DataDir = opt.DataDir
		return store.Open(t.Context(), o)
	})
	expectWakes(t, f, listen(t, f, opt, 10*time.Millisecond), "http://a.demo")
}

// TestListen_IsNotified holds that PostgreSQL's notifications alone suffice: the listening store
// does not poll again after it began.
func TestListen_IsNotified(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	f, opt := postgresFixture(t, server.URL(t))
	other := listen(t, f, opt, time.Hour)
	waitForListeners(t, opt.DatabaseURL, 1)
	expectWakes(t, f, other, "http://a.demo")
	expectWakes(t, f, other, "http://b.demo")

	third := listen(t, f, opt, time.Hour) // writes, too, so it sends in batches
	waitForListeners(t, opt.DatabaseURL, 2)
	wake, cancel := other.Subscribe(f.AccountID)
	defer cancel()
	session := f.Session()
	for _, url := range []string{"http://c.demo", "http://d.demo"} {
		_, err := third.Bind(t.Context(), f.Request(session, url))
		storetest.Must(t, err)
		wait.Receive(t, url, wake)
	}
	wait.Until(t, "the lag of the own notifications", func() bool { return third.Database().NotificationLag() > 0 })
	if lag := other.Database().NotificationLag(); lag != 0 {
		t.Errorf("a store that has written nothing measured a lag of %s", lag)
	}
}

// TestListen_FindsMissedChanges ends the connection that is notified.
func TestListen_FindsMissedChanges(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	f, opt := postgresFixture(t, server.URL(t))
	other := listen(t, f, opt, 50*time.Millisecond)
	for _, url := range []string{"http://a.demo", "http://b.demo"} {
		waitForListeners(t, opt.DatabaseURL, 1)
		storetest.Must(t, server.Exec(t.Context(), opt.DatabaseURL, endListeners))
		expectWakes(t, f, other, url)
	}
}

func postgresFixture(t *testing.T, databaseURL string) (*storetest.Fixture, store.Options) {
	t.Helper()
	opt := store.Options{DatabaseURL: databaseURL}
	return storetest.NewFixture(t, func(o store.Options) (*store.Store, error) {
		o.DatabaseURL = databaseURL
		return store.Open(context.WithoutCancel(t.Context()), o)
	}), opt
}

// waitForListeners waits until so many stores of the schema listen.
func waitForListeners(t *testing.T, databaseURL string, count int) {
	t.Helper()
	wait.Until(t, "a store that listens", func() bool { return queryInt(t, databaseURL, listeners) == count })
}

func queryInt(t *testing.T, databaseURL, query string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, conn.Close(t.Context())) }()
	storetest.Must(t, conn.QueryRow(t.Context(), query).Scan(&n))
	return n
}
