// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// Statements about the server's lock of the schema: ending its holder's connection, waiting for it
// on another connection, and starting a server's term.
const (
	endHolder = `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE granted AND locktype = 'advisory' AND objid = hashtext('server of ' || current_schema())::oid`
	waitForLock = `SELECT pg_advisory_lock(1179403313, hashtext('server of ' || current_schema()))`
	nextTerm    = `UPDATE fairlead_schema SET server_term = server_term + 1`
)

// lockedStore is the store of a server that keeps its lock.
type lockedStore struct {
	*storetest.Fixture
	opt    store.Options
	notes  chan bool  // what Maintain reported
	ended  chan error // what Maintain returned
	cancel context.CancelFunc
}

func newLockedStore(t *testing.T, databaseURL string) *lockedStore {
	t.Helper()
	l := &lockedStore{opt: store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL}, notes: make(chan bool, 100),
		ended: make(chan error, 1)}
	lock, err := store.LockServer(t.Context(), l.opt)
	storetest.Must(t, err)
	l.Fixture = storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DatabaseURL, opt.Lock = databaseURL, lock
		return store.Open(context.WithoutCancel(t.Context()), opt)
	})
	storetest.Must(t, l.Store.BeginServerTerm(t.Context()))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	l.cancel = cancel
	go func() {
		err := lock.Maintain(ctx, func(locked bool, _ error) { l.notes <- locked })
		if err := lock.Release(); err != nil {
			t.Errorf("releasing the lock: %v", err)
		}
		l.ended <- err
	}()
	return l
}

// stop ends Maintain, which must return nil.
func (l *lockedStore) stop() {
	l.T.Helper()
	l.cancel()
	storetest.Must(l.T, <-l.ended)
}

func TestServerLock_AdmitsOneServer(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	databaseURL := server.URL(t)
	l := newLockedStore(t, databaseURL)
	_, err := store.LockServer(t.Context(), store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL})
	if err == nil || !strings.Contains(err.Error(), "in use by another fairlead-server") ||
		!strings.Contains(err.Error(), "postgres://fairlead@") {
		t.Errorf("locking beside a live server: %v", err)
	}
	other, err := store.LockServer(t.Context(), store.Options{DataDir: t.TempDir(), DatabaseURL: server.URL(t)})
	storetest.Must(t, err) // another schema is another store
	storetest.Must(t, other.Release())
	session := l.Session()
	v := l.Bind(session, "http://a.demo").Endpoint.ResourceVersion

	storetest.Must(t, server.Exec(t.Context(), databaseURL, endHolder))
	storetest.Equal(t, "locked after the connection's end", <-l.notes, false)
	storetest.Equal(t, "locked again", <-l.notes, true)
	l.Bind(session, "http://b.demo")
	l.Expect(v, account.Added)

	l.stop()
	successor, err := store.LockServer(t.Context(), store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL})
	storetest.Must(t, err)
	storetest.Must(t, successor.Release())
}

// TestServerLock_StopsReplacedServer: another server gets the lock before the first regains
// it.
func TestServerLock_StopsReplacedServer(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	databaseURL := server.URL(t)
	l := newLockedStore(t, databaseURL)
	session := l.Session()
	other, err := pgx.Connect(t.Context(), databaseURL)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, other.Close(context.WithoutCancel(t.Context()))) }()
	waited := make(chan error, 1)
	go func() {
		_, err := other.Exec(t.Context(), waitForLock)
		waited <- err
	}()
	for locked := false; !locked; { // it waits in line
		storetest.Must(t, l.Store.Ping(t.Context()))
		probe, err := pgx.Connect(t.Context(), databaseURL)
		storetest.Must(t, err)
		storetest.Must(t, probe.QueryRow(t.Context(),
			`SELECT EXISTS (SELECT 1 FROM pg_locks
				WHERE NOT granted AND objid = hashtext('server of ' || current_schema())::oid)`).Scan(&locked))
		storetest.Must(t, probe.Close(t.Context()))
	}
	storetest.Must(t, server.Exec(t.Context(), databaseURL, endHolder))
	storetest.Must(t, <-waited)
	storetest.Equal(t, "locked", <-l.notes, false)
	_, err = l.Store.Bind(t.Context(), l.Request(session, "http://late.demo"))
	storetest.MustCode(t, err, account.CodeUnavailable)
	_, err = other.Exec(t.Context(), nextTerm)
	storetest.Must(t, err)
	_, err = other.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`)
	storetest.Must(t, err)
	if err := <-l.ended; err == nil || !strings.Contains(err.Error(), "another fairlead-server has started") {
		t.Errorf("the first server: %v", err)
	}
	_, err = l.Store.Bind(t.Context(), l.Request(session, "http://late.demo"))
	storetest.MustCode(t, err, account.CodeUnavailable)
	storetest.Equal(t, "endpoints", len(l.List().Endpoints), 0)
}

// TestServerLock_RefusesWritesOfPassedTerm: the term has passed, and the connection of the lock
// looks alive.
func TestServerLock_RefusesWritesOfPassedTerm(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	databaseURL := server.URL(t)
	l := newLockedStore(t, databaseURL)
	session := l.Session()
	storetest.Must(t, server.Exec(t.Context(), databaseURL, nextTerm))
	_, err := l.Store.Bind(t.Context(), l.Request(session, "http://late.demo"))
	storetest.MustCode(t, err, account.CodeUnavailable)
	if err := <-l.ended; err == nil || !strings.Contains(err.Error(), "another fairlead-server has started") {
		t.Errorf("the first server: %v", err)
	}
	storetest.Equal(t, "endpoints", len(l.List().Endpoints), 0)
}

// TestServerLock_RecoversAfterDatabaseRestart: while it is away everything is unavailable, and then
// it works without a restart.
func TestServerLock_RecoversAfterDatabaseRestart(t *testing.T) {
	t.Parallel()
	server, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	defer func() { storetest.Must(t, server.Remove()) }()
	l := newLockedStore(t, server.URL(t))
	defer func() { storetest.Must(t, l.Store.Close()) }() // before the database is removed
	session := l.Session()
	v := l.Bind(session, "http://before.demo").Endpoint.ResourceVersion
	live := l.Login("alice", "s1", func(l *account.NewLogin) { l.Idle = 5 * time.Minute })
	for name, down := range map[string]func() error{"stopped": server.Down, "crashed": server.Crash} {
		l.Clock.Step(2 * time.Minute)
		storetest.Equal(t, "lives", l.Lives("s1"), true)
		storetest.Must(t, down())
		storetest.Equal(t, "locked", <-l.notes, false)
		_, err := l.Store.Bind(t.Context(), l.Request(session, "http://while.demo"))
		storetest.MustCode(t, err, account.CodeUnavailable)
		_, err = l.Store.ListEndpoints(t.Context(), l.AccountID, account.EndpointFilter{}, account.Page{})
		storetest.MustCode(t, err, account.CodeUnavailable)
		storetest.MustCode(t, l.Store.Ping(t.Context()), account.CodeUnavailable)
		storetest.MustCode(t, l.Store.Sweep(t.Context()), account.CodeUnavailable)
		_, err = l.Store.LiveSession(t.Context(), l.AccountID, storetest.TokenHash("s1")) // never through
		storetest.MustCode(t, err, account.CodeUnavailable)
		_, err = l.Store.LiveSessionIDs(t.Context(), []string{live.ID})
		storetest.MustCode(t, err, account.CodeUnavailable)
		_, err = l.Store.Login(t.Context(), l.AccountID, l.NewLogin("alice", "while "+name))
		storetest.MustCode(t, err, account.CodeUnavailable)
		_, err = l.Store.Revoke(t.Context(), account.Caller{AccountID: l.AccountID},
			account.RevokeSelector{SessionID: live.ID}, account.RevokedByAdmin)
		storetest.MustCode(t, err, account.CodeUnavailable)
		_, err = l.Store.DashboardSession(t.Context(), storetest.TokenHash("s1"))
		storetest.MustCode(t, err, account.CodeUnavailable)
		storetest.Must(t, server.Up())
		storetest.Equal(t, "locked", <-l.notes, true)
		l.Clock.Step(4 * time.Minute)
		storetest.Equal(t, "lives by its last use, which could not be written", l.Lives("s1"), true)
		storetest.Must(t, l.Store.Sweep(t.Context()))
		storetest.Must(t, l.Store.Ping(t.Context()))
		l.Bind(session, "http://after-"+name+".demo")
	}
	l.Expect(v, account.Added, account.Added)
	l.stop()
}

func TestOpen_NeedsConnections(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	databaseURL := server.URL(t)
	storetest.Must(t, server.Exec(t.Context(), databaseURL, `CREATE ROLE few LOGIN SUPERUSER CONNECTION LIMIT 15`))
	opt := store.Options{DataDir: t.TempDir(), DatabaseURL: strings.Replace(databaseURL, "fairlead@", "few@", 1)}
	var err error
	opt.Lock, err = store.LockServer(t.Context(), opt)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, opt.Lock.Release()) }()
	if _, err := store.Open(t.Context(), opt); err == nil ||
		!strings.Contains(err.Error(), "it admits 15 connections of this user, and a server takes up to 16") {
		t.Errorf("a server with 15 connections: %v", err)
	}
	command := opt
	command.Lock = nil
	s, err := store.Open(t.Context(), command) // needs few
	storetest.Must(t, err)
	storetest.Must(t, s.Close())
}
