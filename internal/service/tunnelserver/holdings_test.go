// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestApplySessions_FollowsRebinds holds that another bind of an endpoint, on the same or another
// leg, is known to all legs when it is answered, and that a repeated reading changes nothing.
func TestApplySessions_FollowsRebinds(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	r.awaitOthers()
	a := r.agent(0, 1)
	bound := a.bind(tunnel.Bind{URL: "http://web.demo", TrafficPolicy: "first"})
	r.expect(bound.EndpointID, a, 0, 1)
	members := []*Member{r.member(0, bound.EndpointID), r.member(1, bound.EndpointID)}
	for i, s := range r.servers {
		storetest.Must(t, s.ApplySessions(t.Context(), peers.Change{IDs: []string{a.ID(), "ts-unknown"}}))
		if h := r.member(i, bound.EndpointID); h != members[i] || h.Context().Err() != nil {
			t.Errorf("server %d replaced its member without a change", i)
		}
	}
	storetest.Equal(t, "time of the bind", members[0].asked.Equal(members[1].asked), true)
	a.bind(tunnel.Bind{URL: "http://web.demo", TrafficPolicy: "second", ResumeSecret: bound.ResumeSecret})
	for i := range r.servers {
		storetest.Equal(t, "policy", r.member(i, bound.EndpointID).Endpoint().TrafficPolicy, "second")
		if members[i].Context().Err() == nil {
			t.Errorf("server %d serves on under the policy before", i)
		}
	}
}

// TestApplySessions_FollowsPoolPolicy holds that a policy which a bind gives to a whole pool
// applies on all servers when the bind is answered, and ends nothing.
func TestApplySessions_FollowsPoolPolicy(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 3)
	r.awaitOthers()
	a, b := r.agent(0, 1), r.agent(2)
	bind := tunnel.Bind{URL: "http://pool.demo", Name: "a", PoolingEnabled: true, TrafficPolicy: "first"}
	id := a.bind(bind).EndpointID
	r.expect(id, a, 0, 1)
	members := []*Member{r.member(0, id), r.member(1, id)}
	bind.Name, bind.TrafficPolicy, bind.ReplacePoolPolicy = "b", "second", true
	b.bind(bind)
	r.expectSecondPolicy(id, members)
}

// expectSecondPolicy holds that the members of the first servers are the same and have the policy
// "second", which the store is not read again for.
func (r *replicas) expectSecondPolicy(id string, members []*Member) {
	r.t.Helper()
	for i, h := range members {
		storetest.Equal(r.t, "policy", h.Endpoint().TrafficPolicy, "second")
		if r.member(i, id) != h || h.Context().Err() != nil {
			r.t.Errorf("server %d replaced the member", i)
		}
	}
	reads := r.legs[0].readings()
	storetest.Must(r.t, r.servers[0].Compare(r.t.Context()))
	storetest.Equal(r.t, "readings of what has not changed", r.legs[0].readings(), reads)
}

// TestApplySessions_ExcludesBinds holds that a reading which was under way when the session bound
// and unbound on the same server undoes neither.
func TestApplySessions_ExcludesBinds(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 1)
	a := r.agent(0)
	s := r.servers[0]
	gone := a.bind(tunnel.Bind{URL: "http://gone.demo"}).EndpointID
	s.Wait()
	paused, resume := r.legs[0].pauseNext()
	defer resume()
	applied := make(chan error, 1)
	go func() {
		applied <- s.ApplySessions(context.WithoutCancel(t.Context()), peers.Change{IDs: []string{a.ID()}})
	}()
	<-paused
	bound := make(chan tunnel.Bound, 1)
	go func() {
		bound <- a.bind(tunnel.Bind{URL: "http://new.demo"})
		storetest.Must(t, a.Unbind(context.WithoutCancel(t.Context()), gone))
		close(bound)
	}()
	select { // an unguarded bind is answered now, and the reading is older
	case <-bound:
		t.Error("a bind was answered during a reading")
	case <-time.After(200 * time.Millisecond):
	}
	resume()
	storetest.Must(t, <-applied)
	id := (<-bound).EndpointID
	<-bound
	r.expect(id, a, 0)
	r.expectNone(gone)
}

// TestApplySessions_KeepsTakeover holds that a reading of the session which had an endpoint does
// not undo the takeover that came after it.
func TestApplySessions_KeepsTakeover(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 1)
	s := r.servers[0]
	before, after := r.agent(0), r.agent(0)
	bound := before.bind(tunnel.Bind{URL: "http://web.demo"})
	paused, resume := r.legs[0].pauseNext()
	defer resume()
	applied := make(chan error, 1)
	go func() {
		applied <- s.ApplySessions(context.WithoutCancel(t.Context()), peers.Change{IDs: []string{before.ID()}})
	}()
	<-paused
	held := s.session(before.ID())
	now := s.session(after.ID())
	row, _, err := s.bind(t.Context(), now, now.token, tunnel.Bind{URL: "http://web.demo",
		UpstreamURL: "tcp://localhost:1", ResumeSecret: bound.ResumeSecret})
	storetest.Must(t, err)
	storetest.Equal(t, "replaced", row.ReplacedSessionID, before.ID())
	resume()
	storetest.Must(t, <-applied)
	storetest.Equal(t, "holder", r.member(0, bound.EndpointID).session.id, after.ID())

	// the answer to a bind that is older than a takeover
	row.Endpoint.ResourceVersion.Seq--
	s.members.add(held, row, "", time.Now())
	storetest.Equal(t, "holder", r.member(0, bound.EndpointID).session.id, after.ID())
}

// TestBind_RepeatsOverAnotherLeg holds that an agent whose bind was not answered, for its leg was
// lost, may bind again over another, which knows the endpoint already.
func TestBind_RepeatsOverAnotherLeg(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	a := r.agent(0, 1)
	id := a.bind(tunnel.Bind{URL: "http://web.demo"}).EndpointID
	r.expect(id, a, 0, 1)
	a.cut(0)
	storetest.Equal(t, "endpoint", a.bind(tunnel.Bind{URL: "http://web.demo"}).EndpointID, id)
	r.expect(id, a, 1)
}

// TestCompare_FindsUnpublishedChanges holds that a comparison finds what other servers have
// changed without a word, and that it says when it began, if it was complete.
func TestCompare_FindsUnpublishedChanges(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	a := r.agent(0, 1)
	kept := a.bind(tunnel.Bind{URL: "http://kept.demo"}).EndpointID
	gone := a.bind(tunnel.Bind{URL: "http://gone.demo"}).EndpointID
	group := a.bind(tunnel.Bind{Labels: map[string]string{"app": "web"}}).EndpointID
	for _, id := range []string{kept, gone, group} {
		r.expect(id, a, 0, 1)
	}
	s, quiet := r.servers[1], r.servers[0].store
	storetest.Must(t, quiet.Unbind(t.Context(), r.accountID, gone, a.ID()))
	storetest.Must(t, quiet.EndTunnel(t.Context(), r.accountID, group, a.ID()))
	storetest.Must(t, s.Compare(t.Context()))
	for id, want := range map[string]bool{kept: true, gone: false, group: false} {
		storetest.Equal(t, id, r.member(1, id) != nil, want)
	}
	storetest.Must(t, quiet.EndSession(t.Context(), r.accountID, a.ID(), account.SessionEnd{}))
	r.legs[1].fail(account.Errorf(account.CodeUnavailable, "the store does not answer"))
	storetest.MustCode(t, s.Compare(t.Context()), account.CodeUnavailable)
	r.legs[1].fail(nil)
	storetest.Must(t, s.ApplySessions(t.Context(), peers.Change{IDs: []string{a.ID()}})) // does not know why it ended
	storetest.Equal(t, "stopping", s.isStopping(s.session(a.ID())), false)
	storetest.Must(t, s.Compare(t.Context()))
	wait.Until(t, "the session to end", func() bool { return s.session(a.ID()) == nil })
}

// TestJoin_RemovesUnstartedLeg holds that a leg whose connection ended before it was up keeps no
// endpoint online.
func TestJoin_RemovesUnstartedLeg(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	a := r.agent(0)
	id := a.bind(tunnel.Bind{URL: "http://web.demo"}).EndpointID
	s := r.servers[1]
	_, err := s.Join(t.Context(), tunnel.Hello{Role: tunnel.RoleAgent, SessionID: a.ID(),
		JoinSecret: a.Welcome().JoinSecret}, nil)
	storetest.Must(t, err)
	a.cut(0)
	s.forgetUnstarted(time.Now().Add(2 * startTimeout))
	s.retrySessionEnds(t.Context())
	wait.Until(t, "the endpoint to go offline", func() bool { return r.endpoint(id).Status == account.StatusOffline })
}
