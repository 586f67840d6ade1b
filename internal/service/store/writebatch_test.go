// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// heldCalls are calls that wait for a store's turn to write, which the test has.
type heldCalls struct {
	t       *testing.T
	s       *store.Store
	release func()
	calls   sync.WaitGroup
	errs    []*error
}

func holdTurn(t *testing.T, s *store.Store) *heldCalls {
	t.Helper()
	release, err := s.HoldTurn(t.Context())
	storetest.Must(t, err)
	return &heldCalls{t: t, s: s, release: release}
}

// add lets a call wait behind those before it.
func (h *heldCalls) add(call func() error) {
	h.t.Helper()
	waiting, err := h.s.WaitingCalls(), new(error)
	h.errs = append(h.errs, err)
	h.calls.Go(func() { *err = call() })
	wait.Until(h.t, "a call to wait", func() bool { return h.s.WaitingCalls() > waiting })
}

// run runs the calls and returns what each returned.
func (h *heldCalls) run() []error {
	h.release()
	h.calls.Wait()
	all := make([]error, len(h.errs))
	for i, err := range h.errs {
		all[i] = *err
	}
	return all
}

// onBothEngines runs the test with a store on each engine.
func onBothEngines(t *testing.T, test func(*testing.T, *storetest.Fixture), adjust ...func(*store.Options)) {
	t.Helper()
	for name, open := range map[string]func(*testing.T) storetest.Open{
		"sqlite": func(t *testing.T) storetest.Open {
			dir := t.TempDir()
			return func(opt store.Options) (*store.Store, error) {
				opt.DataDir = dir
				return store.Open(context.WithoutCancel(t.Context()), opt)
			}
		},
		"postgres": func(t *testing.T) storetest.Open {
			databaseURL := postgres.Server(t).URL(t)
			return func(opt store.Options) (*store.Store, error) {
				opt.DatabaseURL = databaseURL
				return store.Open(context.WithoutCancel(t.Context()), opt)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, storetest.NewFixture(t, open(t), adjust...))
		})
	}
}

// bindCall is a bind of a URL by a session, for heldCalls.
func bindCall(f *storetest.Fixture, session, url string, adjust ...func(*account.BindRequest)) func() error {
	f.T.Helper()
	r := f.Request(session, url)
	for _, a := range adjust {
		a(&r)
	}
	return func() error {
		_, err := f.Store.Bind(f.T.Context(), r)
		return err
	}
}

// checkLog checks that the account's log has no gap and no half, and is that of the list.
func checkLog(f *storetest.Fixture) {
	f.T.Helper()
	page := f.List()
	sameAsFolded(f.T, readLog(f.T, f.Store, f.AccountID, page.Version), page.Endpoints)
}

// unknownBackend makes a bind fail after it has written.
func unknownBackend(r *account.BindRequest) {
	r.TrafficPolicy, r.PolicyFacts = "x", account.PolicyFacts{Digest: "x", Backends: []string{"be-none"}}
}

// TestWriteBatch_KeepsErrorsApart holds that a call that fails gets its own error, also one that
// rests on what an earlier call of the batch has done, that nothing of it is written, and that the
// others get what they would have got alone.
func TestWriteBatch_KeepsErrorsApart(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, f *storetest.Fixture) {
		one, two := f.Session(), f.Session()
		v := f.List().Version
		h := holdTurn(t, f.Store)
		h.add(bindCall(f, one, "http://later.demo", unknownBackend))
		h.add(bindCall(f, one, "http://a.demo"))
		h.add(bindCall(f, two, "http://a.demo"))
		h.add(func() error {
			return f.Store.StartSession(t.Context(), account.TunnelSession{ID: one, AccountID: f.AccountID})
		})
		h.add(func() error { return f.Store.EndSession(t.Context(), f.AccountID, one, account.SessionEnd{}) })
		h.add(bindCall(f, one, "http://b.demo"))
		h.add(bindCall(f, two, "http://a.demo"))
		h.add(bindCall(f, two, "http://later.demo"))
		var codes []account.Code
		for _, err := range h.run() {
			codes = append(codes, account.CodeOf(err))
		}
		storetest.Equal(t, "codes", fmt.Sprint(codes), fmt.Sprint([]account.Code{account.CodeInvalid, "",
			account.CodeURLTaken, account.CodeInternal, "", account.CodeNotFound, "", ""}))
		events := f.Expect(v, account.Added, account.Modified, account.Modified, account.Added)
		storetest.Equal(t, "last", events[3].Endpoint.URL, "http://later.demo")
		storetest.Equal(t, "projection of a host that a failed call had written first",
			events[3].Endpoint.ProjectionID, events[3].Endpoint.ID)
		checkLog(f)
	})
}

// TestWriteBatch_CountsEndpoints holds that the limit of endpoints counts those of the batch.
func TestWriteBatch_CountsEndpoints(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, f *storetest.Fixture) {
		session := f.Session()
		h := holdTurn(t, f.Store)
		for i := range 5 {
			h.add(bindCall(f, session, fmt.Sprintf("http://e%d.demo", i)))
		}
		for i, err := range h.run() {
			want := account.Code("")
			if i >= 3 {
				want = account.CodeLimit
			}
			storetest.Equal(t, fmt.Sprint("bind ", i), account.CodeOf(err), want)
		}
		_, err := f.Store.Bind(t.Context(), f.Request(session, "http://more.demo"))
		storetest.MustCode(t, err, account.CodeLimit)
		checkLog(f)
	}, func(o *store.Options) { o.MaxEndpoints = 3 })
}

// TestWriteBatch_ForgetsCancelledCall holds that a call leaves the queue when its context ends, and
// the others stay.
func TestWriteBatch_ForgetsCancelledCall(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, f *storetest.Fixture) {
		session := f.Session()
		ctx, cancel := context.WithCancel(t.Context())
		h := holdTurn(t, f.Store)
		for i := range 3 {
			request, ctx := f.Request(session, fmt.Sprintf("http://e%d.demo", i)), ctx
			if i != 1 {
				ctx = t.Context()
			}
			h.add(func() error {
				_, err := f.Store.Bind(ctx, request)
				return err
			})
		}
		cancel()
		wait.Until(t, "the call to leave", func() bool { return f.Store.WaitingCalls() == 2 })
		errs := h.run()
		storetest.MustCode(t, errs[1], account.CodeUnavailable)
		storetest.Must(t, errors.Join(errs[0], errs[2]))
		storetest.Equal(t, "endpoints", len(f.List().Endpoints), 2)
		checkLog(f)
	})
}

// transactions returns how many transactions wrote the account's events after the version.
func transactions(t *testing.T, databaseURL string, v account.ResourceVersion) int {
	t.Helper()
	return queryInt(t, databaseURL,
		fmt.Sprintf(`SELECT COUNT(DISTINCT CAST(xmin AS TEXT)) FROM events WHERE seq > %d`, v.Seq))
}

// TestWriteBatch_IsBounded holds that calls share a transaction up to its bounds, by their number
// and by their events.
func TestWriteBatch_IsBounded(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	const each = 2 * store.MaxBatchEvents / 5 // endpoints of a session: the third passes the bound
	sessions := []string{f.Session(), f.Session(), f.Session(), f.Session()}
	v := f.List().Version
	h := holdTurn(t, f.Store)
	for i := range sqldb.MaxBatchCalls + 2 {
		h.add(bindCall(f, sessions[0], fmt.Sprintf("http://e%d.demo", i)))
	}
	storetest.Must(t, errors.Join(h.run()...))
	storetest.Equal(t, "transactions of binds", transactions(t, opt.DatabaseURL, v), 2)

	var binds sync.WaitGroup
	for i := range each * len(sessions) {
		binds.Go(func() { f.Bind(sessions[i%len(sessions)], fmt.Sprintf("http://more%d.demo", i)) })
	}
	binds.Wait()
	v = f.List().Version
	h = holdTurn(t, f.Store)
	for _, session := range sessions {
		h.add(func() error { return f.Store.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{}) })
	}
	storetest.Must(t, errors.Join(h.run()...))
	storetest.Equal(t, "transactions of ends", transactions(t, opt.DatabaseURL, v), 2)
}

// TestWriteBatch_LeavesLongWritesAlone holds that a call that may be long has a transaction of its
// own between those of others.
func TestWriteBatch_LeavesLongWritesAlone(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	session := f.Session()
	old := f.Bind(session, "http://old.demo")
	f.EndSession(session)
	session = f.Session()
	f.Clock.Step(store.DefaultGrace)
	v := f.List().Version
	h := holdTurn(t, f.Store)
	h.add(bindCall(f, session, "http://a.demo"))
	h.add(func() error { return f.Store.Sweep(t.Context()) })
	h.add(bindCall(f, session, "http://b.demo"))
	storetest.Must(t, errors.Join(h.run()...))
	storetest.Equal(t, "transactions", transactions(t, opt.DatabaseURL, v), 2)
	events := f.Expect(v, account.Added, account.Added, account.Deleted)
	storetest.Equal(t, "deleted", events[2].Endpoint.ID, old.Endpoint.ID)
}

// TestWriteBatch_LostCommitIsOfAll holds that no call of a batch is told an outcome when the answer
// to the commit is lost, also one that had failed, and that all can be repeated.
func TestWriteBatch_LostCommitIsOfAll(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	var lose atomic.Bool
	f, _ := postgresFixture(t, server.LoseCommits(t, server.URL(t), lose.Load))
	one, two := f.Session(), f.Session()
	v := f.List().Version
	h := holdTurn(t, f.Store)
	h.add(bindCall(f, one, "http://a.demo"))
	h.add(bindCall(f, two, "http://a.demo"))
	lose.Store(true)
	for _, err := range h.run() {
		storetest.MustCode(t, err, account.CodeUnavailable)
	}
	lose.Store(false)
	f.Bind(one, "http://a.demo")
	storetest.MustCode(t, bindCall(f, two, "http://a.demo")(), account.CodeURLTaken)
	f.Expect(v, account.Added)
}

// TestWriteBatch_OfFencedReplicaWritesNothing holds that all calls of a fenced replica's batch are
// refused.
func TestWriteBatch_OfFencedReplicaWritesNothing(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	session := two.session(f)
	storetest.Must(t, one.join(session))
	v := f.List().Version
	h := holdTurn(t, two.Store)
	for i := range 3 {
		request := f.Request(session, fmt.Sprintf("http://e%d.demo", i))
		h.add(func() error {
			_, err := two.Bind(t.Context(), request)
			return err
		})
	}
	two.cancel()
	wait.Until(t, "the replica to be fenced", func() bool { return one.ids() == "one" })
	for _, err := range h.run() {
		storetest.MustCode(t, err, account.CodeUnavailable)
		storetest.Equal(t, "fenced", errors.Is(err, membership.ErrFenced), true)
	}
	f.Expect(v)
}

// TestWriteBatch_OutlivesPanic holds that a call whose function panics keeps no other from writing.
func TestWriteBatch_OutlivesPanic(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, f *storetest.Fixture) {
		session := f.Session()
		f.Bind(session, "http://a.demo")
		h := holdTurn(t, f.Store)
		h.add(func() (err error) {
			defer func() { err = fmt.Errorf("recovered: %v", recover()) }()
			return bindCall(f, session, "http://a.demo", func(r *account.BindRequest) {
				r.Holds = func(string) bool { panic("of the caller") }
			})()
		})
		h.add(bindCall(f, session, "http://b.demo"))
		errs := h.run()
		if !strings.Contains(errs[0].Error(), "of the caller") {
			t.Errorf("the call that panicked: %v", errs[0])
		}
		storetest.MustCode(t, errs[1], account.CodeInternal)
		f.Bind(session, "http://c.demo")
		checkLog(f)
	})
}

// TestWrite_WaitsNoLongerThanItsContext holds that a call that has the turn ends with its context.
func TestWrite_WaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	request := f.Request(f.Session(), "http://a.demo")
	other, err := store.Open(t.Context(), opt)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, other.Close()) }()
	conn, err := pgx.Connect(t.Context(), opt.DatabaseURL)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), `BEGIN; SELECT 1 FROM fairlead_schema FOR UPDATE`)
	storetest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := other.Bind(ctx, request)
		ended <- err
	}()
	wait.Until(t, "the call to wait for the row that is locked", func() (waits bool) {
		err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks
			WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))`).Scan(&waits)
		storetest.Must(t, err)
		return waits
	})
	cancel()
	err = <-ended
	storetest.MustCode(t, err, account.CodeUnavailable)
	storetest.Equal(t, "ended by its context", errors.Is(err, context.Canceled), true)
	_, err = conn.Exec(t.Context(), `ROLLBACK`)
	storetest.Must(t, err)
	_, err = other.Bind(t.Context(), request)
	storetest.Must(t, err)
}

// TestWriteBatch_OwnersBindsGetRowEach holds that binds of one owner in one transaction see each
// other's rows: each takes another one, in the order of the binds, and one beside another owner is
// refused.
func TestWriteBatch_OwnersBindsGetRowEach(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, f *storetest.Fixture) {
		lost := f.Session()
		offline := f.BindFor(lost, storetest.Owner("api")).Endpoint
		f.EndSession(lost)
		got := make([]*account.BindResult, 4)
		sessions := []string{f.Session(), f.Session(), f.Session(), f.Session()}
		h := holdTurn(t, f.Store)
		for i, session := range sessions {
			r := f.OwnedRequest(session, storetest.Owner([]string{"api", "api", "web", "api"}[i]))
			h.add(func() (err error) {
				got[i], err = f.Store.Bind(f.T.Context(), r)
				return err
			})
		}
		for i, err := range h.run() {
			if want := i != 2; (err == nil) != want {
				t.Fatalf("bind %d: %v", i, err)
			}
		}
		storetest.Equal(t, "the first row", got[0].Endpoint.ID, offline.ID)
		for i := range got {
			if i != 2 {
				storetest.Equal(t, fmt.Sprint("oldest of bind ", i), got[i].OwnerEndpointID, offline.ID)
			}
		}
		if a, b := got[1].Endpoint.ID, got[3].Endpoint.ID; a == b || a == offline.ID || b == offline.ID {
			t.Errorf("rows %s, %s and %s", offline.ID, a, b)
		}
		storetest.Equal(t, "rows", len(f.List().Endpoints), 3)
		checkLog(f)
	})
}
