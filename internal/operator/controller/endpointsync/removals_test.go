// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
)

// removalTest is a Set of n hostnames, each with an endpoint and an object, and a clock.
type removalTest struct {
	*Set
	t         *testing.T
	now       time.Time
	seq       int64
	endpoints []account.Endpoint
	refuse    map[string]bool // ids that the selector excludes
}

func newRemovalTest(t *testing.T, n int, delay time.Duration) *removalTest {
	m := &removalTest{t: t, now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), refuse: map[string]bool{}}
	m.Set = NewSet(SetOptions{
		Selector:     admitFunc(func(e *account.Endpoint) (bool, error) { return !m.refuse[e.ID], nil }),
		RemovalDelay: delay, Clock: clockAt{&m.now},
	})
	objects := map[string][]int32{}
	for i := range n {
		m.endpoints = append(m.endpoints, agentEndpoint(fmt.Sprintf("ep-%02d", i), fmt.Sprintf("http://h%02d.x", i)))
		objects[host(i)] = []int32{80}
	}
	m.list(m.endpoints...)
	m.Seed(objects)
	return m
}

func host(i int) string { return fmt.Sprintf("h%02d.x", i) }

func (m *removalTest) list(endpoints ...account.Endpoint) []string {
	return m.Replace(listed(endpoints...), m.now).Hostnames
}

func (m *removalTest) deleted(e account.Endpoint) {
	m.seq++
	m.Apply(event(account.Deleted, m.seq, e))
}

// wantReleased returns how many of the first n hostnames have no endpoint and may be released.
func (m *removalTest) wantReleased(n int) (free int) {
	for i := range n {
		if d := m.Desired(host(i)); len(d.Endpoints) == 0 && d.MayRelease.Has(80) {
			free++
		}
	}
	return free
}

func (m *removalTest) wantState(what string, free int, held bool) {
	m.t.Helper()
	if got := m.wantReleased(len(m.endpoints)); got != free {
		m.t.Errorf("%s: %d hostnames may be released, want %d", what, got, free)
	}
	if got := m.Removals().Held; got != held {
		m.t.Errorf("%s: held is %v, want %v", what, got, held)
	}
}

func TestRemovals_MassThreshold(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		hostnames, lost int
		held            bool
	}{{10, 10, false}, {11, 5, false}, {11, 6, true}, {20, 10, false}, {20, 11, true}, {100, 50, false},
		{100, 51, true},
		{1, 1, false}} {
		m := newRemovalTest(t, tc.hostnames, 0)
		m.list(m.endpoints[tc.lost:]...)
		free := tc.lost
		if tc.held {
			free = 0
		}
		m.wantState(fmt.Sprintf("%d of %d", tc.lost, tc.hostnames), free, tc.held)
	}
}

func TestRemovals_HoldMassDeletion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		removalDelay, wait time.Duration
	}{{0, time.Minute}, {30 * time.Second, time.Minute}, {5 * time.Minute, 5 * time.Minute}} {
		m := newRemovalTest(t, 20, tc.removalDelay)
		m.list(m.endpoints[15:]...)
		if got := m.Removals(); got.Pending != 15 || got.Projected != 20 || !got.ListDue.Equal(m.now.Add(tc.wait)) {
			t.Errorf("got %+v", got)
		}
		begun := m.now.Add(tc.wait - time.Millisecond)
		m.now = m.now.Add(tc.wait + time.Second)
		m.Replace(listed(m.endpoints[15:]...), begun)
		m.wantState("a list that was asked for too early", 0, true)
		if names := m.list(m.endpoints[10:]...); len(names) < 15 {
			t.Errorf("the second list names %d hostnames", len(names))
		}
		m.wantState("the second list, with five that came back", 10, false)
		m.list(m.endpoints[10:]...)
		m.wantState("another list", 10, false)
	}
}

func TestRemovals_NoticeGradualMassDeletion(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{account.TypeAgent, account.TypeCloud} {
		m := newRemovalTest(t, 20, 30*time.Second)
		for i, e := range m.endpoints[:12] {
			e.Type = typ
			m.deleted(e)
			if i == 9 {
				m.wantState("half", 10, false)
			}
			if i < 5 {
				m.SetPorts(host(i), []int32{80}) // released: the port rests, and counts
			}
			m.now = m.now.Add(time.Second)
		}
		m.wantState("more than half", 0, true)
	}
}

func TestRemovals_HoldLaterRemovals(t *testing.T) {
	t.Parallel()
	m := newRemovalTest(t, 20, 0)
	m.list(m.endpoints[11:]...)
	m.now = m.now.Add(50 * time.Second)
	m.deleted(m.endpoints[11])
	m.wantState("one more", 0, true)
	m.now = m.now.Add(10 * time.Second)
	m.list(m.endpoints[12:]...)
	m.wantState("the second list; what came later is one of nine that are left", 12, false)

	m = newRemovalTest(t, 40, 0)
	m.list(m.endpoints[21:]...)
	m.now = m.now.Add(50 * time.Second)
	for _, e := range m.endpoints[21:35] {
		m.deleted(e)
	}
	m.now = m.now.Add(10 * time.Second)
	m.list(m.endpoints[35:]...)
	m.wantState("the second list; what came later is a mass of those that are left", 21, true)
	m.now = m.now.Add(time.Minute)
	m.list(m.endpoints[35:]...)
	m.wantState("the third list", 35, false)
}

func TestRemovals_SelectorIsNotHeld(t *testing.T) {
	t.Parallel()
	m := newRemovalTest(t, 20, 0)
	for _, e := range m.endpoints[:19] {
		m.refuse[e.ID] = true
	}
	m.list(m.endpoints...)
	m.wantState("excluded", 19, false)
	m.list(m.endpoints[10:]...)
	m.wantState("excluded, and then deleted", 19, false)

	m = newRemovalTest(t, 20, 0)
	m.refuse["ep-00"] = true
	m.list(m.endpoints[:1]...)
	m.wantState("a mass beside one that is excluded", 1, true)
}

func TestRemovals_FirstListAfterStart(t *testing.T) {
	t.Parallel()
	m := newRemovalTest(t, 0, 0)
	objects := map[string][]int32{}
	for i := range 20 {
		m.endpoints = append(m.endpoints, agentEndpoint(fmt.Sprintf("ep-%02d", i), "http://"+host(i)))
		objects[host(i)] = []int32{80, 81}
	}
	m.Set = NewSet(SetOptions{Selector: admitFunc(all), Clock: clockAt{&m.now}})
	m.list()
	m.Seed(objects)
	m.wantState("an empty list", 0, true)
	m.list(m.endpoints...)
	for i := range 20 {
		m.SetPorts(host(i), []int32{80})
	}
	if got := m.Removals(); got.Pending != 0 || !got.Held {
		t.Errorf("they are back: got %+v", got)
	}
	m.now = m.now.Add(time.Minute)
	m.list(m.endpoints...)
	m.wantState("the second list", 0, false)
	m.list()
	m.wantState("a second mass", 0, true)
	m.Disable()
	if free := m.wantReleased(20); free != 20 {
		t.Errorf("binding.enabled=false: %d may be released", free)
	}
}

func TestRemovals_OtherAccountFreezesUntilAccepted(t *testing.T) {
	t.Parallel()
	first := SourceIdentity{"ac-1", "st-1"}
	for _, tc := range []struct {
		name             string
		recorded, listed SourceIdentity
		accept           string
		frozen           bool
		then             SourceIdentity
	}{
		{"the first list ever", SourceIdentity{}, first, "", false, first},
		{"the same", first, first, "", false, first},
		{"another account", first, SourceIdentity{"ac-2", "st-1"}, "", true, first},
		{"another store", first, SourceIdentity{"ac-1", "st-2"}, "", true, first},
		{"both", first, SourceIdentity{"ac-2", "st-2"}, "", true, first},
		{"accepted", first, SourceIdentity{"ac-2", "st-2"}, "ac-2", false, SourceIdentity{"ac-2", "st-2"}},
		{"an account is not accepted by its store", first, SourceIdentity{"ac-2", "st-2"}, "st-2", true, first},
		{"a store is accepted by its own id", first, SourceIdentity{"ac-1", "st-2"}, "st-2", false,
			SourceIdentity{"ac-1", "st-2"}},
		{"a store is not accepted by an account of long ago", first, SourceIdentity{"ac-1", "st-2"}, "ac-1", true,
			first},
		{"a third account", first, SourceIdentity{"ac-3", "st-1"}, "ac-2", true, first},
		{"accepted for good, and the first one is back", SourceIdentity{"ac-2", "st-1"}, first, "ac-2", true,
			SourceIdentity{"ac-2", "st-1"}},
		{"a list that does not say", first, SourceIdentity{}, "", false, first},
		{"nothing recorded of the store", SourceIdentity{AccountID: "ac-1"}, first, "", false, first},
	} {
		s := NewSet(SetOptions{Selector: admitFunc(all), AcceptAccount: tc.accept, Clock: clock.RealClock{}})
		s.SetRecordedSource(tc.recorded)
		s.Replace(Snapshot{AccountID: tc.listed.AccountID, StoreID: tc.listed.StoreID}, time.Now())
		if got := s.Removals(); got.Frozen != tc.frozen || got.Recorded != tc.then {
			t.Errorf("%s: frozen %v, recorded %v", tc.name, got.Frozen, got.Recorded)
		}
	}
}

func TestRemovals_FreezeEndsWithRecordedAccount(t *testing.T) {
	t.Parallel()
	m := newRemovalTest(t, 3, 0)
	m.refuse["ep-00"] = true
	m.list(m.endpoints...)
	cloud := m.endpoints[1]
	cloud.Type = account.TypeCloud
	other := Snapshot{Endpoints: m.endpoints[2:], AccountID: "ac-2", StoreID: "st-1"}
	m.Replace(other, m.now)
	m.deleted(m.endpoints[2])
	m.wantState("another account's list and event", 1, false)
	m.now = m.now.Add(time.Hour)
	m.Replace(other, m.now)
	m.wantState("it stays", 1, false)
	if names := m.list(m.endpoints[:2]...); !slices.Contains(names, host(2)) {
		t.Errorf("the end of the freeze names %v", names)
	}
	m.wantState("the account is back, without the third", 2, false)
}

func TestRemovals_LostObjectsAreNoOrphansWhileHeld(t *testing.T) {
	t.Parallel()
	m := newRemovalTest(t, 20, 0)
	m.list(m.endpoints[15:]...)
	m.SetPorts(host(0), nil) // its object was deleted
	if known, _, _ := m.Availability(host(0)); known {
		t.Error("a mass waits")
	}
	if known, endpoints, _ := m.Availability(host(1)); !known || endpoints != 0 {
		t.Error("what has an object tells that it has no endpoint")
	}
	m.now = m.now.Add(time.Minute)
	m.list(m.endpoints[15:]...)
	if known, endpoints, _ := m.Availability(host(0)); !known || endpoints != 0 {
		t.Error("the mass is confirmed")
	}
	m.Replace(Snapshot{AccountID: "ac-2"}, m.now)
	if known, _, _ := m.Availability(host(0)); known {
		t.Error("another account lists")
	}
}

func TestFeed_ListsWhenHeldMassIsDue(t *testing.T) {
	var endpoints []account.Endpoint
	var deletions []account.EndpointEvent
	objects := map[string][]int32{}
	for i := range 20 {
		e := agentEndpoint(fmt.Sprintf("ep-%02d", i), "http://"+host(i))
		endpoints = append(endpoints, e)
		objects[host(i)] = []int32{80}
		if i < 11 {
			deletions = append(deletions, event(account.Deleted, int64(6+i), e))
		}
	}
	s := &fakeSource{list: listOf(5, endpoints...)}
	var set *Set
	s.watch = func(v account.ResourceVersion) (apiclient.EndpointWatch, error) {
		if v.Seq == 5 {
			set.Seed(objects)
			s.list = listOf(16, endpoints[11:]...)
			return &fakeWatch{events: deletions}, nil
		}
		return &fakeWatch{}, nil
	}
	begin := func(f *Feed) { set = f.Set }
	playFrom(t, s, begin, time.Minute-time.Millisecond, func(_ *Feed, set *Set) {
		if want := []string{"list", "watch 1-5"}; !slices.Equal(s.calls, want) || !set.Removals().Held {
			t.Errorf("got %v, want %v", s.calls, want)
		}
	})
	s.calls, s.list = nil, listOf(5, endpoints...)
	playFrom(t, s, begin, 2*time.Minute, func(_ *Feed, set *Set) {
		if want := []string{"list", "watch 1-5", "list", "watch 1-16"}; !slices.Equal(s.calls, want) ||
			set.Removals().Held {
			t.Errorf("got %v, want %v", s.calls, want)
		}
	})
}

func TestFeed_ListsOnRequest(t *testing.T) {
	s := &fakeSource{list: listOf(5), watch: func(account.ResourceVersion) (apiclient.EndpointWatch, error) {
		return &fakeWatch{}, nil
	}}
	play(t, s, time.Minute, func(_ *Feed, set *Set) {
		set.RequestList()
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"list", "watch 1-5", "list", "watch 1-5"}; !slices.Equal(s.calls, want) {
			t.Errorf("got %v, want %v", s.calls, want)
		}
	})
}

func TestFeed_LoadsRecordedSourceBeforeList(t *testing.T) {
	tries := 0
	s := &fakeSource{list: listOf(5), watch: func(account.ResourceVersion) (apiclient.EndpointWatch, error) {
		return &fakeWatch{}, nil
	}}
	playFrom(t, s, func(f *Feed) {
		f.Live = live(t, interceptor.Funcs{Get: func(
			_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption,
		) error {
			if tries++; tries < 5 {
				return context.DeadlineExceeded
			}
			o.(*v1alpha1.KubernetesOperator).Status.AccountID = "ac-0"
			return nil
		}})
	}, time.Minute, func(f *Feed, set *Set) {
		if got := set.Removals(); tries != 5 || len(s.calls) != 2 || !got.Frozen || got.Recorded.AccountID != "ac-0" {
			t.Errorf("after %d tries %v, %+v", tries, s.calls, got)
		}
	})
}
