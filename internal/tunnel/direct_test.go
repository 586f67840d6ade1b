// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// addressOf returns the address that announce gives to the replica with this number, from 1 on.
func addressOf(i int) string { return fmt.Sprintf("192.0.2.%d:443", i) }

// announce makes the live replicas announce an address for each, at which it answers.
func (r *fakeReplicas) announce() {
	r.mu.Lock()
	r.addresses, r.direct = nil, make(map[string]*fakeReplica)
	for i, p := range r.live {
		r.addresses = append(r.addresses, ReplicaAddress{p.id, addressOf(i + 1)})
		r.direct[addressOf(i+1)] = p
	}
	n := r.number
	r.mu.Unlock()
	r.setNumber(n)
}

// dialedDirectly returns the announced addresses that were dialed since the last call.
func (r *fakeReplicas) dialedDirectly() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.directDials
	r.directDials = nil
	slices.Sort(all)
	return all
}

// TestDirect_PinnedClientReachesAllReplicas checks that a client whose balancer always leads to the
// same replica has legs on all three by their addresses, and keeps its session when that one dies.
func TestDirect_PinnedClientReachesAllReplicas(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{RoleAgent, RoleForwarder} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newFakeReplicas(t, 3, pinned)
				r.announce()
				c := r.startClient(ClientConfig{Hello: func() Hello { return Hello{Role: role, Token: "flt_x"} }})
				s := c.awaitSession(t)
				awaitLegs(t, s, r.ids()...)
				if n, direct := r.dialed(), r.dialedDirectly(); n != 1 || len(direct) != 2 {
					t.Errorf("%d dials by the name, direct ones %q", n, direct)
				}
				time.Sleep(time.Hour)
				if n, direct := r.dialed(), r.dialedDirectly(); n != 0 || len(direct) != 0 {
					t.Errorf("%d dials, direct ones %q although every leg is there", n, direct)
				}
				delete(r.direct, addressOf(1))
				r.kill(r.live[0])
				awaitLegs(t, s, "rp_2", "rp_3")
				if role == RoleForwarder {
					echoBytes(t, s, 1<<10)
				}
				if s != c.Session() || len(c.downs) != 0 {
					t.Error("the session did not survive")
				}
			})
		})
	}
}

// TestDirect_AnnouncedLater checks that a session that lacks legs dials addresses as soon as it
// hears of them, without waiting for its next search.
func TestDirect_AnnouncedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReplicas(t, 3, pinned)
		s := r.startClient(ClientConfig{}).awaitSession(t)
		time.Sleep(legSearchPause / 2)
		awaitLegs(t, s, "rp_1")
		r.announce()
		awaitLegs(t, s, r.ids()...)
	})
}

// TestDirect_AddressOfAnotherReplica checks an address that leads to another replica than the
// announced one: the connection counts, and the address is left alone.
func TestDirect_AddressOfAnotherReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReplicas(t, 3, pinned)
		r.announce()
		r.addresses = r.addresses[:2]
		r.direct[addressOf(2)] = r.live[2]
		r.setNumber(3)
		s := r.startClient(ClientConfig{}).awaitSession(t)
		awaitLegs(t, s, "rp_1", "rp_3")
		time.Sleep(failedAddressPause - time.Second)
		if d := cmp.Diff([]string{addressOf(2)}, r.dialedDirectly()); d != "" {
			t.Error(d)
		}
		time.Sleep(legSearchPause + 30*time.Second)
		if d := cmp.Diff([]string{addressOf(2)}, r.dialedDirectly()); d != "" {
			t.Errorf("after the pause: %s", d)
		}
		awaitLegs(t, s, "rp_1", "rp_3")
	})
}

// TestDirect_FailedAddressIsLeftAlone checks that an address that fails is dialled once in 10
// minutes, one whose server refuses once a minute, and that the search by the name goes on as
// without addresses.
func TestDirect_FailedAddressIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail  func(r *fakeReplicas)
		pause time.Duration
	}{
		"nothing listens": {func(r *fakeReplicas) { delete(r.direct, addressOf(2)) }, failedAddressPause},
		"nothing answers": {func(r *fakeReplicas) { r.direct[addressOf(2)] = nil }, failedAddressPause},
		"refused":         {func(r *fakeReplicas) { r.live[1].draining.Store(true) }, refusedAddressPause},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newFakeReplicas(t, 2, pinned)
				r.announce()
				c.fail(r)
				s := r.startClient(ClientConfig{}).awaitSession(t)
				time.Sleep(c.pause - time.Second)
				if direct := r.dialedDirectly(); len(direct) != 1 {
					t.Errorf("direct dials %q", direct)
				}
				if n, least := r.dialed(), 1+4*2*int(c.pause/(2*legSearchPause)); n < least {
					t.Errorf("%d dials by the name, want at least %d", n, least)
				}
				time.Sleep(2 * legSearchPause)
				if direct := r.dialedDirectly(); len(direct) == 0 {
					t.Error("the address was not dialled again")
				}
				awaitLegs(t, s, "rp_1")
			})
		})
	}
}

// TestDirect_HangingAddressesDelayLittle checks that addresses at which nothing answers delay the
// search by the name by a second.
func TestDirect_HangingAddressesDelayLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReplicas(t, 3, roundRobin())
		r.announce()
		for address := range r.direct {
			r.direct[address] = nil
		}
		s := r.startClient(ClientConfig{}).awaitSession(t)
		time.Sleep(directHeadStart + time.Millisecond)
		awaitLegs(t, s, r.ids()...)
		if direct := r.dialedDirectly(); len(direct) != 1 {
			t.Errorf("direct dials %q", direct)
		}
	})
}

// TestServer_AnnouncesAddressesByRole checks who is told which addresses, in the welcome and later.
func TestServer_AnnouncesAddressesByRole(t *testing.T) {
	t.Parallel()
	public := []ReplicaAddress{{"rp_1", "one.example.com:443"}, {"rp_2", "192.0.2.2:443"},
		{"rp_3", "[2001:db8::3]:443"}, {"rp_4", "127.0.0.1:443"}}
	private := []ReplicaAddress{{"rp_5", "10.0.0.5:443"}, {"rp_6", "172.16.0.6:443"}, {"rp_7", "192.168.0.7:443"},
		{"rp_8", "100.64.0.8:443"}, {"rp_9", "[fd00::9]:443"}, {"rp_10", "[::ffff:10.0.0.10]:443"}}
	all := slices.Concat(private, public)
	for role, want := range map[Role][]ReplicaAddress{RoleAgent: public, RoleForwarder: all} {
		synctest.Test(t, func(t *testing.T) {
			h := newTestServer(t, overPipe, newHandler())
			hello := Hello{Role: role, Features: []Feature{FeatureReplicas, FeatureReplicaAddresses}}
			early, welcome, err := h.dialRaw(t, hello)
			if err != nil || len(welcome.ReplicaAddresses) != 0 {
				t.Fatalf("welcome %+v, %v", welcome, err)
			}
			h.server.SetReplicas(10, all...)
			synctest.Wait()
			b, err := early.ctrl.receive(messageLimit)
			if err != nil {
				t.Fatal(err)
			}
			m, err := parseMessage(b)
			if err != nil || m.Replicas != 10 {
				t.Fatalf("told %+v, %v", m, err)
			}
			if d := cmp.Diff(want, m.ReplicaAddresses); d != "" {
				t.Errorf("the %s was told: %s", role, d)
			}
			h.server.SetReplicas(10, all...)
			synctest.Wait()
			if got := drainControl(early); len(got) != 0 {
				t.Errorf("told %q although nothing changed", got)
			}
			_, welcome, err = h.dialRaw(t, hello)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, welcome.ReplicaAddresses); d != "" {
				t.Errorf("the %s's welcome: %s", role, d)
			}
		})
	}
}

// TestReplicaAddress_Bounds checks the limits of an announcement, on either side.
func TestReplicaAddress_Bounds(t *testing.T) {
	t.Parallel()
	good := ReplicaAddress{strings.Repeat("i", maxReplicaID), strings.Repeat("a", maxAddress)}
	bad := []ReplicaAddress{{"", "a:1"}, {"rp_1", ""}, {good.ID + "i", "a:1"}, {"rp_1", good.Address + "a"}}
	if d := cmp.Diff([]ReplicaAddress{good}, boundedAddresses(append(bad, good))); d != "" {
		t.Error(d)
	}
	many := slices.Repeat([]ReplicaAddress{good}, 1000)
	for _, role := range []Role{RoleAgent, RoleForwarder} {
		if n := len(announcedTo(role, many)); n != maxReplicaAddresses {
			t.Errorf("%d addresses are announced", n)
		}
	}
	if n := len(boundedAddresses(many)); n != maxReplicaAddresses {
		t.Errorf("a client takes %d addresses", n)
	}
}

// TestClient_RefusesReplicaAddresses checks which announced addresses a client does not dial.
func TestClient_RefusesReplicaAddresses(t *testing.T) {
	t.Parallel()
	names := map[string][]netip.Addr{
		"public.test":  {netip.MustParseAddr("192.0.2.1")},
		"private.test": {netip.MustParseAddr("10.0.0.1")},
		"local.test":   {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
		"mixed.test":   {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("169.254.169.254")},
	}
	for address, want := range map[string]string{
		"192.0.2.1:443": "", "10.0.0.1:443": "", "[2001:db8::1]:443": "", "public.test:443": "", "private.test:443": "",
		"unknown.test:443": "", // a proxy may know it
		"127.0.0.1:443":    "loopback", "127.255.0.1:443": "loopback", "[::1]:443": "loopback",
		"[::ffff:127.0.0.1]:443": "loopback", "local.test:443": "loopback",
		"169.254.169.254:80": "link-local", "[fe80::1]:443": "link-local", "[fe80::1%eth0]:443": "link-local",
		"mixed.test:443": "link-local", "224.0.0.1:443": "multicast", "[ff02::1]:443": "multicast",
		"[ff0e::1]:443": "multicast", "0.0.0.0:443": "unspecified", "[::]:443": "unspecified",
		"255.255.255.255:443": "broadcast", "[2001:db8::1%eth0]:443": "zone", "192.0.2.1": "HOST:PORT",
	} {
		for service, isLocal := range map[string]bool{"public.test:443": false, "unknown.test:443": false,
			"127.0.0.5:8443": true, "[::1]:443": true, "local.test:443": true} {
			c := NewClient(ClientConfig{Address: service})
			c.addresses.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
				if ips := names[host]; ips != nil {
					return ips, nil
				}
				return nil, errors.New("no such host")
			}
			want := want
			if want == "loopback" && isLocal {
				want = ""
			}
			err := c.addresses.check(t.Context(), address)
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s of a service at %s: %v, want %q", address, service, err, want)
			}
		}
	}
}

// TestDirect_RefusedAddressIsNotDialled checks that no connection is made to a refused address.
func TestDirect_RefusedAddressIsNotDialled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReplicas(t, 2, pinned)
		r.addresses = []ReplicaAddress{{"rp_2", "169.254.169.254:80"}}
		r.setNumber(2)
		s := r.startClient(ClientConfig{}).awaitSession(t)
		time.Sleep(time.Hour)
		awaitLegs(t, s, "rp_1")
		if direct := r.dialedDirectly(); len(direct) != 0 {
			t.Errorf("direct dials %q", direct)
		}
	})
}
