// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/account"
)

var hello = types.NamespacedName{Namespace: "demo", Name: "hello"}

// exportEndpoint is the export of a Service by the cluster with the id.
func exportEndpoint(name types.NamespacedName, clusterID string) account.Endpoint {
	return account.Endpoint{
		ID: "ep-" + name.Name + "-" + clusterID, Type: account.TypeCloud, Status: account.StatusOnline,
		URL:      account.ServiceExportURL(name.Name, name.Namespace, clusterID).String(),
		Bindings: []string{account.BindingClusterset},
		Owner: &account.Owner{Cluster: "uid-" + clusterID, Kind: account.KindServiceExport, Namespace: name.Namespace,
			Name: name.Name},
		ServiceExport: &account.ServiceExport{Type: account.ExportClusterSetIP,
			Ports: []account.ServiceExportPort{{Name: "tcp", Protocol: "TCP", Port: 42}}},
	}
}

// portEndpoint is port 42 of a Service that the cluster with the id exports.
func portEndpoint(name types.NamespacedName, clusterID string) account.Endpoint {
	e := agentEndpoint("ep-port-"+name.Name+"-"+clusterID,
		account.ExportedPortURL(name.Name, name.Namespace, clusterID, 42).String())
	e.Bindings = []string{account.BindingClusterset}
	e.Owner = exportEndpoint(name, clusterID).Owner
	return e
}

func newClusterset(accept string) *Set {
	nothing := admitFunc(func(*account.Endpoint) (bool, error) { return false, nil })
	return NewSet(SetOptions{Selector: nothing, Clusterset: true, AcceptAccount: accept, Clock: clock.RealClock{}})
}

func wantExports(t *testing.T, s *Set, what string, name types.NamespacedName, known bool, clusterIDs ...string) {
	t.Helper()
	exports, gotKnown := s.Exports(name)
	var got []string
	for _, e := range exports {
		got = append(got, e.ClusterID)
	}
	if !slices.Equal(got, clusterIDs) || gotKnown != known {
		t.Errorf("%s: exports by %v, known %v; want %v, %v", what, got, gotKnown, clusterIDs, known)
	}
	if listed := slices.Contains(s.ExportedNames(), name); listed != (len(clusterIDs) > 0) {
		t.Errorf("%s: ExportedNames has the name: %v", what, listed)
	}
}

func wantChanged(t *testing.T, what string, c Change, want ...types.NamespacedName) {
	t.Helper()
	got := slices.Clone(c.Exports)
	slices.SortFunc(got, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	if d := cmp.Diff(want, slices.Compact(got)); d != "" {
		t.Errorf("%s: Change.Exports: %s", what, d)
	}
}

func TestSet_ExportsFollowTheAccountAtOnce(t *testing.T) {
	t.Parallel()
	s := newClusterset("")
	young, old := exportEndpoint(hello, "a"), exportEndpoint(hello, "b")
	young.CreatedAt = time.Unix(2000, 0)
	old.CreatedAt = time.Unix(1000, 0)
	wantChanged(t, "the first list", s.Replace(listed(young, old), time.Now()), hello)
	wantExports(t, s, "the first list", hello, true, "b", "a")
	wantChanged(t, "the same list again", s.Replace(listed(young, old), time.Now()))

	wantChanged(t, "an event without news", s.Apply(event(account.Modified, 1, young)))
	ready := exportEndpoint(hello, "a")
	ready.CreatedAt, ready.ServiceExport.Ready = young.CreatedAt, true
	wantChanged(t, "a change", s.Apply(event(account.Modified, 2, ready)), hello)
	if exports, _ := s.Exports(hello); !exports[1].Spec.Ready {
		t.Errorf("got %+v", exports[1])
	}
	wantChanged(t, "a deletion", s.Apply(event(account.Deleted, 3, old)), hello)
	wantExports(t, s, "a deletion", hello, true, "a")
	other := types.NamespacedName{Namespace: "demo", Name: "other"}
	moved := exportEndpoint(other, "a")
	moved.ID = ready.ID
	wantChanged(t, "a URL that changed, which cannot be", s.Apply(event(account.Modified, 4, moved)), hello, other)
	wantExports(t, s, "the old URL", hello, true)
	wantChanged(t, "the URL of before", s.Apply(event(account.Modified, 5, ready)), hello, other)
	wantChanged(t, "a list without it", s.Replace(listed(), time.Now()), hello)
	wantExports(t, s, "a list without it", hello, true)
}

func TestSet_MassRemovalDoesNotHoldExports(t *testing.T) {
	t.Parallel()
	s := newClusterset("")
	var rows []account.Endpoint
	objects := map[string][]int32{}
	for i := range 20 {
		name := types.NamespacedName{Namespace: "demo", Name: fmt.Sprintf("s%02d", i)}
		rows = append(rows, exportEndpoint(name, "a"), portEndpoint(name, "a"))
		objects[name.Name+".demo.a"] = []int32{42}
	}
	s.Replace(listed(rows...), time.Now())
	s.Seed(objects)
	s.Replace(listed(), time.Now())
	if !s.Removals().Held || s.Desired("s00.demo.a").MayRelease.Has(42) {
		t.Error("the removal of all ports is not held")
	}
	if names := s.ExportedNames(); len(names) > 0 {
		t.Errorf("still exported: %v", names)
	}
}

func TestSet_FrozenListRemovesNoExport(t *testing.T) {
	t.Parallel()
	s := newClusterset("")
	mine, other := exportEndpoint(hello, "a"), exportEndpoint(types.NamespacedName{Namespace: "demo", Name: "x"}, "a")
	s.Replace(listed(mine), time.Now())
	foreign := Snapshot{AccountID: "ac-2", StoreID: "st-1", Endpoints: []account.Endpoint{other}}
	wantChanged(t, "another account's list", s.Replace(foreign, time.Now()))
	wantExports(t, s, "another account's list", hello, false, "a")
	wantChanged(t, "another account's event", s.Apply(event(account.Deleted, 5, mine)))
	wantChanged(t, "another account's event", s.Apply(event(account.Added, 6, exportEndpoint(hello, "b"))))
	wantExports(t, s, "another account's events", hello, false, "a")

	gone := types.NamespacedName{Namespace: "demo", Name: "gone"}
	wantExports(t, s, "what was never exported", gone, false)
	wantChanged(t, "our account's list", s.Replace(listed(), time.Now()), gone, hello)
	wantExports(t, s, "our account's list", hello, true)
}

func TestSet_AcceptedAccountReplacesExports(t *testing.T) {
	t.Parallel()
	s := newClusterset("ac-2")
	s.SetRecordedSource(SourceIdentity{AccountID: "ac-1", StoreID: "st-1"})
	wantExports(t, s, "before the first list", hello, false)
	wantChanged(t, "the accepted account's list", s.Replace(Snapshot{AccountID: "ac-2", StoreID: "st-1"}, time.Now()),
		hello)
	wantExports(t, s, "the accepted account's list", hello, true)
}

func TestSet_DisabledHasNoExports(t *testing.T) {
	t.Parallel()
	s := newClusterset("")
	s.Disable()
	wantExports(t, s, "disabled", hello, true)
	s = newSet(admitFunc(all))
	c := s.Replace(listed(exportEndpoint(hello, "a"), portEndpoint(hello, "a")), time.Now())
	if len(c.Problems) != 2 || len(c.Hostnames) != 0 {
		t.Errorf("without clusterset: %+v", c)
	}
	wantExports(t, s, "without clusterset", hello, true)
}

// TestSet_ExportIsNoPort checks that only a tcp endpoint of an agent has a target port.
func TestSet_ExportIsNoPort(t *testing.T) {
	t.Parallel()
	export, port := exportEndpoint(hello, "a"), portEndpoint(hello, "b")
	bound, answered, ownerless := exportEndpoint(hello, "c"), portEndpoint(hello, "d"), exportEndpoint(hello, "e")
	bound.Type, answered.Type, ownerless.Owner = account.TypeAgent, account.TypeCloud, nil
	s := newClusterset("")
	c := s.Replace(listed(export, port, bound, answered, ownerless), time.Now())
	if d := cmp.Diff([]string{"hello.demo.b"}, c.Hostnames); d != "" {
		t.Error(d)
	}
	for _, hostname := range []string{"hello.demo.a", "hello.demo.c", "hello.demo.d", "hello.demo.e"} {
		if d := s.Desired(hostname); len(d.Ports)+len(d.Endpoints) > 0 {
			t.Errorf("%s: %+v", hostname, d)
		}
	}
	if d := s.Desired("hello.demo.b"); d.Ports[42] != "tcp" || len(d.Endpoints) != 1 {
		t.Errorf("the selector, which excludes everything, concerns the port: %+v", d)
	}
	if len(c.Problems) != 3 {
		t.Errorf("problems %v", c.Problems)
	}
	if admitted, excluded, problems := s.Counts(); admitted != 1 || excluded != 0 || problems != 3 {
		t.Errorf("counts %d, %d, %d", admitted, excluded, problems)
	}
}

func TestSet_PortsOfExportsAreChangesOfExports(t *testing.T) {
	t.Parallel()
	s := newClusterset("")
	s.Replace(listed(), time.Now())
	port := portEndpoint(hello, "a")
	wantChanged(t, "a port", s.Apply(event(account.Added, 1, port)), hello)
	wantChanged(t, "no news", s.Apply(event(account.Modified, 2, port)))
	offline := port
	offline.Status = account.StatusOffline
	wantChanged(t, "offline", s.Apply(event(account.Modified, 3, offline)), hello)
	if known, _, urls := s.Availability("hello.demo.a"); !known || !slices.Equal(urls, []string{port.URL}) {
		t.Errorf("offline: %v", urls)
	}
	wantChanged(t, "gone", s.Apply(event(account.Deleted, 4, port)), hello)
	wantChanged(t, "an endpoint of kubernetes", s.Apply(event(account.Added, 5, agentEndpoint("ep-1", "http://a.b"))))
}

// TestSet_OldServerRemovesNothingOfExports: a server that does not know the binding lists none of
// its endpoints, which is no reason to remove what was made of them.
func TestSet_OldServerRemovesNothingOfExports(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	s := newClusterset("")
	s.clock = clockAt{&now}
	s.Seed(map[string][]int32{"hello.demo.a": {42}, "gone.demo.a": {42}, "web.demo": {80}})
	s.Replace(listed(exportEndpoint(hello, "a"), portEndpoint(hello, "a")), now)
	without := listed()
	without.WithoutClusterset = true
	wantChanged(t, "the old server's list", s.Replace(without, now))
	wantExports(t, s, "the old server's list", hello, false, "a")
	if d := s.Desired("hello.demo.a"); len(d.Endpoints) != 1 || d.MayRelease.Has(42) {
		t.Errorf("a port that was listed before: %+v", d)
	}
	if s.Desired("gone.demo.a").MayRelease.Has(42) || !s.Desired("web.demo").MayRelease.Has(80) {
		t.Error("may release hello.demo.a, or not web.demo")
	}
	if p := s.Removals().Pending; p != 1 {
		t.Errorf("%d removals are pending, want that of web.demo", p)
	}
	if at, _ := s.nextList(); !at.Equal(now.Add(clustersetRetry)) {
		t.Errorf("listed again at %s", at)
	}

	c := s.Replace(listed(), now)
	wantChanged(t, "the new server's list", c, hello)
	wantExports(t, s, "the new server's list", hello, true)
	if !slices.Contains(c.Hostnames, "gone.demo.a") || !s.Desired("gone.demo.a").MayRelease.Has(42) {
		t.Errorf("what the new server lacks stays: %v", c.Hostnames)
	}
	if at, _ := s.nextList(); !at.IsZero() {
		t.Errorf("listed again at %s", at)
	}
}

// TestSet_ExportsAreThoseOfTheAccount compares with a map of the account, through random events and
// lists of two accounts.
func TestSet_ExportsAreThoseOfTheAccount(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, mine, foreign, frozen := newClusterset(""), map[string]account.Endpoint{}, map[string]account.Endpoint{},
			false
		s.Replace(listed(), time.Now())
		for seq := range int64(300) {
			name := types.NamespacedName{Namespace: "demo", Name: fmt.Sprintf("s%d", rng.IntN(3))}
			e := exportEndpoint(name, fmt.Sprintf("c%d", rng.IntN(3)))
			e.CreatedAt = time.Unix(int64(rng.IntN(3)), 0)
			source := mine
			if frozen {
				source = foreign
			}
			before := maps.Clone(s.exports.byID)
			var c Change
			switch op := rng.IntN(10); {
			case op == 0:
				frozen = rng.IntN(2) == 0
				list := listed(slices.Collect(maps.Values(mine))...)
				if frozen {
					list = Snapshot{AccountID: "ac-2", StoreID: "st-1", Endpoints: slices.Collect(maps.Values(foreign))}
				}
				c = s.Replace(list, time.Now())
			case op < 5:
				delete(source, e.ID)
				c = s.Apply(event(account.Deleted, seq, e))
			default:
				source[e.ID] = e
				c = s.Apply(event(account.Modified, seq, e))
			}
			checkExports(t, s, mine, frozen)
			after := s.exports.byID
			for id, name := range before {
				if _, still := after[id]; !still && !slices.Contains(c.Exports, name) {
					t.Fatalf("seed %d: %s went without notice", seed, id)
				}
			}
		}
	}
}

// checkExports compares the exports with the account's.
func checkExports(t *testing.T, s *Set, want map[string]account.Endpoint, frozen bool) {
	t.Helper()
	count := 0
	for _, name := range s.ExportedNames() {
		exports, known := s.Exports(name)
		if known == frozen {
			t.Fatalf("known is %v, frozen %v", known, frozen)
		}
		for _, e := range exports {
			if row, ok := want[e.ID]; !ok || !row.CreatedAt.Equal(e.CreatedAt) {
				t.Fatalf("%s is not what the account has", e.ID)
			}
			count++
		}
	}
	if count != len(want) {
		t.Fatalf("%d exports, the account has %d", count, len(want))
	}
}
