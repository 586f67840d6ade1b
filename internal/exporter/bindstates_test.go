// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/agent"
)

var apiObject = types.NamespacedName{Namespace: "demo", Name: "api"}

func TestBindStates_UnreachableAfterDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		s := newBindStates(func(types.NamespacedName) {}, func() { calls.Add(1) })
		expect := func(what string, wantUp bool, wantCause string, wantCalls int32) {
			t.Helper()
			synctest.Wait()
			if up, cause := s.session(); up != wantUp || cause != wantCause || calls.Load() != wantCalls {
				t.Errorf("%s: up %v, cause %q, %d calls", what, up, cause, calls.Load())
			}
		}
		expect("at the start", false, "", 0)
		time.Sleep(unreachableAfter)
		expect("without a session", false, "the exporter is connecting", 1)
		s.down("connection refused")
		expect("with another cause", false, "connection refused", 1)
		s.up()
		expect("connected", true, "", 2)
		time.Sleep(time.Hour)
		s.down("it was closed")
		time.Sleep(unreachableAfter - 1)
		s.down("connection refused")
		expect("just lost", false, "", 2)
		s.up()
		time.Sleep(time.Minute)
		expect("back in time", true, "", 2)
	})
}

func TestBindStates_ReportChanges(t *testing.T) {
	t.Parallel()
	var changed []types.NamespacedName
	s := newBindStates(func(o types.NamespacedName) { changed = append(changed, o) }, func() {})
	s.ask(apiObject)
	if s.get(apiObject).answered() || len(changed) > 0 {
		t.Errorf("asked: %+v, %v", s.get(apiObject), changed)
	}
	s.set(apiObject, bindState{Bound: true, ID: "ep-1"})
	s.set(apiObject, bindState{Bound: true, ID: "ep-1"}) // as on a new session
	if len(changed) != 1 {
		t.Errorf("an answer that is the same was reported: %v", changed)
	}
	s.set(apiObject, bindState{Reason: "URLTaken"})
	if bound, refused := s.count(); bound != 0 || refused != 1 || len(changed) != 2 {
		t.Errorf("%d bound, %d refused, %v", bound, refused, changed)
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
		endpoint := func(name string) (types.NamespacedName, *agent.Endpoint) {
			object := types.NamespacedName{Namespace: "demo", Name: name}
			return object, &agent.Endpoint{Key: keyOf(object)}
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
		object, e := endpoint("a")
		s.remove(object)
		s.put(object, e)
		s.remove(types.NamespacedName{Namespace: "demo", Name: "c"})
		expect("an object that was made again", 3, "demo/a", "demo/b")
		s.remove(types.NamespacedName{Namespace: "demo", Name: "unknown"})
		expect("an object without an endpoint", 3, "demo/a", "demo/b")
	})
}
