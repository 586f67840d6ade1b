// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// BenchmarkEndpointLookup_Cached measures a lookup whose answer is cached.
func BenchmarkEndpointLookup_Cached(b *testing.B) {
	l := newLookup(testEndpoints{find: func(context.Context, string, ...int) (*account.Endpoint, error) {
		return &account.Endpoint{Scheme: "https"}, nil
	}}, nil)
	b.ReportAllocs()
	for b.Loop() {
		if ep, err := l.find(b.Context(), "a.test", 443, "https"); ep == nil || err != nil {
			b.Fatal(ep, err)
		}
	}
}

// TestEndpointLookup_SurvivesStoreOutage checks that the last answer, or else what is held, is used
// for as long as the store gives none, and that an endpoint that is gone is not.
func TestEndpointLookup_SurvivesStoreOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var answer error
		bound := map[string]time.Time{"held.test": time.Now()}
		l := newLookup(testEndpoints{find: func(_ context.Context, host string, _ ...int) (*account.Endpoint, error) {
			if answer != nil {
				return nil, answer
			}
			return &account.Endpoint{Scheme: "http", Host: host,
				EndpointSettings: account.EndpointSettings{Name: "stored"}}, nil
		}, held: func(host string, _ int) (*account.Endpoint, time.Time) {
			since, ok := bound[host]
			if !ok {
				return nil, time.Time{}
			}
			return &account.Endpoint{Scheme: "http", Host: host,
				EndpointSettings: account.EndpointSettings{Name: "held"}}, since
		}}, map[string][]int{"http": {80}})
		expect := func(host, want string, code account.Code) {
			t.Helper()
			for _, port := range []int{80, 8080} { // the usual one, and one that is mapped to it
				ep, err := l.find(t.Context(), host, port, "http")
				if got := nameOf(ep); got != want || account.CodeOf(err) != code {
					t.Errorf("%s:%d: %q %v, want %q %s", host, port, got, err, want, code)
				}
			}
			if other, err := l.find(t.Context(), host, 80, "https"); other != nil || account.CodeOf(err) != code {
				t.Errorf("%s with another scheme: %v %v", host, other, err)
			}
		}
		expect("warm.test", "stored", "")
		answer = account.Errorf(account.CodeUnavailable, "no store")
		for range 5 {
			time.Sleep(time.Minute)
			expect("warm.test", "stored", "")
			expect("held.test", "held", "")
			expect("cold.test", "", account.CodeUnavailable)
		}
		answer = account.Errorf(account.CodeNotFound, "gone")
		time.Sleep(time.Second)
		expect("warm.test", "", "")
		expect("held.test", "", "")
		answer = account.Errorf(account.CodeUnavailable, "no store")
		time.Sleep(time.Second)
		expect("warm.test", "", account.CodeUnavailable)
		expect("held.test", "", "") // its grant was revoked before the outage
	})
}

func nameOf(ep *account.Endpoint) string {
	if ep == nil {
		return ""
	}
	return ep.Name
}

func TestEndpointLookup_ExpireAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := false
		l := newLookup(testEndpoints{find: func(_ context.Context, host string, _ ...int) (*account.Endpoint, error) {
			if gone {
				return nil, account.Errorf(account.CodeNotFound, "no endpoint")
			}
			return &account.Endpoint{Scheme: "http", Host: host, AccountID: "ac",
				EndpointSettings: account.EndpointSettings{Name: "stored"}}, nil
		}}, nil)
		expect := func(want string) {
			t.Helper()
			if ep, err := l.find(t.Context(), "a.test", 80, "http"); err != nil || nameOf(ep) != want {
				t.Errorf("%q %v, want %q", nameOf(ep), err, want)
			}
		}
		expect("stored")
		gone = true
		l.expire("other")
		expect("stored")
		l.expire("ac")
		expect("")
	})
}
