// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/live"
)

// publishFunc is a peopleListener.
type publishFunc func(ctx context.Context, accountID string, sessionIDs []string) error

func (f publishFunc) publishPeople(ctx context.Context, accountID string, sessionIDs []string) error {
	return f(ctx, accountID, sessionIDs)
}

func TestRevoker_PublishesAfterStoreAndLocalCut(t *testing.T) {
	t.Parallel()
	p := &fakeLoginStore{alive: map[string]bool{"as_1": true},
		result: &account.Revocation{SessionIDs: []string{"as_1"}}}
	v, log := testRevoker(p)
	cut := &cutRecorder{}
	v.liveSessions.Register(cut.request("as_1")).SetSession("as_1")
	var published []string
	var failure error
	v.peers = publishFunc(func(_ context.Context, accountID string, ids []string) error {
		if p.alive["as_1"] || cut.n["as_1"] != 1 {
			t.Errorf("published before the store's commit or the local cut: alive %v, cut %v", p.alive, cut.n)
		}
		published = append(published, accountID+" "+strings.Join(ids, ","))
		return failure
	})
	by := account.Caller{AccountID: "acc_1", PrincipalID: "ak_1"}
	sel := account.RevokeSelector{SessionID: "as_1"}
	if done, err := v.Revoke(t.Context(), by, sel, account.RevokedByAdmin); err != nil || done.Streams != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	failure = errors.New("no peers")
	if _, err := v.Revoke(t.Context(), by, sel, account.RevokedByAdmin); !errors.Is(err, failure) ||
		account.CodeOf(err) != account.CodeUnavailable || strings.Count(log.String(), "sessions revoked") != 2 {
		t.Errorf("replicas that could not be told: %v\n%s", err, log)
	}
	p.result = &account.Revocation{}
	if _, err := v.Revoke(t.Context(), by, sel, account.RevokedByAdmin); err != nil {
		t.Errorf("nothing to publish: %v", err)
	}
	if want := []string{"acc_1 as_1", "acc_1 as_1"}; !slices.Equal(published, want) {
		t.Errorf("published %q, want %q", published, want)
	}
}

func TestRevoker_ApplyPeople(t *testing.T) {
	t.Parallel()
	v, log := testRevoker(&fakeLoginStore{})
	cut := &cutRecorder{}
	v.liveSessions.Register(cut.request("as_1")).SetSession("as_1")
	v.liveSessions.Register(cut.request("as_2")).SetSession("as_2")
	pending := v.liveSessions.Register(nil)
	if n := v.ApplyPeople(t.Context(), []string{"as_1", "as_3"}); n != 1 || cut.n["as_1"] != 1 || cut.n["as_2"] != 0 {
		t.Errorf("%d requests were cut: %v", n, cut.n)
	}
	if pending.SetSession("as_3") {
		t.Error("a request goes on that registered before its session ended")
	}
	if n := testutil.ToFloat64(v.meter.cutRequests.WithLabelValues(peerReason)); n != 1 ||
		strings.Count(log.String(), "streams=1") != 1 {
		t.Errorf("%v requests are counted\n%s", n, log)
	}
}

// leaseWorld is what sweepSessions needs, with a lease, in a bubble. Comparisons are answered after
// answerAfter.
func leaseWorld(t *testing.T, answerAfter time.Duration) (s *people, p *fakeLoginStore) {
	t.Helper()
	p = &fakeLoginStore{alive: map[string]bool{}}
	v, _ := testRevoker(p)
	l := lease.NewWithClock(15*time.Second, lease.MonotonicClock)
	s = &people{set: &settings{}, log: v.log, live: live.New(l), logins: &slowLoginStore{p, answerAfter},
		meter: v.meter, lease: l}
	ctx, cancel := context.WithCancel(t.Context())
	go s.sweepSessions(ctx)
	go s.live.Run(ctx, s.countLeaseEnded)
	go func() { // beats that are always answered
		for tick := time.NewTicker(time.Second); ; {
			l.Beaten(l.Now())
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); synctest.Wait() })
	synctest.Wait()
	return s, p
}

func TestSweepSessions_RenewsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := leaseWorld(t, 0)
		sleep := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		if !s.lease.Valid() {
			t.Error("not valid at the start")
		}
		p.setAlive(nil, errors.New("no store"))
		sleep(time.Minute)
		if !s.lease.Valid() || p.asked != 0 {
			t.Errorf("nothing is served: valid %t, asked %d times", s.lease.Valid(), p.asked)
		}
		cut := &cutRecorder{}
		e := s.live.Register(cut.request("as_1"))
		e.SetSession("as_1")
		sleep(12 * time.Second)
		if !s.lease.Valid() || cut.count("as_1") != 0 {
			t.Errorf("12 s without a comparison: valid %t, cut %d times", s.lease.Valid(), cut.count("as_1"))
		}
		sleep(4 * time.Second)
		if s.lease.Valid() || cut.count("as_1") != 1 {
			t.Errorf("16 s without a comparison: valid %t, cut %d times", s.lease.Valid(), cut.count("as_1"))
		}
		if n := testutil.ToFloat64(s.meter.cutRequests.WithLabelValues(leaseReason)); n != 1 {
			t.Errorf("%v requests are counted", n)
		}
		p.setAlive(map[string]bool{"as_1": true}, nil)
		sleep(sessionSweepInterval)
		if !s.lease.Valid() {
			t.Error("not valid after a comparison")
		}
		e.Done()
	})
}

// slowLoginStore answers comparisons late.
type slowLoginStore struct {
	*fakeLoginStore
	after time.Duration
}

func (p *slowLoginStore) LiveSessionIDs(ctx context.Context, ids []string) (map[string]bool, error) {
	time.Sleep(p.after)
	return p.fakeLoginStore.LiveSessionIDs(ctx, ids)
}

// TestSweepSessions_CountsFromBegin counts the lease from before the sessions are listed, and not
// from the store's answer.
func TestSweepSessions_CountsFromBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := leaseWorld(t, 3*time.Second)
		p.setAlive(map[string]bool{"as_1": true}, nil)
		s.live.Register(nil).SetSession("as_1")
		time.Sleep(sessionSweepInterval + 3*time.Second)
		synctest.Wait()
		if left := s.lease.Remaining(); left != 12*time.Second {
			t.Errorf("after a comparison of 3 s %v remain", left)
		}
	})
}
