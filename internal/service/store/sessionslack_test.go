// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestSessions_LiveAcrossReplicas holds that a replica neither refuses nor deletes a session that
// another has seen used within its idle time and has not written yet, and that one that was not
// used ends soon after its idle time.
func TestSessions_LiveAcrossReplicas(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	key, err := seal.New(bytes.Repeat([]byte{7}, seal.KeySize))
	storetest.Must(t, err)
	var started atomic.Bool // a start wants the database's time
	adjust := func(o *store.Options) {
		o.Key = key
		o.Clock = func() time.Time {
			if started.Load() {
				return f.Clock.Now()
			}
			return time.Now()
		}
	}
	two, err := tryReplica(t, opt.DatabaseURL, "two", adjust)
	storetest.Must(t, err)
	<-two.answered // it is the sweeper
	one, err := tryReplica(t, opt.DatabaseURL, "one", adjust)
	storetest.Must(t, err)
	started.Store(true)
	lives := func(r *replica, secret string) bool {
		_, err := r.LiveSession(t.Context(), f.AccountID, storetest.TokenHash(secret))
		if account.CodeOf(err) != account.CodeNotFound {
			storetest.Must(t, err)
		}
		return err == nil
	}
	for _, idle := range []time.Duration{4 * time.Second, 100 * time.Second, 10 * time.Minute, time.Hour} {
		secret := idle.String()
		session := f.Login(secret, secret, func(l *account.NewLogin) { l.Idle, l.MaxDuration = idle, 10*time.Hour })
		// A use is written when the last write is that old, with the next batch.
		unwritten := min(time.Minute, idle/4)
		if idle >= 2*time.Minute {
			unwritten += 10 * time.Second
		}
		f.Clock.Step(unwritten)
		storetest.Equal(t, secret+": used on one", lives(one, secret), true)
		f.Clock.Step(idle - time.Millisecond)
		storetest.Must(t, two.Sweep(t.Context()))
		live, err := two.LiveSessionIDs(t.Context(), []string{session.ID})
		storetest.Must(t, err)
		storetest.Equal(t, secret+": live by its id on two", live[session.ID], true)
		storetest.Equal(t, secret+": used on two", lives(two, secret), true)
		for _, r := range []*replica{one, two} {
			storetest.Must(t, r.Sweep(t.Context()))
		}
		f.Clock.Step(2 * time.Minute)
		for _, r := range []*replica{one, two} {
			storetest.Must(t, r.Sweep(t.Context()))
		}
		f.Clock.Step(idle + time.Minute + 15*time.Second)
		storetest.Equal(t, secret+": unused", lives(two, secret) || lives(one, secret), false)
	}
}
