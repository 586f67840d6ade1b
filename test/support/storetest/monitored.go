// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

const day = 24 * time.Hour

// observedCalls implements sqldb.Observer.
type observedCalls struct {
	mu     sync.Mutex
	counts map[string]int
}

func (o *observedCalls) ObserveCall(kind sqldb.CallKind, took time.Duration, failed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[fmt.Sprintf("%s %v %v", kind, failed, took >= 0)]++
}

// take returns the calls since the one before.
func (o *observedCalls) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer clear(o.counts)
	return fmt.Sprint(o.counts)
}

// monitored tests what the store tells the service's metrics.
var monitored = map[string]func(*testing.T, Open){
	"monitored: operators by when they were seen": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		register := func(uid string) {
			o := anOperator(f.AccountID)
			o.ClusterUID, o.Deployment.Name = uid, "fairlead-"+uid
			_, _, err := f.Store.UpsertOperator(t.Context(), o)
			Must(t, err)
		}
		counts := func() string {
			m, err := f.Store.Monitored(t.Context())
			Must(t, err)
			return fmt.Sprint(m.ActiveOperators, m.SilentOperators, m.GoneOperators)
		}
		Equal(t, "of none", counts(), "0 0 0")
		register("")
		register("a")
		register("b")
		Equal(t, "at once", counts(), "2 0 0")
		f.Clock.Step(3 * time.Minute)
		register("c")
		Equal(t, "after 3 minutes", counts(), "1 2 0")
		f.Clock.Step(day)
		Equal(t, "after a day", counts(), "0 0 3")
	},
	"monitored: the next expiry of what is in use": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		issue := func(life time.Duration, used bool) time.Time {
			expires := f.Clock.Now().Add(life)
			_, secret, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "key", nil, &expires)
			Must(t, err)
			if used {
				_, err = f.Store.APIKeyBySecret(t.Context(), secret)
				Must(t, err)
			}
			return expires
		}
		expect := func(when string, want time.Time) {
			t.Helper()
			f.Clock.Step(time.Minute)
			Must(t, f.Store.Sweep(t.Context()))
			m, err := f.Store.Monitored(t.Context())
			Must(t, err)
			Equal(t, when, m.APIKeyExpiry.Equal(want), true)
			Equal(t, "authtokens, "+when, m.AuthtokenExpiry.IsZero(), true)
		}
		issue(13*day, true)
		issue(20*day, false)
		expect("without any that counts", time.Time{})
		issue(16*day, true)
		sooner := issue(15*day, true)
		expect("with two", sooner)
		f.Clock.Step(6 * day)
		expect("six days later", sooner)
		f.Clock.Step(day)
		expect("not used for a week", time.Time{})
	},
	"monitored: an expiry counts for another day": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		expires := f.Clock.Now().Add(14 * day)
		_, secret, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "key", nil, &expires)
		Must(t, err)
		for range 2 {
			f.Clock.Step(7*day - time.Hour)
			_, err = f.Store.APIKeyBySecret(t.Context(), secret)
			Must(t, err)
			Must(t, f.Store.Sweep(t.Context()))
		}
		for _, want := range []bool{true, true, false} {
			m, err := f.Store.Monitored(t.Context())
			Must(t, err)
			Equal(t, "known", m.APIKeyExpiry.Equal(expires), want)
			f.Clock.Step(14 * time.Hour)
		}
	},
	"calls: reported with their kind, and failures of the database alone": func(t *testing.T, open Open) {
		calls := &observedCalls{counts: map[string]int{}}
		f := NewFixture(t, open, func(o *store.Options) { o.Observer = calls })
		calls.take()
		_, err := f.Store.Operator(t.Context(), f.AccountID, "op-none")
		MustCode(t, err, account.CodeNotFound)
		Equal(t, "a read", calls.take(), "map[read false true:1]")
		_, _, err = f.Store.IssueAPIKey(t.Context(), f.AccountID, "key", nil, nil)
		Must(t, err)
		Equal(t, "a write", calls.take(), "map[write false true:1]")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = f.Store.Operator(ctx, f.AccountID, "op-none")
		MustCode(t, err, account.CodeUnavailable)
		Equal(t, "a caller that has gone", calls.take(), "map[read false true:1]")
		Must(t, f.Store.Close())
		_, err = f.Store.Operator(t.Context(), f.AccountID, "op-none")
		Equal(t, "code", account.CodeOf(err) == account.CodeUnavailable || account.CodeOf(err) == account.CodeInternal,
			true)
		Equal(t, "a closed database", calls.take(), "map[read true true:1]")
	},
}
