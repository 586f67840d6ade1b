// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

var apiName = types.NamespacedName{Namespace: "demo", Name: "api"}

// testBindStates returns bindStates of a cluster with one AgentEndpoint, apiName, and a function that
// returns the objects that have been enqueued since it was last called.
func testBindStates(t *testing.T) (s *bindStates, enqueued func() []types.NamespacedName) {
	t.Helper()
	o := &v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: apiName.Namespace, Name: apiName.Name}}
	agents := &agentEndpoints{changes: notify.New("", 0),
		client: fake.NewClientBuilder().WithScheme(kinds().Scheme()).WithObjects(o).Build()}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	if err := agents.changes.Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return newBindStates(t.Context(), agents, nil), func() (names []types.NamespacedName) {
		for q.Len() > 0 {
			r, _ := q.Get()
			q.Done(r)
			names = append(names, r.NamespacedName)
		}
		return names
	}
}

func TestBindStates_UnreachableAfterDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, enqueued := testBindStates(t)
		expect := func(what string, wantUp bool, wantCause string, wantEnqueued int) {
			t.Helper()
			synctest.Wait()
			up, cause := s.session()
			if names := enqueued(); up != wantUp || cause != wantCause || len(names) != wantEnqueued {
				t.Errorf("%s: up %v, cause %q, enqueued %v", what, up, cause, names)
			}
		}
		expect("at the start", false, "", 0)
		time.Sleep(unreachableAfter)
		expect("without a session", false, "the exporter is connecting", 1)
		s.down("connection refused")
		expect("with another cause", false, "connection refused", 0)
		s.up()
		expect("connected", true, "", 1)
		time.Sleep(time.Hour)
		s.down("it was closed")
		time.Sleep(unreachableAfter - 1)
		s.down("connection refused")
		expect("just lost", false, "", 0)
		s.up()
		time.Sleep(time.Minute)
		expect("back in time", true, "", 0)
	})
}

func TestBindStates_ReportChanges(t *testing.T) {
	t.Parallel()
	s, enqueued := testBindStates(t)
	apiObject := keyOf(apiName)
	s.ask(apiObject)
	if changed := enqueued(); s.get(apiObject).answered() || len(changed) > 0 {
		t.Errorf("asked: %+v, %v", s.get(apiObject), changed)
	}
	s.set(apiObject, bindState{Bound: true, ID: "ep-1"})
	if changed := enqueued(); len(changed) != 1 || changed[0] != apiName {
		t.Errorf("changed %v", changed)
	}
	s.set(apiObject, bindState{Bound: true, ID: "ep-1"}) // as on a new session
	if changed := enqueued(); len(changed) > 0 {
		t.Errorf("an answer that is the same was reported: %v", changed)
	}
	s.set(apiObject, bindState{Reason: "URLTaken"})
	if bound, refused := s.count(); bound != 0 || refused != 1 || len(enqueued()) != 1 {
		t.Errorf("%d bound, %d refused", bound, refused)
	}
	s.ask(apiObject)
	if s.get(apiObject).answered() {
		t.Error("a changed endpoint has the answer of before")
	}
	s.forget(apiObject)
	if bound, refused := s.count(); bound+refused > 0 {
		t.Error("an object without an endpoint counts")
	}
}

func TestEndpointSet_CollectsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var applied [][]string
		s := newEndpointSet()
		endpoint := func(name string) (object, agent.Endpoint) {
			o := types.NamespacedName{Namespace: "demo", Name: name}
			return agentEndpoint(o), agent.Endpoint{Key: keyOf(o)}
		}
		go s.apply(t.Context(), func(all []agent.Endpoint) {
			var keys []string
			for _, e := range all {
				keys = append(keys, e.Key)
			}
			applied = append(applied, keys)
		})
		expect := func(what string, n int, want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(applied) != n || !slices.Equal(applied[n-1], want) {
				t.Errorf("%s: applied %v, want %d times and last %v", what, applied, n, want)
			}
		}
		expect("at the start", 1)
		for _, name := range []string{"c", "a", "b"} {
			s.put(endpoint(name))
		}
		expect("three at once", 2, "demo/a", "demo/b", "demo/c")
		s.put(endpoint("a"))
		expect("no change", 2, "demo/a", "demo/b", "demo/c")
		o, e := endpoint("a")
		s.remove(o)
		s.put(o, e)
		s.remove(agentEndpoint(types.NamespacedName{Namespace: "demo", Name: "c"}))
		expect("an object that was made again", 3, "demo/a", "demo/b")
		s.remove(agentEndpoint(types.NamespacedName{Namespace: "demo", Name: "unknown"}))
		expect("an object without an endpoint", 3, "demo/a", "demo/b")
	})
}

// TestEndpointSet_TellsObjectsApart gives an AgentEndpoint and a ServiceExport of one name
// endpoints.
func TestEndpointSet_TellsObjectsApart(t *testing.T) {
	t.Parallel()
	s := newEndpointSet()
	port := func(number int32, uid string) agent.Endpoint {
		return agent.Endpoint{Key: portKey(apiName, number), Metadata: uid}
	}
	expect := func(what string, changed, removed []string, wantChanged, wantRemoved, all string) {
		t.Helper()
		var keys []string
		for _, e := range s.all() {
			keys = append(keys, e.Key)
		}
		for i, pair := range [][2]string{{strings.Join(changed, " "), wantChanged},
			{strings.Join(removed, " "), wantRemoved},
			{strings.Join(keys, " "), all}} {
			if pair[0] != pair[1] {
				t.Errorf("%s, %d: %q, want %q", what, i, pair[0], pair[1])
			}
		}
	}
	const first, second = "ServiceExport/demo/api:42", "ServiceExport/demo/api:43"
	s.put(agentEndpoint(apiName), agent.Endpoint{Key: keyOf(apiName)})
	export := serviceExport(apiName)
	changed, removed := s.put(export, port(42, "a"), port(43, "a"))
	expect("two ports", changed, removed, first+" "+second, "", first+" "+second+" demo/api")
	changed, removed = s.put(export, port(43, "a"), port(42, "a"))
	expect("in another order", changed, removed, "", "", first+" "+second+" demo/api")
	changed, removed = s.put(export, port(42, "b"))
	expect("one changed, one gone", changed, removed, first, second, first+" demo/api")
	expect("removed", nil, s.remove(export), "", first, "demo/api")
	for key, want := range map[string]object{first: export, "demo/api": agentEndpoint(apiName)} {
		if got := objectOf(key); got != want {
			t.Errorf("%s is the key of %v", key, got)
		}
	}
}
