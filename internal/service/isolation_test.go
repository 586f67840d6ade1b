// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
)

var errTestStore = errors.New("no store")

// newTestIsolation returns the isolation of a replica on the clock of the bubble.
func newTestIsolation() *isolation { return newIsolation(15*time.Second, bubbleClock(time.Now())) }

// bubbleClock counts from a moment.
type bubbleClock time.Time

func (c bubbleClock) Now() time.Duration { return time.Since(time.Time(c)) }

// heard is what a replica says now, whose store has answered it so long ago.
func heard(storeAge time.Duration) peers.Status {
	return peers.Status{Heard: time.Now(), StoreAge: storeAge}
}

func TestIsolation_ComparesWithOtherReplicas(t *testing.T) {
	t.Parallel()
	guarded, open := &account.Endpoint{ID: "ep-1", TrafficPolicy: "policy"}, &account.Endpoint{ID: "ep-2"}
	for name, c := range map[string]struct {
		age           time.Duration // time since the store's last answer
		others        func() []peers.Status
		ready, guards bool // want: it is ready, and serves what a policy guards
	}{
		"the store answers": {time.Second, func() []peers.Status { return []peers.Status{heard(0)} }, true, true},
		"a beat was missed": {4 * time.Second, func() []peers.Status { return []peers.Status{heard(0)} }, true, true},
		"alone without the store": {6 * time.Second,
			func() []peers.Status { return []peers.Status{heard(6 * time.Second), heard(0)} }, false, true},
		"alone past the lease": {16 * time.Second,
			func() []peers.Status { return []peers.Status{heard(17 * time.Second), heard(time.Second)} }, false, false},
		"all without the store": {time.Hour, func() []peers.Status {
			return []peers.Status{heard(time.Hour + 2*time.Second), heard(time.Hour - 4*time.Second)}
		}, true, true},
		"without replicas":        {time.Hour, func() []peers.Status { return nil }, true, true},
		"none heard":              {time.Hour, func() []peers.Status { return []peers.Status{{}} }, true, false},
		"none heard in the lease": {14 * time.Second, func() []peers.Status { return []peers.Status{{}} }, true, true},
		"a version that says nothing": {time.Hour, func() []peers.Status { return []peers.Status{heard(-1)} },
			true, true},
		"heard long ago": {time.Hour, func() []peers.Status {
			return []peers.Status{{Heard: time.Now().Add(-16 * time.Second), StoreAge: time.Hour - 16*time.Second}}
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := newTestIsolation()
				time.Sleep(c.age)
				i.update(c.others())
				if err := i.ready(); (err == nil) != c.ready {
					t.Errorf("ready: %v", err)
				}
				if err := i.Check(guarded); (err == nil) != c.guards {
					t.Errorf("with a policy: %v", err)
				}
				if err := i.Check(open); err != nil {
					t.Errorf("without a policy: %v", err)
				}
				i.setBeaten(i.clock.Now())
				i.update(c.others())
				if err := errors.Join(i.ready(), i.Check(guarded)); err != nil {
					t.Errorf("when the store answers again: %v", err)
				}
			})
		})
	}
}

func TestIsolation_RefusesUnreadChanges(t *testing.T) {
	t.Parallel()
	changed, other := &account.Endpoint{ID: "ep-1", AccountID: "ac-1"}, &account.Endpoint{ID: "ep-2", AccountID: "ac-1"}
	fails := func() error { return errTestStore }
	for name, c := range map[string]struct {
		ids      []string
		confirms bool // the replica that made the change has an answer of the store since
		alone    bool // or another has
		changed  bool // want: the changed endpoint is served
		other    bool // want: another one of the account is
	}{
		"the store is away":     {[]string{"ep-1"}, false, false, true, true},
		"an endpoint":           {[]string{"ep-1"}, true, false, false, true},
		"an endpoint, isolated": {[]string{"ep-1"}, false, true, false, true},
		"a backend":             {[]string{"bkdhr-1"}, true, false, false, false},
		"the account":           {nil, true, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := newTestIsolation()
				change := peers.Change{Kind: peers.ChangeAccess, AccountID: "ac-1", IDs: c.ids}
				if err := i.read(change, fails); !errors.Is(err, errTestStore) {
					t.Errorf("at first: %v", err)
				}
				if change.StoreAnswers = c.confirms; c.confirms {
					if err := i.read(change, fails); err != nil {
						t.Errorf("told again: %v", err)
					}
				}
				if c.alone {
					time.Sleep(6 * time.Second)
					i.update([]peers.Status{heard(0)})
				}
				if err := i.Check(changed); (err == nil) != c.changed {
					t.Errorf("the changed endpoint: %v", err)
				}
				if err := i.Check(other); (err == nil) != c.other {
					t.Errorf("another endpoint: %v", err)
				}
				i.setBeaten(i.clock.Now())
				err := i.readAgain(t.Context(), func(context.Context, peers.Change) error { return nil })
				if err = errors.Join(err, i.Check(changed), i.Check(other)); err != nil {
					t.Errorf("when it was read: %v", err)
				}
			})
		})
	}
}

// TestIsolation_SkipsUnavailableStore checks that a change is not kept waiting for time-outs of
// the store.
func TestIsolation_SkipsUnavailableStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newTestIsolation()
		time.Sleep(staleAfter)
		c := peers.Change{Kind: peers.ChangeAccess, AccountID: "ac-1"}
		asks := func() error { t.Error("the store is asked"); return nil }
		if err := i.read(c, asks); account.CodeOf(err) != account.CodeUnavailable {
			t.Errorf("%v", err)
		}
		err := i.readAgain(t.Context(), func(context.Context, peers.Change) error { return asks() })
		if err != nil {
			t.Error(err)
		}
	})
}
