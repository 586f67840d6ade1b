// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestFailover_TriesChildrenInOrder requires that the first child that is up gets every
// connection.
func TestFailover_TriesChildrenInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "tg", "a", "b", "page"), tunnels("tg"), static("a"), static("b"),
			answer("page"))
		w.expect(t, "f", "tg")
		if got := w.Active(acme, "f"); got != "tg" {
			t.Errorf("active is %q", got)
		}
		w.change(func() { w.offline["tg"] = true })
		w.expect(t, "f", "a") // not tried: known to be offline
		w.kill("a")
		w.expect(t, "f", "a b")
		w.expect(t, "f", "b")
		w.kill("b")
		w.expect(t, "f", "b page")
		w.expectSwitches(t, "f: tg>a", "f: a>b", "f: b>page")
		w.change(func() { w.offline["tg"] = false })
		w.expect(t, "f", "tg") // at once
		w.expectSwitches(t, "f: page>tg")
	})
}

func TestAttempts_YieldsSingleLeaf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, static("a"), tunnels("tg"), answer("page"))
		w.kill("a", "tg")
		for range 3 { // nothing is remembered of a leaf that has no alternative
			w.expect(t, "a", "a!")
			w.expect(t, "tg", "tg!")
		}
		attempts, err := w.Attempts(t.Context(), acme, "page", Client{})
		must.Succeed(t, err)
		at, ok := attempts.Next(t.Context())
		if !ok || at.Response == nil || at.Response.Body != "page" || at.Static != nil || at.Labels != nil {
			t.Errorf("attempt %+v", at)
		}
		if _, err := w.Attempts(t.Context(), acme, "unknown", Client{}); account.CodeOf(err) != account.CodeNotFound {
			t.Errorf("an unknown backend: %v", err)
		}
	})
}

// TestFailover_RecoversGradually requires that a child that went down is tried with one
// connection after 1, 2, 4, 8, 16, 30 and 30 s, and is up again after three successes over ten
// seconds.
func TestFailover_RecoversGradually(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "a", "b"), static("a"), static("b"))
		w.expect(t, "f", "a")
		w.kill("a")
		w.expect(t, "f", "a b")
		for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			time.Sleep(pause*time.Second - 50*time.Millisecond)
			w.expect(t, "f", "b")
			time.Sleep(50 * time.Millisecond)
			w.expect(t, "f", "a b")
			w.expect(t, "f", "b")
		}
		w.revive("a")
		time.Sleep(30 * time.Second)
		w.expect(t, "f", "a")
		if got := w.Active(acme, "f"); got != "b" {
			t.Errorf("%q is active after one success of a", got)
		}
		w.expect(t, "f", "b")
		time.Sleep(5 * time.Second)
		w.expect(t, "f", "a")
		w.expect(t, "f", "b")
		time.Sleep(4 * time.Second)
		w.expect(t, "f", "a") // the third success, but not ten seconds
		w.expect(t, "f", "b")
		w.expectSwitches(t, "f: a>b")
		time.Sleep(2 * time.Second)
		w.expect(t, "f", "a")
		w.expectSwitches(t, "f: b>a")
		for range 5 {
			w.expect(t, "f", "a")
		}
		w.kill("a")
		w.expect(t, "f", "a b")
		time.Sleep(time.Second)
		w.expect(t, "f", "a b") // and the pause begins at one second again
	})
}

// TestFailover_KeepsFlappingChildDown requires that a child that answers only now and then gets
// no traffic and is tried ever less often.
func TestFailover_KeepsFlappingChildDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "a", "b"), static("a"), static("b"))
		w.expect(t, "f", "a")
		w.kill("a")
		for i := range 6_000 { // ten minutes, ten connections a second, up for three seconds of six
			if i%30 == 0 {
				w.change(func() { w.dead["a"] = !w.dead["a"] })
			}
			w.connect(t, "f")
			time.Sleep(90 * time.Millisecond)
		}
		w.expectSwitches(t, "f: a>b")
		if w.tried["a"] > 150 || w.tried["a"] < 20 {
			t.Errorf("a was tried %d times", w.tried["a"])
		}
	})
}

func TestFailover_TriesChildrenWhenAllAreDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "tg", "a", "b"), tunnels("tg"), static("a"), static("b"))
		w.offline["tg"] = true
		w.kill("a", "b")
		w.expect(t, "f", "a b!")
		w.expect(t, "f", "a!") // the first child not yet known to be unreachable
		w.expectSwitches(t, "f: a>b", "f: b>")
		if got := w.Active(acme, "f"); got != "" {
			t.Errorf("active is %q", got)
		}
		w.revive("b")
		time.Sleep(time.Second)
		w.expect(t, "f", "a b")
		w.expect(t, "f", "b") // it recovers, and there is no other: it gets everything
		w.expectSwitches(t, "f: >b")
		w.kill("tg")
		w.change(func() { w.all["tg2"] = tunnels("tg2"); w.offline["tg2"] = true })
		w.change(func() { w.all["g"] = failover("g", "tg", "tg2") })
		w.expect(t, "g", "tg!") // the caller's words say that it is offline
	})
}

// TestAttempts_EndAtTheirLimits requires at most eight attempts within ten seconds, and none
// after the client has left.
func TestAttempts_EndAtTheirLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, ids := statics(16)
		w := newResolverFixture(t, append(all, failover("f", ids...))...)
		w.kill(ids...)
		if got := w.connect(t, "f"); got != strings.Join(ids[:8], " ")+"!" {
			t.Errorf("the way %q", got)
		}
		slow := newResolverFixture(t, append(all, failover("f", ids...))...)
		slow.kill(ids...)
		if got := slow.connectFor(t, "f", 4*time.Second); got != "s00 s01 s02!" {
			t.Errorf("the way with slow failures %q", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		attempts, err := w.Attempts(ctx, acme, "f", Client{})
		must.Succeed(t, err)
		cancel()
		if _, ok := attempts.Next(ctx); ok {
			t.Error("an attempt for a client that is gone")
		}
	})
}

func TestFailover_TriesNestedGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "site1", "site2"), failover("site1", "a", "b"),
			failover("site2", "tg", "c"),
			static("a"), static("b"), tunnels("tg"), static("c"))
		w.expect(t, "f", "a")
		w.kill("a")
		w.expect(t, "f", "a b")
		w.expectSwitches(t, "site1: a>b") // f still has site1
		w.kill("b")
		w.expect(t, "f", "b tg")
		w.expect(t, "f", "tg")
		w.expectSwitches(t, "site1: b>", "f: site1>site2")
		w.offline["tg"] = true
		w.expect(t, "f", "c")
		w.expectSwitches(t, "site2: tg>c")
		w.revive("a")
		time.Sleep(time.Second)
		w.expect(t, "f", "a")
		w.expect(t, "f", "c")
		for range 12 {
			time.Sleep(time.Second)
			w.connect(t, "f")
		}
		w.expect(t, "f", "a")
		if f, site := w.Active(acme, "f"), w.Active(acme, "site1"); f != "site1" || site != "a" {
			t.Errorf("active: %q, and there %q", f, site)
		}
		w.expectSwitches(t, "site1: >a", "f: site2>site1")
	})
}

func TestFailover_CountsHTTPStatuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := failover("f", "site", "c")
		f.HealthStatus, f.HealthRule = []int{502, 503}, account.HealthRule{MinAnswers: 1, FailurePercent: 1} // of pods
		w := newResolverFixture(t, f, failover("site", "a", "b"), static("a"), static("b"), static("c"))
		ask := func(statuses map[string]int) string {
			return w.answered(t, "f", Client{OwnPod: true}, statuses)
		}
		if got := ask(map[string]int{"a": 500}); got != "a" { // not one that counts
			t.Errorf("the way with 500 was %q", got)
		}
		if got := ask(map[string]int{"a": 503}); got != "a c" { // it counts for site, whose own rules do not know it
			t.Errorf("the way with 503 was %q", got)
		}
		w.expectSwitches(t, "f: site>c")
		if got := ask(nil); got != "c" {
			t.Errorf("the way after it was %q", got)
		}
		if got := ask(map[string]int{"c": 502}); got != "c" { // no child left: the client gets the 502
			t.Errorf("the way with no child left was %q", got)
		}
		time.Sleep(time.Second)
		// a connection that stands is no success where the status counts as a failure
		for _, pause := range []time.Duration{2, 4, 8} {
			if got := ask(map[string]int{"a": 503}); !strings.HasPrefix(got, "a") {
				t.Errorf("the way of the next try was %q", got)
			}
			time.Sleep(pause*time.Second - 15*time.Millisecond)
			if got := ask(map[string]int{"a": 503, "c": 200}); got == "a" {
				t.Errorf("tried again before %d s", pause)
			}
		}
	})
}

// TestAttempt_IgnoresDepartedClients requires that a client that disconnects neither counts as a
// failure of the upstream nor keeps other clients from trying it for long.
func TestAttempt_IgnoresDepartedClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "a", "b"), static("a"), static("b"))
		next := func() *Attempt {
			attempts, err := w.Attempts(t.Context(), acme, "f", Client{})
			must.Succeed(t, err)
			at, ok := attempts.Next(t.Context())
			if !ok {
				t.Fatal("no attempt")
			}
			return at
		}
		next().Down(context.Canceled)
		w.expect(t, "f", "a")
		next().Down(errRefused)
		time.Sleep(time.Second)
		next().Down(context.Canceled) // the one that tries a
		w.expect(t, "f", "a")
		time.Sleep(time.Second)
		at := next() // and one that is never heard of again
		if at.BackendID != "a" {
			t.Fatalf("tried %s", at.BackendID)
		}
		w.expect(t, "f", "b")
		time.Sleep(maxDuration)
		w.expect(t, "f", "a")
		at.Down(errRefused)
		at.Up() // is not heard after Down
	})
}
