// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// benchRecord returns a request as the edge passes it on.
func benchRecord() *edge.RequestRecord {
	return &edge.RequestRecord{
		Endpoint: &account.Endpoint{ID: "ep-1", AccountID: "ac-1"}, StartedAt: time.Now(), Status: 200,
		Client: &edge.ClientInfo{ClientIP: netip.MustParseAddr("2001:db8::1"),
			StatedPod: &tunnel.PodIdentity{Namespace: "prod", Name: "web-5f7c9b7d4-x8x2p"}},
		Request: &http.Request{Method: "GET", RequestURI: "/api/v1/things?token=abc", ProtoMajor: 1, ProtoMinor: 1},
	}
}

// TestTable_AllocatesNothing counts the allocations of a request.
func TestTable_AllocatesNothing(t *testing.T) {
	r := New(Options{MaxOwn: 10})
	s := benchRecord()
	s.Status = 503
	r.Endpoints.Finish(r.Endpoints.Start(s), s) // creates the rings
	if n := testing.AllocsPerRun(100, func() {
		c := r.Endpoints.Start(s)
		c.Bytes.Add(1, 1)
		r.Endpoints.Finish(c, s)
		r.Backends.CountFinished("bk-1", s)
	}); n != 0 {
		t.Errorf("%v allocations for a request", n)
	}
}

func BenchmarkTable(b *testing.B) {
	r := New(Options{MaxOwn: 10})
	s := benchRecord()
	b.ReportAllocs()
	for b.Loop() {
		r.Endpoints.Finish(r.Endpoints.Start(s), s)
	}
}

func BenchmarkTable_Parallel(b *testing.B) {
	r := New(Options{MaxOwn: 10})
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		s := benchRecord()
		for p.Next() {
			r.Endpoints.Finish(r.Endpoints.Start(s), s)
		}
	})
}

func BenchmarkRecorder_AddStep(b *testing.B) {
	r := newRecorder(b, 0)
	for i := range 1000 {
		r.record(request{endpoint: fmt.Sprintf("ep-%d", i)})
	}
	for b.Loop() {
		r.pass(1)
	}
}

// TestTable_CountsConcurrently counts while counters are created, read and dropped.
func TestTable_CountsConcurrently(t *testing.T) {
	t.Parallel()
	r := New(Options{MaxOwn: 5})
	var all sync.WaitGroup
	const requests = 2000
	for worker := range 4 {
		all.Go(func() {
			for i := range requests {
				s := benchRecord()
				s.Endpoint = &account.Endpoint{ID: fmt.Sprintf("ep-%d", (worker+i)%20), AccountID: "ac-1"}
				if i%3 == 0 {
					s.Status, s.Code = 502, account.CodeNoTarget
				}
				r.Endpoints.Finish(r.Endpoints.Start(s), s)
			}
		})
	}
	all.Go(func() {
		for i := range 200 {
			r.addStep(time.Now().Add(time.Duration(i) * shortStep))
			r.Recent(t.Context(), "ac-1", "ep-3", i%2 == 0, 100)
			r.Endpoints.Each(func(string, *Totals) {})
		}
	})
	all.Wait()
	var sum Totals
	r.Endpoints.Each(func(_ string, of *Totals) { sum.add(of, 1) })
	if n := sum.Requests[2] + sum.Requests[5]; n != 4*requests || sum.Open != 0 {
		t.Errorf("%d requests were counted of %d; %d are open", n, 4*requests, sum.Open)
	}
}

// TestTable_OthersNeverFall drops and promotes objects: what is counted of all of them together, and
// of those that have metrics of their own, never becomes less.
func TestTable_OthersNeverFall(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	r.Endpoints.maxOwn = 2
	var others, seen int64
	check := func() {
		t.Helper()
		var sum Totals
		r.Endpoints.Each(func(id string, of *Totals) {
			if sum.add(of, 1); id == "" {
				if of.Requests[2] < others {
					t.Errorf("the others have fallen from %d to %d", others, of.Requests[2])
				}
				others = of.Requests[2]
			}
			if of.Requests[2] < 0 || of.Open < 0 {
				t.Errorf("%q has %+v", id, of)
			}
		})
		seen = max(seen, sum.Requests[2])
	}
	for i := range 6 {
		for range i + 1 {
			r.record(request{endpoint: fmt.Sprintf("ep-%d", i)})
			check()
		}
	}
	for i := range 6 {
		gone := fmt.Sprintf("ep-%d", i)
		r.Endpoints.DropDeleted(t.Context(), r.at.Add(time.Minute),
			func(_ context.Context, _, id string) bool { return id != gone })
		check()
	}
	if seen != 21 || r.Endpoints.size() != 0 || r.rings.used.Load() != 0 {
		t.Errorf("%d requests were seen; %d endpoints and %d bytes of rings are left", seen, r.Endpoints.size(),
			r.rings.used.Load())
	}
}

// TestTable_SharesCountersBeyondItsRows has more endpoints than rows, of two accounts.
func TestTable_SharesCountersBeyondItsRows(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	r.Endpoints.maxRows = 3
	for i := range 10 {
		r.record(request{account: "ac-1", endpoint: fmt.Sprintf("ep-%d", i)})
	}
	r.record(request{account: "ac-2", endpoint: "ep-b"})
	r.pass(2)
	for _, k := range []struct {
		account string
		key     Key
		want    uint64
	}{
		{"ac-1", OfAccount, 10}, {"ac-1", OfOthers, 7}, {"ac-1", "ep-1", 1},
		{"ac-2", OfAccount, 1}, {"ac-2", OfOthers, 1},
	} {
		if n := r.requests(k.account, k.key, Hour); n != k.want {
			t.Errorf("%s %q: %d requests, want %d", k.account, k.key, n, k.want)
		}
	}
}

// TestTable_DroppedEndpointsCountForTheAccount drops an endpoint before the step of its last request
// is over.
func TestTable_DroppedEndpointsCountForTheAccount(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	r.record(request{})
	r.Endpoints.DropDeleted(t.Context(), r.at.Add(time.Second),
		func(context.Context, string, string) bool { return false })
	r.pass(2)
	if n := r.requests("ac-1", OfAccount, Hour); n != 1 {
		t.Errorf("the account has %d requests", n)
	}
	if n := r.requests("ac-1", "ep-1", Hour); n != 0 {
		t.Errorf("an endpoint that is gone has %d requests", n)
	}
}
