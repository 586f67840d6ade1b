// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// BenchmarkEndpointCache_Cached measures the look at an endpoint whose state is cached.
func BenchmarkEndpointCache_Cached(b *testing.B) {
	ep := cloudEndpoint("", "")
	c := newEndpointCache(&Options{Logger: slog.New(slog.DiscardHandler),
		Endpoints: &fakeEndpoints{byID: func(context.Context, string, string) (*account.Endpoint, error) {
			return ep, nil
		}}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.latest(b.Context(), ep); err != nil {
			b.Fatal(err)
		}
	}
}

// TestEndpointCache_PoolKeepsItsTurnsDuringOutage checks that members of a pool serve while the
// store hangs, that those that were never read are passed over, and that one wait is enough.
func TestEndpointCache_PoolKeepsItsTurnsDuringOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		answer := func(ctx context.Context) error {
			if away.Load() {
				<-ctx.Done()
				return account.Errorf(account.CodeUnavailable, "no store")
			}
			return nil
		}
		o := &Options{Logger: slog.New(slog.DiscardHandler),
			Endpoints: &fakeEndpoints{byID: func(ctx context.Context, _, id string) (*account.Endpoint, error) {
				return &account.Endpoint{ID: id}, answer(ctx)
			}}}
		c, ep := newEndpointCache(o), &account.Endpoint{ID: "ep-9", AccountID: "ac", URL: "http://pool.demo",
			Scheme: "http", Type: account.TypeCloud, EndpointSettings: account.EndpointSettings{PoolingEnabled: true},
			Bindings: []string{account.BindingKubernetes}}
		list := func(ctx context.Context, _ *account.Endpoint) ([]account.Endpoint, error) {
			var all []account.Endpoint
			for n := range 10 {
				member := *ep
				member.ID = fmt.Sprintf("ep-%d", n)
				all = append(all, member)
			}
			return all, answer(ctx)
		}
		pool := newPoolMembers(&fakeEndpoints{pool: list})
		serve := func() string {
			t.Helper()
			began := time.Now()
			got := c.first(t.Context(), "ac", pool.ordered(t.Context(), ep))
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %v", took)
			}
			if got == nil {
				t.Fatal("no member serves")
			}
			return got.ID
		}
		if one, two := serve(), serve(); one != "ep-0" || two != "ep-1" {
			t.Errorf("%s and %s serve first", one, two)
		}
		away.Store(true)
		for range 100 {
			time.Sleep(time.Minute)
			if id := serve(); id != "ep-0" && id != "ep-1" {
				t.Errorf("%s serves, which was never read", id)
			}
		}
		if got, err := c.latest(t.Context(), ep); got != ep || err != nil {
			t.Errorf("one that was never read: %v %v", got, err)
		}
		time.Sleep(time.Minute)
	})
}

func TestEdge_ExpireAccountReadsEndpointsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ep := &account.Endpoint{ID: "ep-1", AccountID: "ac", URL: "http://a.demo", Scheme: "http",
			Type:             account.TypeCloud,
			EndpointSettings: account.EndpointSettings{PoolingEnabled: true},
			Bindings:         []string{account.BindingKubernetes}}
		gone := false
		o := &Options{Logger: slog.New(slog.DiscardHandler),
			Endpoints: &fakeEndpoints{byID: func(context.Context, string, string) (*account.Endpoint, error) {
				if gone {
					return nil, account.Errorf(account.CodeNotFound, "deleted")
				}
				return ep, nil
			}}}
		e := &Edge{router: &router{endpoints: newEndpointCache(o), poolMembers: newPoolMembers(
			&fakeEndpoints{pool: func(context.Context, *account.Endpoint) ([]account.Endpoint, error) {
				if gone {
					return nil, nil
				}
				return []account.Endpoint{*ep}, nil
			}})}}
		expect := func(code account.Code, members int) {
			t.Helper()
			if _, err := e.router.endpoints.latest(t.Context(), ep); account.CodeOf(err) != code {
				t.Errorf("%v, want code %q", err, code)
			}
			if all := e.router.poolMembers.ordered(t.Context(), ep); len(all) != members {
				t.Errorf("%d members, want %d", len(all), members)
			}
		}
		expect("", 1)
		gone = true
		e.ExpireAccount("other")
		expect("", 1)
		e.ExpireAccount("ac")
		expect(account.CodeEndpointUnknown, 0)
		(&Edge{router: &router{endpoints: e.router.endpoints, poolMembers: newPoolMembers(nil)}}).ExpireAccount("ac")
	})
}
