// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// ownLegs returns the sessions that have a leg with the replica, in order.
func (r *replica) ownLegs() string {
	r.t.Helper()
	own, err := r.OwnLegs(r.t.Context())
	storetest.Must(r.t, err)
	if own.History == "" {
		r.t.Error("the history of the database is not known")
	}
	return sorted(own.SessionIDs...)
}

func sorted(ids ...string) string {
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// TestCorrectLegs holds that legs of live sessions are added, others not, and that only the replica's
// own are removed.
func TestCorrectLegs(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	a, b, c := one.session(f), one.session(f), two.session(f)
	storetest.Must(t, two.join(a))
	storetest.Equal(t, "legs", one.ownLegs(), sorted(a, b))
	storetest.Must(t, one.CorrectLegs(t.Context(), []string{c, a, "ts-over"}, []string{b, "ts-unknown"}))
	storetest.Equal(t, "legs", one.ownLegs(), sorted(a, c))
	storetest.Must(t, one.CorrectLegs(t.Context(), nil, []string{a}))
	storetest.Equal(t, "legs of the other", two.ownLegs(), sorted(a, c))
	storetest.Must(t, one.Sweep(t.Context()))
	own, err := f.Store.OwnLegs(t.Context())
	storetest.Must(t, err)
	storetest.Must(t, f.Store.CorrectLegs(t.Context(), []string{a}, nil))
	storetest.Equal(t, "legs of a server that is alone", len(own.SessionIDs), 0)
}

// TestPromotion_KeepsNewReplica holds that a replica whose row the promoted standby lacks
// adds it again, with the id that it has and as draining as it is, and can write.
func TestPromotion_KeepsNewReplica(t *testing.T) {
	t.Parallel()
	primary, standby, databaseURL := startPrimaryAndStandby(t)
	f, _ := postgresFixture(t, databaseURL)
	one := startReplica(t, databaseURL, "one")
	before, err := one.OwnLegs(t.Context())
	storetest.Must(t, err)
	caughtUp(t, primary, databaseURL)
	storetest.Must(t, standby.CutReplication(t.Context()))
	two := startReplica(t, databaseURL, "two")
	storetest.Must(t, two.SetDraining(t.Context()))
	<-two.answered
	storetest.Must(t, primary.Crash())
	storetest.Must(t, standby.Promote(t.Context()))

	wait.Until(t, "the replica to be there again", func() bool {
		all, err := one.Replicas(t.Context())
		return err == nil && slices.ContainsFunc(all, func(r membership.Replica) bool {
			return r.ID == "two" && r.Draining
		})
	})
	wait.Until(t, "its writes", func() bool {
		err := two.CorrectLegs(t.Context(), nil, []string{"ts-unknown"})
		if err != nil && !errors.Is(err, membership.ErrFenced) {
			storetest.MustCode(t, err, account.CodeUnavailable)
		}
		return err == nil
	})
	f.EndSession(two.session(f))
	after, err := one.OwnLegs(t.Context())
	storetest.Must(t, err)
	if before.History == after.History {
		t.Errorf("the history is %q as before", after.History)
	}
}
