// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

const testCluster = "1f0c3a52-8d57-4d52-9c1e-0a5b5cf0a001"

// ownedBind is a bind for an object.
func ownedBind(name string) tunnel.Bind {
	return tunnel.Bind{URL: "http://api.demo", UpstreamURL: "http://api.demo.svc:8080", Owner: &tunnel.Owner{
		Kind: account.KindAgentEndpoint, Namespace: "demo", Name: name, UID: "uid-1"}}
}

// exporter connects an agent with a credential of the cluster.
func (l *testService) exporter(clusterUID string) *agent {
	l.t.Helper()
	return l.exporterWith(l.exporterKey(clusterUID), clusterUID)
}

func (s *Server) setCluster(sessionID, uid string) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	s.sessions[sessionID].clusterUID = uid
}

// TestBind_OwnerIsOfCredentialsCluster requires that a bind with an owner is recorded with the
// cluster of the session's credential, and is refused to a session of another credential.
func TestBind_OwnerIsOfCredentialsCluster(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	var refused *tunnel.Error
	if _, err := l.agent().Bind(t.Context(), ownedBind("api")); !errors.As(err, &refused) ||
		refused.Code != tunnel.CodeForbidden || !strings.Contains(refused.Msg, "API key with scope exporter") {
		t.Errorf("without a cluster: %v", err)
	}
	one, err := l.exporter(testCluster).Bind(t.Context(), ownedBind("api"))
	storetest.Must(t, err)
	ep, err := l.store.Endpoint(t.Context(), l.accountID, one.EndpointID)
	storetest.Must(t, err)
	storetest.Equal(t, "owner", *ep.Owner, account.Owner{Cluster: testCluster, Kind: account.KindAgentEndpoint,
		Namespace: "demo", Name: "api", UID: "uid-1"})
	storetest.Equal(t, "oldest", one.OwnerEndpointID, one.EndpointID)
	two, err := l.exporter(testCluster).Bind(t.Context(), ownedBind("api"))
	storetest.Must(t, err)
	if two.EndpointID == one.EndpointID || two.OwnerEndpointID != one.EndpointID {
		t.Errorf("the second replica has %+v, beside %s", two, one.EndpointID)
	}
	if _, err := l.exporter("2").Bind(t.Context(), ownedBind("api")); !errors.As(err, &refused) ||
		refused.Code != tunnel.CodeURLTaken ||
		!strings.Contains(refused.Msg, "taken by AgentEndpoint demo/api of cluster "+testCluster) {
		t.Errorf("from another cluster: %v", err)
	}
	invalid := ownedBind("Api")
	invalid.Owner.Kind = account.KindCloudEndpoint
	if _, err := l.exporter(testCluster).Bind(t.Context(), invalid); !errors.As(err, &refused) ||
		refused.Code != tunnel.CodeInvalid || len(refused.Errors) != 2 || refused.Errors[0].Field != "owner.kind" {
		t.Errorf("an invalid owner: %v", err)
	}
	labelled := tunnel.Bind{Labels: map[string]string{"app": "api"}, Owner: invalid.Owner}
	if _, err := l.exporter(testCluster).Bind(t.Context(), labelled); !errors.As(err, &refused) ||
		refused.Code != tunnel.CodeInvalid || len(refused.Errors) != 1 || refused.Errors[0].Field != "owner" {
		t.Errorf("a labelled tunnel with an owner: %v", err)
	}
}

// TestChoose_SpreadsOverOwnersSessions requires that the endpoints of an owner serve their URL
// together although they do not pool.
func TestChoose_SpreadsOverOwnersSessions(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	chosen := map[string]bool{}
	var ep *account.Endpoint
	for range 2 {
		bound, err := l.exporter(testCluster).Bind(t.Context(), ownedBind("api"))
		storetest.Must(t, err)
		ep, err = l.store.Endpoint(t.Context(), l.accountID, bound.EndpointID)
		storetest.Must(t, err)
	}
	for range 2 {
		h, err := l.Choose(t.Context(), URLOf(ep))
		storetest.Must(t, err)
		chosen[h.Endpoint().ID] = true
	}
	storetest.Equal(t, "members that served", len(chosen), 2)
}

// TestChoose_WaitsForAnyOfOwner requires that a connection waits for whichever endpoint of an owner
// a restart has disconnected.
func TestChoose_WaitsForAnyOfOwner(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	a := l.exporter(testCluster)
	bound, err := a.Bind(t.Context(), ownedBind("api"))
	storetest.Must(t, err)
	ep, err := l.store.Endpoint(t.Context(), l.accountID, bound.EndpointID)
	storetest.Must(t, err)
	long := l.started.Add(-time.Hour)
	named := *ep // another endpoint of the owner, which has been offline for long
	named.ID, named.Status, named.OfflineSince, named.TunnelSession = "ep-other", account.StatusOffline, &long, nil
	if wait, err := l.reconnectWait(t.Context(), &named); err != nil || wait <= 0 {
		t.Errorf("waits for %v, %v", wait, err)
	}
	named.Owner = nil
	if wait, err := l.reconnectWait(t.Context(), &named); err != nil || wait != 0 {
		t.Errorf("without an owner, waits for %v, %v", wait, err)
	}
}

// TestApplySessions_FollowsOwnersPolicy requires that a bind with a new traffic policy, which is
// that of all endpoints of its owner, reaches the other servers before it is answered, and replaces
// no member.
func TestApplySessions_FollowsOwnersPolicy(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 3)
	a, b := r.agent(0, 1), r.agent(2)
	for i, of := range []*legAgent{a, a, b} {
		r.servers[i].setCluster(of.ID(), testCluster)
	}
	bind := ownedBind("api")
	bind.TrafficPolicy = "first"
	id := a.bind(bind).EndpointID
	r.expect(id, a, 0, 1)
	members := []*Member{r.member(0, id), r.member(1, id)}
	bind.TrafficPolicy = "second"
	second := b.bind(bind)
	storetest.Equal(t, "oldest", second.OwnerEndpointID, id)
	r.expectSecondPolicy(id, members)
}

// TestBind_ExporterWaitsForRate requires that an exporter's binds beyond the rate of agents are not
// refused.
func TestBind_ExporterWaitsForRate(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	a := l.exporter(testCluster)
	for i := range 2 * bindsPerSecond {
		b := ownedBind(fmt.Sprintf("api-%d", i))
		b.URL = fmt.Sprintf("http://api-%d.demo", i)
		_, err := a.Bind(t.Context(), b)
		storetest.Must(t, err)
	}
}
