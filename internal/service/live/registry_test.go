// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRegistry_AbortsRequestsOfItsSessionsOnly(t *testing.T) {
	t.Parallel()
	r := New(nil)
	var cut [4]atomic.Int32
	enter := func(i int, session string) *Entry {
		e := r.Register(abortFunc(func() { cut[i].Add(1) }))
		if !e.SetSession(session) {
			t.Errorf("session %s is not cut, and says so", session)
		}
		return e
	}
	entries := []*Entry{enter(0, "a"), enter(1, "a"), enter(2, "b"), enter(3, "c")}
	if sessions, requests := r.Counts(); sessions != 3 || requests != 4 {
		t.Errorf("%d sessions with %d requests", sessions, requests)
	}
	entries[1].Done()
	if n := r.Abort([]string{"a", "c", "unknown"}); n != 2 {
		t.Errorf("%d requests were cut, 2 are there", n)
	}
	if n := r.Abort([]string{"a"}); n != 0 {
		t.Errorf("%d requests were cut for the second time", n)
	}
	for i, want := range []int32{1, 0, 0, 1} {
		if got := cut[i].Load(); got != want {
			t.Errorf("request %d was cut %d times, want %d", i, got, want)
		}
	}
	ids := r.Sessions()
	if slices.Sort(ids); !slices.Equal(ids, []string{"a", "b", "c"}) {
		t.Errorf("sessions %v", ids)
	}
	for _, e := range entries {
		e.Done()
		e.Done()
	}
	if sessions, requests := r.Counts(); sessions != 0 || requests != 0 || len(r.sessions) != 0 {
		t.Errorf("%d sessions with %d requests are left", sessions, requests)
	}
}

func TestEntry_SetSessionFailsAfterAbort(t *testing.T) {
	t.Parallel()
	r := New(nil)
	before, other := r.Register(nil), r.Register(nil)
	r.Abort([]string{"s"})
	r.Abort([]string{"s", "t"})
	after := r.Register(nil)
	if len(r.abortedAt) != 2 {
		t.Errorf("%d cuts are remembered, want 2", len(r.abortedAt))
	}
	if before.SetSession("s") {
		t.Error("a request goes on that entered before its session was cut")
	}
	if !other.SetSession("u") {
		t.Error("a request of another session does not go on")
	}
	if !after.SetSession("s") { // the store has said that it lives
		t.Error("a request does not go on that entered after the cut")
	}
	for _, e := range []*Entry{before, other, after} {
		e.Done()
	}
	if len(r.abortedAt) != 0 || len(r.aborts) != 0 || r.pending.Len() != 0 {
		t.Errorf("left over: %d ids, %d aborts, %d entries", len(r.abortedAt), len(r.aborts), r.pending.Len())
	}
}

func TestRegistry_RemovesOldAbortRecords(t *testing.T) {
	t.Parallel()
	r := New(nil)
	first := r.Register(nil)
	r.Abort([]string{"a"})
	second := r.Register(nil)
	r.Abort([]string{"b", "a"})
	first.Done() // only the second abort is still needed
	if len(r.aborts) != 2 || r.abortedAt["a"] != 2 || r.abortedAt["b"] != 2 {
		t.Errorf("cuts %v, %v", r.aborts, r.abortedAt)
	}
	if second.SetSession("a") {
		t.Error("the second cut was forgotten with the first")
	}
	second.Done()
	r.Abort([]string{"c"})
	if len(r.aborts) != 0 || len(r.abortedAt) != 0 {
		t.Errorf("left over without a pending request: %v", r.abortedAt)
	}
}

func TestEntry_DoneWaitsForAbort(t *testing.T) {
	t.Parallel()
	r := New(nil)
	cutting, goOn := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	e := r.Register(abortFunc(func() { close(cutting); <-goOn; ended.Store(true) }))
	e.SetSession("s")
	var cut sync.WaitGroup
	cut.Go(func() { r.Abort([]string{"s"}) })
	<-cutting
	left := make(chan bool)
	go func() { e.Done(); left <- ended.Load() }()
	close(goOn)
	if !<-left {
		t.Error("Leave returned while the request was being cut")
	}
	cut.Wait()
}

// TestRegistry_NoRequestPassesAnAbort checks the invariant: a request that continues after its
// session's end is aborted, and one that registers after it is refused by SetSession.
func TestRegistry_NoRequestPassesAnAbort(t *testing.T) {
	t.Parallel()
	r := New(nil)
	for round := range 50 {
		id := fmt.Sprint("s", round)
		var alive atomic.Bool // the store
		alive.Store(true)
		var serving atomic.Int32
		var requests sync.WaitGroup
		for range 8 {
			requests.Go(func() {
				done := make(chan struct{})
				e := r.Register(abortFunc(func() { close(done) }))
				defer e.Done()
				if !alive.Load() || !e.SetSession(id) {
					return
				}
				serving.Add(1)
				<-done // only a cut ends it
				serving.Add(-1)
			})
		}
		alive.Store(false)
		r.Abort([]string{id})
		requests.Wait() // for ever, when one has passed
		if n := serving.Load(); n != 0 {
			t.Fatalf("%d requests are served", n)
		}
	}
	if len(r.abortedAt) != 0 || r.pending.Len() != 0 {
		t.Errorf("left behind: %d ids, %d entries", len(r.abortedAt), r.pending.Len())
	}
}
