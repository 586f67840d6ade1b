// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// Times of the replicas in tests.
const (
	testBeat       = 20 * time.Millisecond
	testFenceAfter = 3 * time.Second // long enough for a busy machine
	testBaseURL    = "https://fairlead.example.net"
)

// replica is one of several servers of a store.
type replica struct {
	*store.Store
	t      *testing.T
	id     string
	cancel context.CancelFunc // stops its beats
	beats  func() error       // waits for the end of Beat and returns what it returned
	stop   func()             // ends it, without a word to the others

	answered chan time.Duration // when the beats began that were answered; what is not received is dropped
	ended    chan struct{}      // closed at the end of Beat
}

func startReplica(t *testing.T, databaseURL, id string) *replica {
	t.Helper()
	r, err := tryReplica(t, databaseURL, id)
	storetest.Must(t, err)
	return r
}

// tryReplica starts a server on the database as fairlead-server does.
func tryReplica(t *testing.T, databaseURL, id string, adjust ...func(*store.Options)) (*replica, error) {
	t.Helper()
	opt := store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL,
		BeatTimes: membership.BeatTimes{Interval: testBeat, Timeout: time.Minute, FenceAfter: testFenceAfter},
		Replica: &membership.Replica{ID: id, Address: id + ":1", AddressMAC: "of " + id, RelayAddress: id + ":2",
			BaseURL: testBaseURL, Version: "1.2.3"}}
	for _, a := range adjust {
		a(&opt)
	}
	lock, err := store.LockServer(t.Context(), opt)
	if err != nil {
		return nil, err
	}
	opt.Lock = lock
	r := &replica{t: t, id: id, answered: make(chan time.Duration, 100), ended: make(chan struct{})}
	if r.Store, err = store.Open(t.Context(), opt); err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	if err := r.BeginServerTerm(t.Context()); err != nil {
		return nil, errors.Join(err, r.Close(), lock.Release())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	var maintain sync.WaitGroup
	maintain.Go(func() { _ = lock.Maintain(ctx, func(bool, error) {}) })
	ended := make(chan error, 1)
	go func() {
		defer close(r.ended)
		ended <- r.Beat(ctx, func(began time.Duration) {
			select {
			case r.answered <- began:
			default:
			}
		})
	}()
	r.beats = sync.OnceValue(func() error { return <-ended })
	r.stop = sync.OnceFunc(func() {
		cancel()
		_ = r.beats() // tests that end them check what they return
		maintain.Wait()
		if err := errors.Join(lock.Release(), r.Close()); err != nil {
			t.Errorf("stopping replica %s: %v", id, err)
		}
	})
	t.Cleanup(r.stop)
	return r, nil
}

// session starts a session on the replica.
func (r *replica) session(f *storetest.Fixture) string {
	r.t.Helper()
	id := account.NewID(account.PrefixTunnelSession, time.Now())
	storetest.Must(r.t, r.StartSession(r.t.Context(), account.TunnelSession{ID: id, AccountID: f.AccountID,
		Credential: account.Ref{ID: f.TokenID}, IP: "203.0.113.9", AgentVersion: "1.0.0", OS: "linux", ServerID: r.id,
		JoinHash: joinHash(id)}))
	return id
}

// bind binds an endpoint of a new session on the replica.
func (r *replica) bind(f *storetest.Fixture, url string) *account.Endpoint {
	r.t.Helper()
	got, err := r.Bind(r.t.Context(), f.Request(r.session(f), url))
	storetest.Must(r.t, err)
	return &got.Endpoint
}

// ids returns the replicas that the store has.
func (r *replica) ids() string {
	r.t.Helper()
	all, err := r.Replicas(r.t.Context())
	storetest.Must(r.t, err)
	var ids []string
	for _, one := range all {
		ids = append(ids, one.ID)
	}
	return strings.Join(ids, " ")
}

// TestReplicas_FenceDead holds that a replica whose beats stop cannot write once another has fenced
// it, that its sessions and theirs alone end, and that it learns of it.
func TestReplicas_FenceDead(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	storetest.Equal(t, "replicas", one.ids(), "one two")
	kept, lost := one.bind(f, "http://kept.demo"), two.bind(f, "http://lost.demo")
	v := f.List().Version
	two.cancel()
	storetest.Must(t, two.beats())
	wait.Until(t, "the second replica to be fenced", func() bool { return one.ids() == "one" })
	_, err := two.Bind(t.Context(), f.Request(two.id, "http://late.demo"))
	storetest.MustCode(t, err, account.CodeUnavailable)
	if !errors.Is(err, membership.ErrFenced) {
		t.Errorf("a write of the fenced replica: %v, want ErrFenced", err)
	}
	if err := two.Beat(t.Context(), nil); !errors.Is(err, membership.ErrFenced) {
		t.Errorf("its next beat: %v, want ErrFenced", err)
	}
	wait.Until(t, "its endpoint to go offline", func() bool {
		return f.Endpoint(lost.ID).Status == account.StatusOffline
	})
	f.Expect(v, account.Modified)
	storetest.Equal(t, "the other's endpoint", f.Endpoint(kept.ID).Status, account.StatusOnline)
	wait.Until(t, "its session to end", func() bool {
		_, err = f.Store.TunnelSession(t.Context(), f.AccountID, lost.TunnelSession.ID)
		return account.CodeOf(err) == account.CodeNotFound
	})
}

// TestReplicas_JoinAndLeave holds that a start touches what the others hold as little as an end.
func TestReplicas_JoinAndLeave(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	alone := f.Bind(f.Session(), "http://before.demo") // of a server that was alone
	one := startReplica(t, opt.DatabaseURL, "one")
	storetest.Equal(t, "endpoint of the server before", f.Endpoint(alone.Endpoint.ID).Status, account.StatusOffline)
	held := one.bind(f, "http://held.demo")
	v := f.List().Version
	two := startReplica(t, opt.DatabaseURL, "two")
	f.Expect(v)
	left := two.bind(f, "http://left.demo")
	storetest.Must(t, two.Leave(t.Context()))
	if err := two.beats(); !errors.Is(err, membership.ErrFenced) {
		t.Errorf("Beat after Leave: %v, want ErrFenced", err)
	}
	two.stop()
	wait.Until(t, "the other to sweep what it left", func() bool {
		storetest.Must(t, one.Sweep(t.Context()))
		return f.Endpoint(left.ID).Status == account.StatusOffline
	})
	storetest.Equal(t, "endpoint of the other", f.Endpoint(held.ID).Status, account.StatusOnline)
}

// TestReplicas_SurviveOutage holds that an outage of the database that is longer than the time
// after which a replica is dead fences none when it ends.
func TestReplicas_SurviveOutage(t *testing.T) {
	t.Parallel()
	server, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() { storetest.Must(t, server.Remove()) })
	f, opt := postgresFixture(t, server.URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	ep := two.bind(f, "http://a.demo")
	storetest.Must(t, server.Crash())
	began := time.Now()
	wait.Until(t, "an outage longer than the limit", func() bool { return time.Since(began) > 2*testFenceAfter })
	storetest.Must(t, server.Up())
	for _, r := range []*replica{one, two} {
		wait.Until(t, "a write of "+r.id, func() bool {
			return r.RecordAudit(t.Context(), account.Caller{AccountID: f.AccountID}, account.AuditEndpointCreated,
				"ep-1", map[string]string{}) == nil
		})
	}
	storetest.Equal(t, "replicas", one.ids(), "one two")
	storetest.Equal(t, "endpoint", f.Endpoint(ep.ID).Status, account.StatusOnline)
}

// TestReplicas_KeepOtherModesOut holds that a store is used by one server or by replicas, and never
// by both.
func TestReplicas_KeepOtherModesOut(t *testing.T) {
	t.Parallel()
	_, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one := startReplica(t, opt.DatabaseURL, "one")
	exclusive := store.Options{DataDir: t.TempDir(), DatabaseURL: opt.DatabaseURL}
	_, err := store.LockServer(t.Context(), exclusive)
	if err == nil || !strings.Contains(err.Error(), "in use by several fairlead-servers") {
		t.Errorf("a server beside a replica: %v", err)
	}
	one.stop()
	exclusive.Lock, err = store.LockServer(t.Context(), exclusive)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, exclusive.Lock.Release()) }()
	s, err := store.Open(t.Context(), exclusive)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, s.Close()) }()
	storetest.MustCode(t, s.BeginServerTerm(t.Context()), account.CodeInUse)
	second := store.Options{DataDir: t.TempDir(), DatabaseURL: opt.DatabaseURL, Replica: &membership.Replica{ID: "two"}}
	if _, err := store.LockServer(t.Context(), second); err == nil {
		t.Error("a replica started beside a server that holds the lock alone")
	}
}

// TestReplicas_SuccessorIsKnownToReplaceDeadOne starts a process at the relay address of one that was killed:
// that one is not among the servers any more. One that lives, and one at a name, are.
func TestReplicas_SuccessorIsKnownToReplaceDeadOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		address string
		lives   bool
		want    string
	}{
		"killed":            {"127.0.0.1:8444", false, "rp-2"},
		"alive":             {"127.0.0.1:8444", true, "rp-1 rp-2"},
		"killed, at a name": {"one.example.net:8444", false, "rp-1 rp-2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := postgres.Server(t).URL(t)
			at := func(opt *store.Options) { opt.Replica.RelayAddress = c.address }
			one, err := tryReplica(t, url, "rp-1", at)
			storetest.Must(t, err)
			if !c.lives {
				one.stop()
				awaitLockGone(t, url, "rp-1")
			}
			two, err := tryReplica(t, url, "rp-2", at)
			storetest.Must(t, err)
			all, err := two.Replicas(t.Context())
			storetest.Must(t, err)
			var ids []string
			for _, r := range all {
				ids = append(ids, r.ID)
			}
			if got := strings.Join(ids, " "); got != c.want {
				t.Errorf("registered are %s, want %s", got, c.want)
			}
		})
	}
}

// awaitLockGone waits until PostgreSQL knows that a replica's process has ended.
func awaitLockGone(t *testing.T, databaseURL, id string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, conn.Close(t.Context())) }()
	wait.Until(t, "the lock of "+id+" to be gone", func() (gone bool) {
		storetest.Must(t, conn.QueryRow(t.Context(), `SELECT NOT EXISTS (SELECT 1 FROM pg_locks
			WHERE locktype = 'advisory' AND objid = hashtext('replica ' || $1)::oid)`, id).Scan(&gone))
		return gone
	})
}
