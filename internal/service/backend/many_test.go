// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFailover_ServesThousandConnections opens a thousand connections at once while the first
// child fails: none is lost, one at a time tries the child again, and one switch is reported.
func TestFailover_ServesThousandConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "a", "b"), static("a"), static("b"))
		all := func(connecting time.Duration) map[string]int {
			ways := map[string]int{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() {
					way := w.connectFor(t, "f", connecting)
					mu.Lock()
					defer mu.Unlock()
					ways[way]++
				})
			}
			wg.Wait()
			return ways
		}
		if ways := all(time.Millisecond); ways["a"] != 1000 {
			t.Errorf("while all are up: %v", ways)
		}
		w.kill("a")
		if ways := all(100 * time.Millisecond); ways["a b"] != 1000 { // all were on their way to a
			t.Errorf("while a dies: %v", ways)
		}
		if ways := all(time.Millisecond); ways["b"] != 1000 {
			t.Errorf("while a is down: %v", ways)
		}
		w.expectSwitches(t, "f: a>b")
		time.Sleep(time.Second)
		if ways := all(100 * time.Millisecond); ways["a b"] != 1 || ways["b"] != 999 {
			t.Errorf("at the first try: %v", ways)
		}
		w.revive("a")
		time.Sleep(2 * time.Second) // the failures of a thousand put the next try off no longer than that of one
		if ways := all(100 * time.Millisecond); ways["a"] != 1 || ways["b"] != 999 {
			t.Errorf("at the first success: %v", ways)
		}
		for range 10 {
			time.Sleep(time.Second)
			if ways := all(time.Millisecond); ways["a"] < 1 || ways["a"]+ways["b"] != 1000 {
				t.Errorf("while a recovers: %v", ways)
			}
		}
		if ways := all(time.Millisecond); ways["a"] != 1000 {
			t.Errorf("when a is back: %v", ways)
		}
		w.expectSwitches(t, "f: b>a")
	})
}

// TestResolver_ReportsActiveChangesInOrder takes children down and up under many connections:
// each reported switch begins where the previous one ended.
func TestResolver_ReportsActiveChangesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "t1", "t2", "a"), tunnels("t1"), tunnels("t2"), static("a"))
		w.onCallback = runtime.Gosched // the state may change while it is judged
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 200 {
					w.connectFor(t, "f", time.Millisecond)
				}
			})
		}
		for i := range 100 {
			w.change(func() { w.offline["t1"], w.offline["t2"] = i%2 == 0, i%3 == 0 })
			for j := range 10 { // while connections of the same instant are judged
				runtime.Gosched()
				w.change(func() { w.offline["t1"] = (i+j)%2 == 0 })
			}
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if len(w.switches) < 50 {
			t.Errorf("only %d switches", len(w.switches))
		}
		at := "t1"
		for i, s := range w.switches {
			var from, to string
			if _, err := fmt.Sscanf(s, "f: %2s>%s", &from, &to); err != nil {
				if _, err := fmt.Sscanf(s, "f: %1s>%s", &from, &to); err != nil {
					t.Fatal(err)
				}
			}
			if i > 0 && from != at || from == to {
				t.Fatalf("switch %d: %s after %s was active", i, s, at)
			}
			at = to
		}
		if got := w.Active(acme, "f"); got != at {
			t.Errorf("%s is active, told was %s", got, at)
		}
	})
}

func TestWeighted_DrawsByWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, weighted("w", map[string]int{"a": 1, "b": 3, "c": 0}), static("a"), static("b"),
			static("c"),
			weighted("none", map[string]int{"a": 0}), failover("f", "none", "w"))
		w.draw = func() func(int) int { // evenly, in turn
			i := 0
			return func(n int) int { i++; return i % n }
		}()
		share := func(n int) map[string]int {
			ways := map[string]int{}
			for range n {
				ways[w.connect(t, "w")]++
			}
			return ways
		}
		if got := share(400); got["a"] != 100 || got["b"] != 300 {
			t.Errorf("shares %v", got)
		}
		w.kill("b")
		if got := share(50); got["a"]+got["b a"] != 50 || got["b a"] != 1 {
			t.Errorf("shares while b is down: %v", got)
		}
		w.kill("a")
		w.expect(t, "w", "a!") // c has weight 0: never
		w.expect(t, "none", "!")
		w.revive("a")
		time.Sleep(time.Second)
		if got := w.connect(t, "f"); got != "a" && got != "b a" {
			t.Errorf("a connection took the way %q", got)
		}
		for range 12 {
			time.Sleep(time.Second)
			w.connect(t, "w")
		}
		w.revive("b")
		time.Sleep(30 * time.Second)
		for range 40 {
			time.Sleep(time.Second)
			w.connect(t, "w")
		}
		if got := share(400); got["a"] != 100 || got["b"] != 300 {
			t.Errorf("shares when all are back: %v", got)
		}
	})
}
