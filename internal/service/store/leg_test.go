// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// joinHash returns the hash of the join secret of a test's session.
func joinHash(sessionID string) []byte { return account.HashSecret("join " + sessionID) }

func (r *replica) join(sessionID string) error {
	_, err := r.JoinSession(r.t.Context(), sessionID, joinHash(sessionID))
	return err
}

func (r *replica) leave(f *storetest.Fixture, sessionID string) {
	r.t.Helper()
	storetest.Must(r.t, r.LeaveSession(r.t.Context(), f.AccountID, sessionID, account.SessionEnd{}))
}

// isLive reports whether the session has not ended.
func isLive(f *storetest.Fixture, sessionID string) bool {
	f.T.Helper()
	_, err := f.Store.TunnelSession(f.T.Context(), f.AccountID, sessionID)
	if account.CodeOf(err) != account.CodeNotFound {
		storetest.Must(f.T, err)
	}
	return err == nil
}

// TestLegs_LastEndsSession holds that a session and its endpoints live until the last of its
// replicas has left it.
func TestLegs_LastEndsSession(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	ep := one.bind(f, "http://a.demo")
	session := ep.TunnelSession.ID
	tunnel, _, err := two.StartTunnel(t.Context(), account.LabelledTunnel{AccountID: f.AccountID,
		TunnelSession: account.Ref{ID: session}, Labels: map[string]string{"app": "api"}}, account.TunnelResume{})
	storetest.Must(t, err)
	for range 2 {
		storetest.Must(t, two.join(session))
	}
	joined, err := two.JoinSession(t.Context(), session, joinHash(session))
	storetest.Must(t, err)
	storetest.Equal(t, "account of the joined session", joined.AccountID, f.AccountID)
	v := f.List().Version
	one.leave(f, session)
	one.leave(f, session) // after an answer that was lost
	f.Expect(v)
	storetest.Equal(t, "live without the first replica", isLive(f, session), true)
	held, err := two.SessionHoldings(t.Context(), f.AccountID, session)
	storetest.Must(t, err)
	storetest.Equal(t, "held", held.Endpoints[0].ID+held.Tunnels[0].ID, ep.ID+tunnel.ID)
	stranger, _ := f.NewAccount("second")
	storetest.Must(t, two.LeaveSession(t.Context(), stranger, session, account.SessionEnd{}))
	storetest.Equal(t, "live after another account left it", isLive(f, session), true)
	storetest.Must(t, two.LeaveSession(t.Context(), f.AccountID, session, account.SessionEnd{Reason: "stopped"}))
	storetest.Equal(t, "live without a replica", isLive(f, session), false)
	storetest.Equal(t, "endpoint", f.Endpoint(ep.ID).Status, account.StatusOffline)
	f.Expect(v, account.Modified)
	_, err = f.Store.LabelledTunnel(t.Context(), f.AccountID, tunnel.ID)
	storetest.MustCode(t, err, account.CodeNotFound)
}

// TestLegs_Refuse holds who may join a session.
func TestLegs_Refuse(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	session := one.session(f)
	for name, hash := range map[string][]byte{"another": joinHash("ts-1"), "none": nil,
		"short": joinHash(session)[:31]} {
		_, err := two.JoinSession(t.Context(), session, hash)
		if account.CodeOf(err) != account.CodeNotFound {
			t.Errorf("with %s hash: %v", name, err)
		}
	}
	withoutHash := account.NewID(account.PrefixTunnelSession, time.Now())
	storetest.Must(t, one.StartSession(t.Context(), account.TunnelSession{ID: withoutHash, AccountID: f.AccountID,
		Credential: account.Ref{ID: f.TokenID}, IP: "203.0.113.9"}))
	_, err := two.JoinSession(t.Context(), withoutHash, []byte{})
	storetest.MustCode(t, err, account.CodeNotFound)
	storetest.MustCode(t, two.join("ts-unknown"), account.CodeNotFound)

	storetest.Must(t, two.join(session))
	storetest.Must(t, two.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{})) // on both
	storetest.MustCode(t, one.join(session), account.CodeNotFound)
	storetest.Must(t, one.LeaveSession(t.Context(), f.AccountID, session, account.SessionEnd{}))

	left := one.session(f)
	storetest.Must(t, two.Leave(t.Context())) // from now on it cannot write
	storetest.MustCode(t, two.join(left), account.CodeUnavailable)
}

// TestLegs_OutliveReplica holds that a lost replica ends only the sessions that it alone had, and
// that none can be joined while it ends.
func TestLegs_OutliveReplica(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	both, only := two.bind(f, "http://both.demo"), two.bind(f, "http://only.demo")
	storetest.Must(t, one.join(both.TunnelSession.ID))
	storetest.Must(t, two.Leave(t.Context()))
	storetest.MustCode(t, one.join(only.TunnelSession.ID), account.CodeNotFound)
	wait.Until(t, "its session to end", func() bool {
		storetest.Must(t, one.Sweep(t.Context()))
		return !isLive(f, only.TunnelSession.ID)
	})
	storetest.Equal(t, "endpoint of its session", f.Endpoint(only.ID).Status, account.StatusOffline)
	storetest.Equal(t, "session of both", isLive(f, both.TunnelSession.ID), true)
	storetest.Equal(t, "endpoint of both", f.Endpoint(both.ID).Status, account.StatusOnline)
	three := startReplica(t, opt.DatabaseURL, "three") // its start ends nothing either
	storetest.Must(t, three.join(both.TunnelSession.ID))
	storetest.Equal(t, "endpoint of both after a start", f.Endpoint(both.ID).Status, account.StatusOnline)
}

// TestReplicas_ReportState holds what replicas know of each other.
func TestReplicas_ReportState(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	storetest.Must(t, two.SetDraining(t.Context()))
	all, err := one.Replicas(t.Context())
	storetest.Must(t, err)
	for i, want := range []membership.Replica{
		{ID: "one", Address: "one:1", AddressMAC: "of one", RelayAddress: "one:2", BaseURL: testBaseURL,
			Version: "1.2.3"},
		{ID: "two", Address: "two:1", AddressMAC: "of two", RelayAddress: "two:2", BaseURL: testBaseURL,
			Version: "1.2.3", Draining: true},
	} {
		if since := time.Since(all[i].StartedAt); since < 0 || since > time.Minute {
			t.Errorf("%s started %s ago", want.ID, since)
		}
		all[i].StartedAt = time.Time{}
		storetest.Equal(t, "replica", all[i], want)
	}
	storetest.Must(t, f.Store.SetDraining(t.Context())) // without replicas
	storetest.Must(t, f.Store.Leave(t.Context()))
}

// TestReplicas_ReportBeats holds that a beat that was answered is reported with the time at which
// it began, and that none of a fenced replica is.
func TestReplicas_ReportBeats(t *testing.T) {
	t.Parallel()
	_, opt := postgresFixture(t, postgres.Server(t).URL(t))
	var clock atomic.Int64
	r, err := tryReplica(t, opt.DatabaseURL, "one", func(o *store.Options) {
		o.Lease = lease.NewWithClock(time.Minute, lease.Clock{Now: lease.MonotonicClock.Now,
			Boot: func() time.Duration { return time.Duration(clock.Add(1)) }})
		clock.Store(0)
	})
	storetest.Must(t, err)
	for want := range time.Duration(3) {
		storetest.Equal(t, "began", <-r.answered, want+1)
	}
	fence, err := pgx.Connect(t.Context(), opt.DatabaseURL)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, fence.Close(context.WithoutCancel(t.Context()))) }()
	_, err = fence.Exec(t.Context(), `BEGIN; DELETE FROM replicas`)
	storetest.Must(t, err)
	wait.Until(t, "a beat to wait for the fence", func() (waits bool) {
		storetest.Must(t, fence.QueryRow(t.Context(),
			`SELECT EXISTS (SELECT 1 FROM pg_locks
				WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))`).
			Scan(&waits))
		return waits
	})
	for len(r.answered) > 0 {
		<-r.answered
	}
	_, err = fence.Exec(t.Context(), `COMMIT`)
	storetest.Must(t, err)
	<-r.ended
	storetest.Equal(t, "reports of beats that ended after the fence", len(r.answered), 0)
}
