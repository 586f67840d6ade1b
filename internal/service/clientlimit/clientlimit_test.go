// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clientlimit

import (
	"net/netip"
	"testing"
	"time"
)

func TestKey_IsAddressOrNetwork(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.1":                   "192.0.2.1/32",
		"::ffff:192.0.2.1":            "192.0.2.1/32",
		"2001:db8::1":                 "2001:db8::/64",
		"2001:db8:0:1:ffff::2":        "2001:db8:0:1::/64",
		"fe80::1%eth0":                "fe80::/64",
		"2001:db8:0:0:ffff:1:2:3%en1": "2001:db8::/64",
	} {
		if got := Key(netip.MustParseAddr(addr)); got != netip.MustParsePrefix(want) {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if got := Key(netip.Addr{}); got != (netip.Prefix{}) {
		t.Errorf("the invalid address: %s", got)
	}
}

func TestConns_LimitsPerClient(t *testing.T) {
	t.Parallel()
	c := NewConns(2)
	one, other := Key(netip.MustParseAddr("192.0.2.1")), Key(netip.MustParseAddr("192.0.2.2"))
	acquire := func(client netip.Prefix, wantOK, wantFirst bool) {
		t.Helper()
		if ok, first := c.Acquire(client); ok != wantOK || first != wantFirst {
			t.Errorf("acquired %v, first refusal %v; want %v, %v", ok, first, wantOK, wantFirst)
		}
	}
	acquire(one, true, false)
	acquire(one, true, false)
	acquire(one, false, true)
	acquire(one, false, false)
	acquire(other, true, false)
	c.Release(one)
	acquire(one, true, false)
	acquire(one, false, false) // there were connections all the time
	c.Release(one)
	c.Release(one)
	acquire(one, true, false)
	acquire(one, true, false)
	acquire(one, false, true)
	c.Release(one)
	c.Release(one)
	c.Release(other)
	if len(c.clients) > 0 {
		t.Errorf("clients without connections are kept: %v", c.clients)
	}
}

func TestRate_LimitsPerClient(t *testing.T) {
	t.Parallel()
	r, now := NewRate(0.5, 2), time.Unix(1, 0)
	one := netip.MustParseAddr("192.0.2.1")
	for i, want := range []bool{true, true, false} {
		if got := r.Wait(one, now) == 0; got != want {
			t.Errorf("step %d: no wait %v, want %v", i, got, want)
		}
		if got := r.Allow(one, now); got != want {
			t.Errorf("step %d: allowed %v, want %v", i, got, want)
		}
	}
	if got := r.Wait(one, now); got != 2*time.Second {
		t.Errorf("the wait is %s, want 2s", got)
	}
	if !r.Allow(netip.MustParseAddr("192.0.2.2"), now) {
		t.Error("another client is refused")
	}
	if !r.Allow(one, now.Add(2*time.Second)) {
		t.Error("refused after the wait")
	}
}

func TestRate_BoundsItsMemory(t *testing.T) {
	t.Parallel()
	r, now := NewRate(1, 1), time.Unix(1, 0)
	for i := range 3 * maxKeys {
		r.Allow(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now)
	}
	if n := len(r.buckets.recent) + len(r.buckets.past); n > 2*maxKeys {
		t.Errorf("%d clients are remembered", n)
	}
	if !r.Allow(netip.AddrFrom4([4]byte{10}), now) {
		t.Error("a client that was forgotten is refused")
	}
}
