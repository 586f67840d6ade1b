// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/lease"
)

const leaseLength = 15 * time.Second

// bubbleLease returns a lease that is valid for leaseLength, in a bubble of synctest.
func bubbleLease() *lease.Lease {
	l := lease.NewWithClock(leaseLength, lease.MonotonicClock)
	renew(l)
	return l
}

func renew(l *lease.Lease) {
	l.Beaten(l.Now())
	l.Compared(l.Now())
}

func TestAbortable_PassesNothingWithoutLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &readerFromRecorder{}
		closed := 0
		w, r, _ := Abortable(inner, httptest.NewRequest("POST", "/", strings.NewReader("abcdef")),
			abortFunc(func() { closed++ }), bubbleLease())
		time.Sleep(leaseLength - 1)
		piece := make([]byte, 3)
		if _, err := w.Write(piece); err != nil {
			t.Errorf("writing before the lease's end: %v", err)
		}
		if _, err := r.Body.Read(piece); err != nil {
			t.Errorf("reading before the lease's end: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := r.Body.Read(piece); !errors.Is(err, ErrSessionEnded) || closed != 0 {
			t.Errorf("reading after the lease's end: %v; closed %d times", err, closed)
		}
		_, err := w.Write(piece)
		_, err2 := w.(io.ReaderFrom).ReadFrom(strings.NewReader("more"))
		if !errors.Is(err, ErrSessionEnded) || !errors.Is(err2, ErrSessionEnded) || inner.took != 0 {
			t.Errorf("writing after the lease's end: %v, %v", err, err2)
		}
		if closed != 1 || !errors.Is(context.Cause(r.Context()), ErrSessionEnded) {
			t.Errorf("closed %d times; %v", closed, context.Cause(r.Context()))
		}
	})
}

// recordAborts returns a function that registers a request of a session, and one that returns when
// those requests were aborted, as times since now.
func recordAborts(r *Registry) (serve func() *Entry, aborted func() []time.Duration) {
	var mu sync.Mutex
	var aborts []time.Duration
	began := time.Now()
	serve = func() *Entry {
		e := r.Register(abortFunc(func() {
			mu.Lock()
			defer mu.Unlock()
			aborts = append(aborts, time.Since(began))
		}))
		e.SetSession("s")
		return e
	}
	aborted = func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return aborts
	}
	return serve, aborted
}

func TestRegistry_RunAbortsIdleRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := bubbleLease()
		sleep := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		r := New(l)
		ctx, cancel := context.WithCancel(t.Context())
		var reports []string
		var running atomic.Bool
		running.Store(true)
		go func() {
			r.Run(ctx, func(n int, first bool) { reports = append(reports, fmt.Sprint(n, first)) })
			running.Store(false)
		}()
		serve, aborted := recordAborts(r)
		first, pending := serve(), r.Register(nil)
		sleep(leaseLength - 1)
		if len(aborted()) != 0 {
			t.Fatal("aborted before the lease's end")
		}
		sleep(time.Millisecond)
		if !slices.Equal(aborted(), []time.Duration{leaseLength}) {
			t.Errorf("aborted after %v", aborted())
		}
		first.Done()
		if !pending.SetSession("s") {
			t.Error("the lease's end counts as the session's")
		}
		serve().Done() // as one that noticed the end itself
		sleep(leaseInterval)
		pending.Done()
		renew(l)
		last := serve()
		sleep(leaseLength + leaseInterval)
		last.Done()
		if len(aborted()) != 2 {
			t.Errorf("%d requests were aborted", len(aborted()))
		}
		cancel()
		synctest.Wait()
		if running.Load() {
			t.Fatal("Run goes on")
		}
		if want := []string{"1 true", "2 false", "1 true"}; !slices.Equal(reports, want) {
			t.Errorf("reports %v, want %v", reports, want)
		}
		New(nil).Run(t.Context(), nil) // returns at once
	})
}

func TestEntry_MissedComparison(t *testing.T) {
	t.Parallel()
	r := New(lease.New(time.Hour))
	before := r.Register(nil)
	r.Sessions()
	after := r.Register(nil)
	before.SetSession("a")
	after.SetSession("b")
	r.Sessions()
	if !before.MissedComparison() || after.MissedComparison() {
		t.Errorf("missed: %t before, %t after", before.MissedComparison(), after.MissedComparison())
	}
	alone := New(nil)
	e := alone.Register(nil)
	alone.Sessions()
	e.SetSession("a")
	if e.MissedComparison() {
		t.Error("missed without a lease")
	}
}

func BenchmarkMayServe(b *testing.B) {
	held := lease.New(time.Hour)
	renew(held)
	for name, l := range map[string]*lease.Lease{"without lease": nil, "with lease": held} {
		g := &guard{lease: l}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !g.mayServe() {
					b.Fatal("refused")
				}
			}
		})
	}
}
