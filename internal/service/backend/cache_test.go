// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestResolver_CachesTrees requires that trees are read once a second, and at once after a
// notified change of the account.
func TestResolver_CachesTrees(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "a", "b"), static("a"), static("b"))
		for range 50 {
			w.expect(t, "f", "a")
		}
		if w.reads != 1 {
			t.Errorf("%d reads in half a second", w.reads)
		}
		w.put(failover("f", "b", "a"))
		w.expect(t, "f", "b")
		w.change(func() { w.all["f"] = failover("f", "a", "b") }) // without a notification
		w.expect(t, "f", "b")
		time.Sleep(time.Second)
		w.expect(t, "f", "a")
		var wg sync.WaitGroup
		w.notify()
		before := w.reads
		for range 100 {
			wg.Go(func() { w.expect(t, "f", "a") })
		}
		wg.Wait()
		if n := w.reads - before; n != 1 {
			t.Errorf("%d reads by 100 connections", n)
		}
	})
}

func TestResolver_UsesLastTreeDuringStoreOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "a"), static("a"))
		w.broken = errors.New("database is gone")
		if _, err := w.Attempts(t.Context(), acme, "f", Client{}); !errors.Is(err, w.broken) {
			t.Errorf("without a tree: %v", err)
		}
		w.change(func() { w.broken = nil })
		w.expect(t, "f", "a")
		w.change(func() { w.broken = errors.New("database is gone again") })
		for range 100 {
			time.Sleep(time.Minute)
			w.notify()
			w.expect(t, "f", "a") // as it was
		}
		w.change(func() { w.broken = nil; delete(w.all, "f") })
		w.notify()
		if _, err := w.Attempts(t.Context(), acme, "f", Client{}); account.CodeOf(err) != account.CodeNotFound {
			t.Errorf("a deleted backend: %v", err)
		}
	})
}

// TestResolver_StateFollowsConfiguration requires that the health of a child survives changes
// elsewhere in the tree and is reset by a change of the child.
func TestResolver_StateFollowsConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "a", "b", "c"), static("a"), static("b"), static("c"),
			failover("g", "f", "c"))
		w.kill("a", "b")
		w.expect(t, "g", "a b c")
		w.expect(t, "f", "c") // trees share what they know
		described := failover("f", "a", "b", "c")
		described.Description = "three sites"
		w.put(described)
		w.expect(t, "f", "c")
		w.put(failover("f", "b", "a", "c"))
		w.expect(t, "f", "c")
		moved := static("a")
		moved.Static = &account.StaticAddress{Address: "elsewhere.example.com:80"}
		w.revive("a")
		w.put(moved)
		w.expect(t, "f", "a")
		w.expect(t, "g", "a")
		w.put(failover("f", "b", "c"))
		w.expect(t, "f", "c")
		w.put(failover("f", "b", "a", "c")) // a is new in it
		w.expect(t, "f", "a")
		if a := w.accounts[acme]; len(a.groups["f"].health) != 3 || len(a.groups) != 2 {
			t.Errorf("%d groups, %d children of f", len(a.groups), len(a.groups["f"].health))
		}
	})
}

// TestResolver_EvictsIdleState creates ten thousand backends that are deleted or go unused: no
// state of them is kept.
func TestResolver_EvictsIdleState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, static("a"), static("b"), failover("stays", "a", "b"))
		w.kill("a")
		for i := range 10_000 {
			id := fmt.Sprintf("f%d", i)
			w.change(func() { w.all[id] = failover(id, "a", "b") })
			w.connectFor(t, id, 0)
			if i%2 == 0 {
				continue
			}
			w.change(func() { delete(w.all, id) })
			w.notify()
			if _, err := w.Attempts(t.Context(), acme, id, Client{}); account.CodeOf(err) != account.CodeNotFound {
				t.Fatal(err)
			}
			w.change(func() { delete(w.all, fmt.Sprintf("f%d", i-1)) })
		}
		if a := w.accounts[acme]; len(a.trees) != 5_000 || len(a.groups) != 5_000 {
			t.Errorf("%d trees, %d groups before the sweep", len(a.trees), len(a.groups))
		}
		time.Sleep(treeIdleTTL)
		w.connect(t, "stays")
		if a := w.accounts[acme]; len(a.trees) != 1 || len(a.groups) != 1 || len(a.groups["stays"].health) != 2 {
			t.Errorf("%d trees, %d groups are left", len(a.trees), len(a.groups))
		}
		time.Sleep(treeIdleTTL)
		if _, err := w.Attempts(t.Context(), "ac-other", "b", Client{}); err != nil {
			t.Fatal(err)
		}
		if len(w.accounts) != 1 || w.live != 1 {
			t.Errorf("%d accounts, %d subscriptions", len(w.accounts), w.live)
		}
		if got := w.known[len(w.known)-1]; got != "stays forgotten" {
			t.Errorf("the last change of an active child: %s", got)
		}
		w.Close()
		if len(w.accounts) != 0 || w.live != 0 {
			t.Errorf("after Close %d accounts, %d subscriptions", len(w.accounts), w.live)
		}
	})
}

// TestResolver_RefusesBrokenTrees requires that a tree with a cycle, which the store never
// returns, is an error rather than an endless loop.
func TestResolver_RefusesBrokenTrees(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "g"), failover("g", "f"), failover("h", "missing"))
		for _, id := range []string{"f", "h"} {
			if _, err := w.Attempts(t.Context(), acme, id, Client{}); account.CodeOf(err) != account.CodeInternal {
				t.Errorf("%s: %v", id, err)
			}
		}
		if len(w.accounts) != 0 {
			t.Errorf("%d accounts are kept", len(w.accounts))
		}
	})
}

func TestResolver_ExpireAccountReadsTreesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newResolverFixture(t, failover("f", "a", "b"), static("a"), static("b"))
		w.ExpireAccount(acme) // of which nothing is cached
		w.expect(t, "f", "a")
		w.change(func() { w.all["f"] = failover("f", "b", "a") }) // without a notification
		w.ExpireAccount("another")
		w.expect(t, "f", "a")
		w.ExpireAccount(acme)
		w.expect(t, "f", "b")
	})
}
