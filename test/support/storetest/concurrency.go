// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// concurrency tests concurrent calls, on one open store and on two.
var concurrency = map[string]func(*testing.T, Open){
	"concurrent binds of a URL: one succeeds": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		second, err := open(f.opt)
		Must(t, err)
		defer func() { Must(t, second.Close()) }()
		v := f.List().Version
		var won, refused atomic.Int32
		var all sync.WaitGroup
		for i := range 16 {
			through, r := []*store.Store{f.Store, second}[i%2], f.Request(f.Session(), "http://api.demo")
			all.Go(func() {
				switch _, err := through.Bind(t.Context(), r); account.CodeOf(err) {
				case "":
					won.Add(1)
				case account.CodeURLTaken:
					refused.Add(1)
				default:
					t.Errorf("binding: %v", err)
				}
			})
		}
		all.Wait()
		Equal(t, "won, refused", fmt.Sprint(won.Load(), refused.Load()), "1 15")
		f.Expect(v, account.Added)
	},
	"concurrent writes: event log is complete": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		const writers, rounds = 4, 10
		start := f.List().Version
		wake, cancel := f.Store.Subscribe(f.AccountID)
		defer cancel()
		var all sync.WaitGroup
		for w := range writers {
			session := f.Session()
			all.Go(func() {
				for i := range rounds {
					got, err := f.Store.Bind(t.Context(), f.Request(session, fmt.Sprintf("http://w%d-%d.demo", w, i)))
					if err != nil {
						t.Errorf("binding: %v", err)
						return
					}
					if err := f.Store.Unbind(t.Context(), f.AccountID, got.Endpoint.ID, session); err != nil {
						t.Errorf("unbinding: %v", err)
					}
				}
			})
		}
		next := start.Seq + 1
		for v := start; next <= start.Seq+2*writers*rounds; {
			<-wake
			for more := true; more; {
				got, upTo, err := f.Store.EndpointEvents(t.Context(), f.AccountID, v, account.EndpointFilter{}, 7)
				Must(t, err)
				for _, e := range got {
					Equal(t, "sequence", e.ResourceVersion.Seq, next)
					next++
				}
				v, more = upTo, len(got) == 7
			}
		}
		all.Wait()
	},
	"cancelled write: rolled back": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		r := f.Request(f.Session(), "http://api.demo")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := f.Store.Bind(ctx, r)
		MustCode(t, err, account.CodeUnavailable)
		Equal(t, "endpoints", len(f.List().Endpoints), 0)
		Equal(t, "version", f.List().Version.Seq, int64(0))
		Must(t, f.Store.Ping(t.Context()))
	},
	"closed store: unavailable": func(t *testing.T, open Open) {
		s, err := open(store.Options{})
		Must(t, err)
		Must(t, s.Close())
		if err := s.Ping(t.Context()); err == nil {
			t.Fatal("a closed store answers")
		}
	},
}
