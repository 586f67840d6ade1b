// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func client(address string) Client { return Client{Addr: netip.MustParseAddr(address)} }

// clients returns n of different networks.
func clients(n int) []Client {
	all := make([]Client, n)
	for i := range all {
		all[i] = client(fmt.Sprintf("203.0.113.%d", i+1))
	}
	return all
}

// watchingStatus returns a failover of a and b that counts statuses of 500 as failures.
func watchingStatus(t *testing.T, rule account.HealthRule) *resolverFixture {
	f := failover("f", "a", "b")
	f.HealthStatus, f.HealthRule = []int{500}, rule
	return newResolverFixture(t, f, static("a"), static("b"))
}

var broken, well = map[string]int{"a": 500}, map[string]int{}

// TestHealthStatus_OneClientTakesNothingDown has one client request what fails: that client gets
// the next child's answer, and all others stay on the first child, however often it asks.
func TestHealthStatus_OneClientTakesNothingDown(t *testing.T) {
	t.Parallel()
	for name, attackers := range map[string][]Client{
		"an address":                 {client("198.51.100.1")},
		"a network of IPv6":          {client("2001:db8::1"), client("2001:db8::2"), client("2001:db8::3:0:0:1")},
		"few addresses among many":   clients(203)[200:203],
		"few addresses, each of two": clients(202)[200:202],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := watchingStatus(t, account.HealthRule{})
				for range 100 {
					for _, c := range clients(8) {
						if got := w.answered(t, "f", c, well); got != "a" {
							t.Fatalf("the way of a client was %q", got)
						}
					}
					for range 10 {
						for _, c := range attackers {
							if got := w.answered(t, "f", c, broken); got != "a b" {
								t.Fatalf("the way of an attacker was %q", got)
							}
						}
					}
				}
				w.expectSwitches(t)
			})
		})
	}
}

// TestHealthStatus_LonelyClientTakesNothingDown requires that one client does not take a child
// down, not even when it is the only client.
func TestHealthStatus_LonelyClientTakesNothingDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watchingStatus(t, account.HealthRule{})
		for range 1000 {
			if got := w.answered(t, "f", client("198.51.100.1"), broken); got != "a b" {
				t.Fatalf("the way was %q", got)
			}
		}
		w.expectSwitches(t)
	})
}

func TestHealthStatus_TakesBrokenChildDown(t *testing.T) {
	t.Parallel()
	long := account.HealthRule{WindowSeconds: 60}
	for name, c := range map[string]struct {
		rule  account.HealthRule
		by    []Client
		after int // requests
		pause time.Duration
	}{
		"clients":                   {by: clients(3), after: 5},
		"a pod":                     {by: []Client{{OwnPod: true}}, after: 5},
		"the first bad answer":      {by: clients(1), rule: account.HealthRule{MinAnswers: 1, MinClients: 1}, after: 1},
		"over the halves":           {by: clients(3), after: 5, pause: 1500 * time.Millisecond},
		"a longer window":           {by: clients(3), rule: long, after: 5, pause: 6 * time.Second},
		"more answers than default": {by: clients(3), rule: account.HealthRule{MinAnswers: 20}, after: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := watchingStatus(t, c.rule)
				for i := range c.after {
					if got := w.answered(t, "f", c.by[i%len(c.by)], broken); got != "a b" {
						t.Fatalf("request %d: %q", i, got)
					}
					time.Sleep(c.pause)
				}
				if got := w.answered(t, "f", c.by[0], well); got != "b" && c.pause < time.Second {
					t.Errorf("after %d bad answers: %q", c.after, got)
				}
				w.expectSwitches(t, "f: a>b")
			})
		})
	}
}

// TestHealthStatus_ForgetsOldAnswers requires that answers older than the window do not count.
func TestHealthStatus_ForgetsOldAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watchingStatus(t, account.HealthRule{})
		for i := range 30 {
			w.answered(t, "f", clients(3)[i%3], broken)
			time.Sleep(3 * time.Second)
		}
		w.expectSwitches(t)
	})
}

// TestHealthStatus_OneClientDoesNotKeepChildDown requires that a client whose try of a child
// that is down fails leaves the next tries to other clients.
func TestHealthStatus_OneClientDoesNotKeepChildDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watchingStatus(t, account.HealthRule{})
		all := clients(5)
		for _, c := range all {
			w.answered(t, "f", c, broken)
		}
		w.expectSwitches(t, "f: a>b")
		for range 60 { // the attacker is always there first
			time.Sleep(250 * time.Millisecond)
			w.answered(t, "f", client("198.51.100.1"), broken)
			w.answered(t, "f", all[0], well)
		}
		w.expectSwitches(t, "f: b>a")
		if got := w.answered(t, "f", all[0], well); got != "a" {
			t.Errorf("when a is back: %q", got)
		}
	})
}

// TestHealthStatus_LeavesTheGroupAbove requires that a failure in one child of a group is no
// failure of the group.
func TestHealthStatus_LeavesTheGroupAbove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		site := failover("site", "a", "tg")
		site.HealthStatus = []int{500}
		w := newResolverFixture(t, failover("f", "site", "c"), site, static("a"), tunnels("tg"), static("c"))
		for range 20 {
			if got := w.answered(t, "f", client("198.51.100.1"), map[string]int{"a": 500, "tg": 500}); got != "a tg c" {
				t.Fatalf("the way was %q", got)
			}
		}
		w.expect(t, "f", "a")
		w.expectSwitches(t)
	})
}
