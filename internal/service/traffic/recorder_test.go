// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
)

// TestRecorder_CountsSteps records requests in two steps of an hour.
func TestRecorder_CountsSteps(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	for range 98 {
		r.record(request{took: 10 * time.Millisecond, in: 1, out: 10})
	}
	r.record(request{status: 502, code: account.CodeNoTarget, took: time.Second, backend: "bk-1"})
	r.record(request{status: 499, took: 100 * time.Millisecond})
	r.pass(1)
	r.record(request{status: 404})
	r.pass(2)
	s, c := r.Series(t.Context(), "ac-1", "ep-1", Hour)
	if !c.Since.Equal(epoch) || !c.Complete.Equal(epoch) || len(c.Missing) != 0 || c.Summed {
		t.Errorf("coverage %+v", c)
	}
	if want := epoch.Add(20*time.Second - time.Hour); !s.Start.Equal(want) || s.Step != 10*time.Second ||
		len(s.Points) != 360 {
		t.Fatalf("%d points of %s from %s, want 360 from %s", len(s.Points), s.Step, s.Start, want)
	}
	first, second := s.Points[358], s.Points[359]
	if first.Requests != 100 || first.Status != [6]uint64{0: 1, 2: 98, 5: 1} || first.Failed != 1 ||
		first.BytesIn != 98 || first.BytesOut != 980 {
		t.Errorf("the first step: %+v", first)
	}
	if p := first.P50; p < 8*time.Millisecond || p > 12500*time.Microsecond {
		t.Errorf("p50 %s", p)
	}
	if p := first.P99; p < 80*time.Millisecond || p > 125*time.Millisecond {
		t.Errorf("p99 %s", p)
	}
	if second.Requests != 1 || second.Status[4] != 1 {
		t.Errorf("the second step: %+v", second)
	}
	if n := r.requests("ac-1", OfAccount, Hour); n != 101 {
		t.Errorf("the account has %d requests", n)
	}
	if n := r.requests("ac-1", "bk-1", Hour); n != 1 {
		t.Errorf("the backend has %d requests", n)
	}
	rates, _ := r.Rates(t.Context(), "ac-1")
	if got := rates["ep-1"]; got != (Rate{101.0 / 60, 1.0 / 60}) || rates[OfAccount] != got ||
		rates["bk-1"].FailingPerSecond == 0 {
		t.Errorf("rates %v", rates)
	}
}

// TestRecorder_CountsConnections records a connection that is open for several steps.
func TestRecorder_CountsConnections(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	s := &edge.RequestRecord{Endpoint: &account.Endpoint{ID: "ep-1", AccountID: "ac-1"}, StartedAt: r.at}
	c := r.Endpoints.Start(s)
	for range 12 {
		c.Bytes.Add(1, 100)
		r.pass(1)
	}
	s.Duration = 2 * time.Minute
	r.Endpoints.Finish(c, s)
	r.pass(2)
	got, _ := r.Series(t.Context(), "ac-1", "ep-1", Hour)
	last := got.Points[len(got.Points)-1]
	if p := got.Points[len(got.Points)-2]; p.Open != 1 || p.BytesOut != 100 || p.Connections != 0 {
		t.Errorf("while it is open: %+v", p)
	}
	if last.Open != 0 || last.Connections != 1 || last.BytesOut != 0 || last.P50 < 2*time.Minute {
		t.Errorf("after its end: %+v", last)
	}
	if got, _ := r.Recent(t.Context(), "ac-1", "ep-1", false, 10); len(got) != 1 || got[0].Proto != "tcp" ||
		got[0].Status != 0 || got[0].Method != "" {
		t.Errorf("recent: %+v", got)
	}
}

// TestRecorder_KeepsADay lets more than a day pass.
func TestRecorder_KeepsADay(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	for range 25 * 360 {
		r.record(request{took: time.Millisecond})
		r.pass(1)
	}
	r.pass(1)
	if n := r.requests("ac-1", "ep-1", Day); n != 24*360 {
		t.Errorf("%d requests in a day", n)
	}
	if n := r.requests("ac-1", OfAccount, Hour); n != 360 && n != 359 {
		t.Errorf("%d requests in an hour", n)
	}
	s, _ := r.Series(t.Context(), "ac-1", "ep-1", Day)
	if len(s.Points) != 1440 || s.Step != time.Minute || s.Points[1439].Requests != 6 || s.Points[0].Requests != 6 {
		t.Errorf("%d points of %s: %+v", len(s.Points), s.Step, s.Points[1439])
	}
	if size := r.Endpoints.get("ac-1", "ep-1").history.size(); size > 64<<10 {
		t.Errorf("an endpoint that is always busy takes %d bytes", size)
	}
	r.pass(25 * 360)
	if got := r.Memory(); got > 2*ringSize+4*countersSize {
		t.Errorf("after a day without traffic, %d bytes are taken", got)
	}
}

// TestRecorder_IsolatesAccounts asks for what another account has.
func TestRecorder_IsolatesAccounts(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	r.record(request{account: "ac-1", endpoint: "ep-1", backend: "bk-1", status: 500, uri: "/secret"})
	r.LoginFailed("ac-1", LoginFailure{At: r.at, EndpointID: "ep-1", Reason: "why"})
	r.pass(2)
	for _, k := range []Key{OfAccount, OfOthers, "ep-1", "bk-1", "ep-unknown"} {
		if n := r.requests("ac-2", k, Hour); n != 0 {
			t.Errorf("another account sees %d requests of %q", n, k)
		}
	}
	if got, c := r.Recent(t.Context(), "ac-2", "ep-1", true, 10); len(got) != 0 || c.Summed {
		t.Errorf("another account sees requests %v, %+v", got, c)
	}
	if got, _ := r.Rates(t.Context(), "ac-2"); len(got) != 1 || got[OfAccount] != (Rate{}) {
		t.Errorf("another account sees the rates %v", got)
	}
	if got, _ := r.LoginFailures(t.Context(), "ac-2", 10); len(got) != 0 {
		t.Errorf("another account sees failed logins %v", got)
	}
}

// TestRecorder_ClockSetBack sets the clock back for a little and for long.
func TestRecorder_ClockSetBack(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	r.pass(3)
	r.at = r.at.Add(-20 * time.Second)
	r.record(request{})
	r.pass(4)
	if n := r.requests("ac-1", "ep-1", Hour); n != 1 {
		t.Errorf("%d requests after the clock was set back by 20 s", n)
	}
	r.at = r.at.Add(-2 * time.Hour)
	r.pass(1)
	r.record(request{})
	r.pass(2)
	if n := r.requests("ac-1", "ep-1", Day); n != 0 { // the minute is not over
		t.Errorf("%d requests of before the clock was set back", n)
	}
	if n := r.requests("ac-1", "ep-1", Hour); n != 1 {
		t.Errorf("%d requests after the clock was set back by 2 h", n)
	}
}

// TestRecorder_Run fills the series while it runs.
func TestRecorder_Run(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &testRecorder{TB: t, Recorder: New(Options{MaxOwn: 1})}
		go r.Run(t.Context())
		r.at = time.Now()
		r.record(request{})
		time.Sleep(12 * time.Second)
		synctest.Wait()
		if n := r.requests("ac-1", "ep-1", Hour); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestRecorder_BoundsMemory has more endpoints than fit, of two accounts.
func TestRecorder_BoundsMemory(t *testing.T) {
	t.Parallel()
	const endpoints, limit = 300, 3 << 20
	r := newRecorder(t, limit)
	for step := range 120 * 6 {
		for i := range endpoints {
			for range 1 + (endpoints-i)/100 { // the first ones are the busiest
				r.record(request{endpoint: fmt.Sprintf("ep-%d", i), took: time.Duration(i+step) * time.Millisecond,
					status: 200 + 100*(i%4), in: int64(step), out: int64(i * step)})
			}
		}
		r.record(request{account: "ac-2", endpoint: "ep-small"})
		r.pass(1)
		if got := r.Memory(); got > limit {
			t.Fatalf("%d bytes are taken in step %d, more than %d", got, step, limit)
		}
	}
	r.pass(1)
	var kept uint64
	summed := 0
	for i := range endpoints {
		s, c := r.Series(t.Context(), "ac-1", Key(fmt.Sprintf("ep-%d", i)), Hour)
		if c.Summed {
			summed++
			if i < 10 {
				t.Errorf("endpoint %d, one of the busiest, is summed", i)
			}
		}
		kept += total(s).Requests
	}
	if summed == 0 || summed == endpoints {
		t.Errorf("%d of %d endpoints are summed", summed, endpoints)
	}
	all, others := r.requests("ac-1", OfAccount, Hour), r.requests("ac-1", OfOthers, Hour)
	if others == 0 || kept+others > all {
		t.Errorf("%d requests of endpoints, %d of others, %d of the account", kept, others, all)
	}
	if _, c := r.Series(t.Context(), "ac-2", "ep-small", Hour); c.Summed {
		t.Error("the small account's only endpoint is summed: another account has pushed it out")
	}
}
