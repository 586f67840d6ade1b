// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestSet_ChangesUnderLoad holds that no request fails while endpoints come and go beside the one that
// is called, and while its own metadata, policy, upstream and pool change.
func TestSet_ChangesUnderLoad(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	one, two := upstream(t, "one"), upstream(t, "two")
	main := endpoint(t, "main", one)
	r := start(t, s, func(o *agent.Options) { o.Endpoints = []agent.Endpoint{main} })
	bound := r.online("main")["main"]
	l := startLoad(t, s.StartForwarder(), tunnel.Bound{EndpointID: bound.EndpointID, URL: bound.URL})
	var others []agent.Endpoint
	for i := range 12 {
		others = append(others, endpoint(t, fmt.Sprintf("other-%d", i), one))
		if i > 4 {
			others = others[1:]
		}
		want := "one"
		main.Metadata = fmt.Sprintf("version %d", i)
		if i%3 == 1 {
			main.TrafficPolicy = fmt.Sprintf("on_http_response:\n- actions:\n  - type: add-headers\n    config:\n"+
				"      headers: {x-version: \"%d\"}\n", i)
		}
		main.Upstream = endpoint(t, "main", one).Upstream
		if i%2 == 1 {
			want, main.Upstream = "two", endpoint(t, "main", two).Upstream
		}
		r.Set(append(slices.Clone(others), main))
		again := r.online("main")["main"]
		if again.EndpointID != bound.EndpointID || again.SessionID != bound.SessionID {
			t.Errorf("it became %+v", again)
		}
		l.progress()
		servicetest.Eventually(t, "answers of the upstream "+want, func() bool { return *l.last.Load() == want })
	}
	l.end()
}

// TestSet_PoolMemberLeavesUnderLoad holds that no request fails when one of two agents, as two
// replicas of a program, no longer serves a URL.
func TestSet_PoolMemberLeavesUnderLoad(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	e := endpoint(t, "main", upstream(t, "one"))
	e.PoolingEnabled = true
	a := start(t, s, func(o *agent.Options) { o.Endpoints, o.InstanceID = []agent.Endpoint{e}, "in-a" })
	b := start(t, s, func(o *agent.Options) { o.Endpoints, o.InstanceID = []agent.Endpoint{e}, "in-b" })
	bound := a.online("main")["main"]
	b.online("main")
	l := startLoad(t, s.StartForwarder(), tunnel.Bound{EndpointID: bound.EndpointID, URL: bound.URL})
	for range 5 {
		b.Set(nil)
		next(b, func(e agent.Removed) bool { return e.Unbound })
		l.progress()
		b.Set([]agent.Endpoint{e})
		b.online("main")
		l.progress()
	}
	l.end()
}

func TestSet_RefusedBesideMany(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	up := upstream(t, "one")
	holder := start(t, s, func(o *agent.Options) { o.Endpoints = []agent.Endpoint{endpoint(t, "taken", up)} })
	holder.online("taken")
	good, key := many(t, up, 1000), exporterKey(s)
	r := start(t, s, func(o *agent.Options) {
		o.Endpoints = append(slices.Clone(good), owned(endpoint(t, "taken", up)))
		o.Token, o.ClusterUID = func() string { return key }, clusterUID
	})
	var refused []agent.BindRefused
	bound := map[string]bool{}
	for len(bound) < len(good) || len(refused) == 0 {
		switch e := servicetest.Receive(t, r.events, "event").(type) {
		case agent.Online:
			bound[e.Key] = true
		case agent.BindRefused:
			refused = append(refused, e)
		}
	}
	if len(refused) != 1 || refused[0].Key != "taken" || refused[0].Code != tunnel.CodeURLTaken || bound["taken"] {
		t.Errorf("refused: %+v, bound: %v", refused, bound)
	}
	holder.Set(nil)
	r.online("taken")
}

// TestLeaveBound_NextAgentAdoptsRow holds that the row of an agent that leaves it bound is offline,
// and that the next agent gets it.
func TestLeaveBound_NextAgentAdoptsRow(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	e := endpoint(t, "main", upstream(t, "one"))
	ids := ""
	for _, leave := range []bool{true, false} {
		r := start(t, s, func(o *agent.Options) {
			o.Endpoints, o.LeaveBound = []agent.Endpoint{e}, func() bool { return leave }
		})
		first := r.online("main")["main"]
		r.stop()
		if ids == "" {
			ids = first.EndpointID
		}
		servicetest.Eventually(t, fmt.Sprintf("end of the session with LeaveBound = %t", leave), func() bool {
			var list struct{ Endpoints []account.Endpoint }
			s.CallAPI("GET", "/endpoints", nil, &list)
			if !leave {
				return len(list.Endpoints) == 0
			}
			return len(list.Endpoints) == 1 && list.Endpoints[0].Status == account.StatusOffline
		})
		if first.EndpointID != ids {
			t.Errorf("the second agent got %s, not the row %s", first.EndpointID, ids)
		}
	}
}

// many returns n endpoints of objects.
func many(t *testing.T, upstream string, n int) []agent.Endpoint {
	t.Helper()
	all := make([]agent.Endpoint, n)
	for i := range all {
		all[i] = owned(endpoint(t, fmt.Sprintf("e-%d", i), upstream))
	}
	return all
}

// owned makes the endpoint one of an object of its name.
func owned(e agent.Endpoint) agent.Endpoint {
	e.Owner = &tunnel.Owner{Kind: account.KindAgentEndpoint, Namespace: "demo", Name: e.Key, UID: "1"}
	return e
}
