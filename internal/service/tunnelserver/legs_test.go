// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestLegs_ServeBindsOfSession holds that each server with a leg serves what the session has bound
// over any of them, before the leg or after it, and no more when the unbind has returned.
func TestLegs_ServeBindsOfSession(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 3)
	a := r.agent(0, 1)
	web := a.bind(tunnel.Bind{URL: "http://web.demo", TrafficPolicy: "first"})
	group := a.bind(tunnel.Bind{Labels: map[string]string{"app": "web"}})
	r.expect(web.EndpointID, a, 0, 1)
	r.expect(group.EndpointID, a, 0, 1)
	a.mu.Lock()
	a.servers = []int{1, 2}
	a.mu.Unlock()
	a.cut(0)
	a.awaitLeg(2)
	r.expect(web.EndpointID, a, 1, 2)
	r.expect(group.EndpointID, a, 1, 2)
	for _, i := range []int{1, 2} {
		s := r.servers[i]
		h, err := s.ChooseNow(URLOf(r.endpoint(web.EndpointID)))
		storetest.Must(t, err)
		storetest.Equal(t, "policy", h.Endpoint().TrafficPolicy, "first")
		byLabels, err := s.ChooseNow(TunnelGroup(r.accountID, map[string]string{"app": "web"}))
		storetest.Must(t, err)
		storetest.Equal(t, "tunnel", byLabels.Endpoint().ID, group.EndpointID)
		st, release, err := s.OpenMember(t.Context(), r.accountID, web.EndpointID,
			tunnel.OpenHeader{EndpointID: web.EndpointID})
		storetest.Must(t, err)
		storetest.Must(t, st.Close())
		release()
		held := s.Holders(peers.Query{Pool: peers.PoolOf(r.endpoint(web.EndpointID))})
		if len(held) != 1 || held[0].Endpoint.ID != web.EndpointID || held[0].Connections != 1 {
			t.Errorf("holders: %+v", held)
		}
	}
	storetest.Must(t, a.Unbind(t.Context(), web.EndpointID))
	r.expectNone(web.EndpointID)
	storetest.Must(t, a.Unbind(t.Context(), group.EndpointID))
	r.expectNone(group.EndpointID)
}

// TestLegs_KeepEndpointOnline holds that an endpoint is online as long as one leg is, without an
// event for those that are lost, and that the last one takes it offline.
func TestLegs_KeepEndpointOnline(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	a := r.agent(0, 1)
	id := a.bind(tunnel.Bind{URL: "http://web.demo"}).EndpointID
	r.expect(id, a, 0, 1)
	before := r.version()
	a.cut(0)
	wait.Until(t, "the leg to be left", func() bool { return r.member(0, id) == nil })
	r.legs[0].awaitLeave(t)
	storetest.Equal(t, "status", r.endpoint(id).Status, account.StatusOnline)
	storetest.Equal(t, "version", r.version(), before)
	a.cut(1)
	wait.Until(t, "the endpoint to go offline", func() bool { return r.endpoint(id).Status == account.StatusOffline })
	storetest.Equal(t, "version", r.version(), before+1)
}

// TestLegs_EndByTakeover holds that a takeover on one server ends the session that had the endpoint
// on all of them, before the bind is answered, with all that it had.
func TestLegs_EndByTakeover(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 3)
	for name, b := range map[string]tunnel.Bind{
		"endpoint": {URL: "http://web.demo"},
		"labels":   {Labels: map[string]string{"app": "web"}},
	} {
		before := r.agent(0, 1)
		other := before.bind(tunnel.Bind{URL: "http://" + name + ".other"})
		held := before.bind(b)
		r.expect(held.EndpointID, before, 0, 1)
		r.expect(other.EndpointID, before, 0, 1)
		b.ResumeSecret = held.ResumeSecret
		after := r.agent(2)
		now := after.bind(b)
		if held.EndpointID != now.EndpointID {
			r.expectNone(held.EndpointID)
		}
		for _, i := range []int{0, 1} {
			if h := r.member(i, now.EndpointID); h != nil && h.session.id == before.ID() {
				t.Errorf("%s: server %d serves with the session before", name, i)
			}
		}
		wait.Until(t, "its other endpoint to be withdrawn", func() bool {
			return r.member(0, other.EndpointID) == nil && r.member(1, other.EndpointID) == nil
		})
		storetest.Equal(t, "over", r.isOver(before.ID()), true)
		r.expect(now.EndpointID, after, 2)
	}
}

// TestStopSession_ReachesAllLegs holds that a session can be stopped and restarted through a server
// that has no connection of it.
func TestStopSession_ReachesAllLegs(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 3)
	by := account.Caller{AccountID: r.accountID}
	a := r.agent(0, 1)
	id := a.bind(tunnel.Bind{URL: "http://web.demo"}).EndpointID
	r.expect(id, a, 0, 1)
	err := r.servers[2].StopSession(t.Context(), account.Caller{AccountID: "ac-other"}, a.ID())
	storetest.MustCode(t, err, account.CodeNotFound)
	storetest.Must(t, r.servers[2].StopSession(t.Context(), by, a.ID()))
	var told *tunnel.Error
	if err := <-a.ended; !errors.As(err, &told) || told.Code != tunnel.CodeStop {
		t.Errorf("the agent ended with %v, want %s", err, tunnel.CodeStop)
	}
	wait.Until(t, "the members to go", func() bool { return r.member(0, id) == nil && r.member(1, id) == nil })
	storetest.Equal(t, "status", r.endpoint(id).Status, account.StatusOffline)
	storetest.MustCode(t, r.servers[2].StopSession(t.Context(), by, a.ID()), account.CodeNotFound)

	a = r.agent(0, 1)
	storetest.Must(t, r.servers[0].RestartSession(t.Context(), by, a.ID()))
	storetest.Equal(t, "over", r.isOver(a.ID()), true)
	<-a.Done()
	for _, i := range []int{0, 1} {
		wait.Until(t, "the leg to end", func() bool { return r.servers[i].session(a.ID()) == nil })
	}
}

// TestApplyAccess_EndsSessionsOnAllServers holds that a deleted authtoken ends a session whole.
func TestApplyAccess_EndsSessionsOnAllServers(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	a := r.agent(0, 1)
	id := a.bind(tunnel.Bind{URL: "http://web.demo"}).EndpointID
	r.expect(id, a, 0, 1)
	by := account.Caller{AccountID: r.accountID}
	storetest.Must(t, r.servers[0].store.DeleteAuthtoken(t.Context(), by, r.tokenID))
	storetest.Must(t, r.servers[1].ApplyAccess(t.Context(), "ac-other"))
	if r.member(1, id).session.stopping {
		t.Error("ended for another account")
	}
	storetest.Must(t, r.servers[1].ApplyAccess(t.Context(), r.accountID))
	wait.Until(t, "the session to end everywhere", func() bool {
		return r.servers[0].session(a.ID()) == nil && r.servers[1].session(a.ID()) == nil && r.isOver(a.ID())
	})
	storetest.Equal(t, "status", r.endpoint(id).Status, account.StatusOffline)
}

// TestJoin_Refuses holds which connections become no leg.
func TestJoin_Refuses(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	s := r.servers[1]
	a := r.agent(0)
	other, err := s.store.CreateAccount(t.Context(), "second")
	storetest.Must(t, err)
	_, foreign, err := s.store.IssueAuthtoken(t.Context(), other.ID, "", nil)
	storetest.Must(t, err)
	secret := a.Welcome().JoinSecret
	hello := func(adjust func(*tunnel.Hello)) tunnel.Hello {
		h := tunnel.Hello{Role: tunnel.RoleAgent, SessionID: a.ID(), JoinSecret: secret}
		adjust(&h)
		return h
	}
	for name, c := range map[string]struct {
		hello tunnel.Hello
		code  tunnel.Code
	}{
		"another secret":   {hello(func(h *tunnel.Hello) { h.JoinSecret = "x" }), tunnel.CodeUnknownSession},
		"no secret":        {hello(func(h *tunnel.Hello) { h.JoinSecret = "" }), tunnel.CodeUnknownSession},
		"no id":            {hello(func(h *tunnel.Hello) { h.SessionID = "x" }), tunnel.CodeUnknownSession},
		"another account":  {hello(func(h *tunnel.Hello) { h.Token = foreign }), tunnel.CodeForbidden},
		"unknown token":    {hello(func(h *tunnel.Hello) { h.Token = "flt_x" }), tunnel.CodeBadToken},
		"an old forwarder": {hello(func(h *tunnel.Hello) { h.Role = tunnel.RoleForwarder }), tunnel.CodeUnknownSession},
		"the same token":   {hello(func(h *tunnel.Hello) { h.Token = r.token }), ""},
	} {
		w, err := s.Join(t.Context(), c.hello, nil)
		var refused *tunnel.Error
		if errors.As(err, &refused) {
			storetest.Equal(t, name, refused.Code, c.code)
		} else if c.code != "" || err != nil || w.SessionID != a.ID() || w.ReplicaID == "" || w.Replicas != 2 {
			t.Errorf("%s: %+v %v, want %s", name, w, err, c.code)
		}
	}
	s.Drain(tunnel.RoleForwarder, 0)
	_, err = s.Join(t.Context(), hello(func(*tunnel.Hello) {}), nil)
	var refused *tunnel.Error
	if !errors.As(err, &refused) || refused.Code != tunnel.CodeDraining {
		t.Errorf("a server that drains: %v", err)
	}
}

// TestJoin_AdmitsForwarders holds that a forwarder joins with its authtoken and operator, or with the
// URLs that it calls.
func TestJoin_AdmitsForwarders(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 1)
	s := r.servers[0]
	o, _, err := s.store.UpsertOperator(t.Context(), account.Operator{AccountID: r.accountID, ClusterUID: "6c0f",
		EnabledFeatures: []string{account.FeatureBindings},
		Binding:         &account.OperatorBinding{EndpointSelectors: []string{"true"}},
		Deployment:      account.OperatorDeployment{Name: "n", Namespace: "s", Version: "1.0.0", ClusterName: "c"}})
	storetest.Must(t, err)
	id := "ts-" + o.ID[3:]
	hello := tunnel.Hello{Role: tunnel.RoleForwarder, SessionID: id, JoinSecret: "x", Token: r.token, OperatorID: o.ID}
	w, err := s.Join(t.Context(), hello, nil)
	storetest.Must(t, err)
	storetest.Equal(t, "session", w.SessionID, id)
	hello.OperatorID = "op-" + r.accountID[3:]
	_, err = s.Join(t.Context(), hello, nil)
	var refused *tunnel.Error
	if !errors.As(err, &refused) || refused.Code != tunnel.CodeUnavailable {
		t.Errorf("an unknown operator: %v", err)
	}
	hello.SessionID, hello.OperatorID, hello.URLs = "ts-"+r.accountID[3:], "", []string{"http://web.demo"}
	_, err = s.Join(t.Context(), hello, nil)
	storetest.Must(t, err)
	hello.URLs = []string{"http://WEB.demo:80"}
	_, err = s.Join(t.Context(), hello, nil)
	mustRefuse(t, "another form of a URL", err, tunnel.CodeInvalid, "normal form, http://web.demo")
	hello.URLs = slices.Repeat([]string{"http://web.demo"}, tunnel.MaxURLs+1)
	_, err = s.Join(t.Context(), hello, nil)
	mustRefuse(t, "too many URLs", err, tunnel.CodeInvalid, "at most 64 URLs")
}

// TestJoin_KeepsClusterOfExporter holds that an exporter's session is of its cluster on each server,
// and joins none when its key is gone.
func TestJoin_KeepsClusterOfExporter(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 1)
	s := r.servers[0]
	key := s.exporterKey("one")
	hash := sha256.Sum256([]byte("x"))
	id := account.NewID(account.PrefixTunnelSession, time.Now())
	storetest.Must(t, s.store.StartSession(t.Context(), account.TunnelSession{ID: id, AccountID: r.accountID,
		Credential: account.Ref{ID: key.ID}, JoinHash: hash[:]}))
	hello := tunnel.Hello{Role: tunnel.RoleAgent, SessionID: id, JoinSecret: "x", Token: *key.Token, ClusterUID: "one"}
	_, err := s.Join(t.Context(), hello, nil)
	storetest.Must(t, err)
	joined := s.session(id)
	owner, err := joined.bindOwner(objectBind("http://web.a", "a", "web"))
	storetest.Must(t, err)
	storetest.Equal(t, "cluster", owner.Cluster, "one")
	storetest.Equal(t, "credential", joined.token.String(), "API key "+key.ID)
	storetest.Must(t, s.store.DeleteAPIKey(t.Context(), account.Caller{AccountID: r.accountID}, key.ID))
	hello.Token = ""
	_, err = s.Join(t.Context(), hello, nil)
	mustRefuse(t, "a deleted key", err, tunnel.CodeTokenRevoked, "API key was deleted")
}

// TestJoin_SurvivesFailedLeave holds that a session which comes back while its departure could not
// be recorded keeps its new leg.
func TestJoin_SurvivesFailedLeave(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	a := r.agent(0, 1)
	id := a.bind(tunnel.Bind{URL: "http://web.demo"}).EndpointID
	r.expect(id, a, 0, 1)
	r.legs[1].fail(account.Errorf(account.CodeUnavailable, "the store does not answer"))
	a.cut(1)
	s := r.servers[1]
	wait.Until(t, "a departure that is not recorded", func() bool {
		s.registry.mu.Lock()
		defer s.registry.mu.Unlock()
		return len(s.unrecorded) == 1
	})
	r.legs[1].fail(nil)
	a.mu.Lock()
	a.servers = []int{0, 1}
	a.mu.Unlock()
	a.awaitLeg(1)
	r.expect(id, a, 1)
	s.retrySessionEnds(context.WithoutCancel(t.Context()))
	a.cut(0)
	r.legs[0].awaitLeave(t)
	storetest.Equal(t, "status", r.endpoint(id).Status, account.StatusOnline)
	r.expect(id, a, 1)
}
