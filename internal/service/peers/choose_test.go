// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestChoose_MergesEqualQuestions(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	proceed := make(chan struct{})
	holds.local.mu.Lock()
	holds.local.holders = func() { <-proceed }
	holds.local.mu.Unlock()
	found := make([]*Member, 50)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() { found[i], _ = asks.Choose(context.Background(), testQuery(), nil) })
	}
	wait.Until(t, "the question", func() bool { return holds.local.questions() > 0 })
	close(proceed)
	all.Wait()
	if n := holds.local.questions(); n != 1 {
		t.Errorf("%d questions, want 1", n)
	}
	for _, m := range found {
		if m == nil || m != found[0] {
			t.Fatalf("members %v differ", found)
		}
		m.Release()
	}
	if again := asks.choose(t); again != found[0] || holds.local.questions() != 1 {
		t.Errorf("another member %p, or %d questions", again, holds.local.questions())
	}
}

func TestChoose_PrefersFewestConnections(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one, two, three := c.start("rp-1"), c.start("rp-2"), c.start("rp-3")
	agent := agentSession(t, echo)
	for id, r := range map[string]*testReplica{"ep-2": two, "ep-3": three} {
		h := testHolder(id)
		h.Connections = map[string]int{"ep-2": 4, "ep-3": 1}[id]
		r.local.add(h, agent)
	}
	c.linked(one, two, three)
	one.choose(t)
	wait.Until(t, "both answers", func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		return len(one.questions[keyOf(testQuery())].members) == 2
	})
	counts := make(map[string]int)
	for range 9 {
		counts[one.choose(t).Endpoint().ID]++
	}
	if counts["ep-3"] < 5 || counts["ep-2"] < 3 {
		t.Errorf("chosen %v", counts)
	}
	first := one.choose(t)
	second, err := one.Choose(t.Context(), testQuery(), []*Member{first})
	if err != nil || second == first {
		t.Errorf("the second choice is %v, %v", second, err)
	}
	if _, err := one.Choose(t.Context(), testQuery(), []*Member{first, second}); codeOf(err) !=
		string(account.CodeEndpointOffline) {
		t.Errorf("error %v", err)
	}
}

func TestChoose_SkipsSilentPeer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one, two, three := c.start("rp-1"), c.start("rp-2"), c.start("rp-3")
	two.local.add(testHolder("ep-1"), agentSession(t, echo))
	c.linked(one, two, three)
	proceed := make(chan struct{})
	three.local.holders = func() { <-proceed }
	defer close(proceed)
	began := time.Now()
	one.choose(t)
	if took := time.Since(began); took > questionTimeout/2 {
		t.Errorf("an answer that is there took %v", took)
	}
	began = time.Now()
	q := testQuery()
	q.Host = "missing.demo"
	_, err := one.Choose(t.Context(), q, nil)
	if took := time.Since(began); codeOf(err) != string(account.CodeEndpointOffline) || took < questionTimeout/2 ||
		took > 2*questionTimeout {
		t.Errorf("error %v after %v", err, took)
	}
}

func TestChoose_WaitsForFirstLink(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	holds := c.start("rp-2")
	holds.local.add(testHolder("ep-1"), agentSession(t, echo))
	asks := c.start("rp-1")
	wait.Until(t, "the first read", func() bool { return len(asks.Status()) == 1 })
	asks.choose(t)
}

func TestChoose_ForgetsOfflineMember(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	m := asks.choose(t)
	holds.local.remove("ep-1")
	_, err := open(t, m).Read(make([]byte, 1))
	if codeOf(err) != "refused: the endpoint is offline" {
		t.Errorf("error %v", err)
	}
	if m.Context().Err() == nil {
		t.Error("the member is not gone")
	}
	if _, err := m.Open(t.Context(), tunnel.OpenHeader{}); codeOf(err) != string(account.CodeEndpointOffline) {
		t.Errorf("error %v", err)
	}
	holder := testHolder("ep-1")
	holder.Asked = holder.Asked.Add(time.Second)
	holds.local.add(holder, nil)
	wait.Until(t, "the new member", func() bool {
		again, err := asks.Choose(t.Context(), testQuery(), nil)
		return err == nil && again != m
	})
}

func TestChoose_AsksAgainAfterChange(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	m := asks.choose(t)
	holds.local.remove("ep-1")
	if again := asks.choose(t); again != m || m.Context().Err() != nil {
		t.Error("the answer was not used again")
	}
	must.Succeed(t, holds.Publish(t.Context(), testChange()))
	if _, err := asks.Choose(t.Context(), testQuery(), nil); codeOf(err) != string(account.CodeEndpointOffline) {
		t.Errorf("error %v", err)
	}
	if m.Context().Err() == nil {
		t.Error("the peer does not name the member any more, and it is not gone")
	}
	holds.local.add(testHolder("ep-1"), nil)
	must.Succeed(t, holds.Publish(t.Context(), testChange()))
	asks.choose(t) // a negative answer, too, was forgotten
}

func TestChoose_KeepsAnswersAfterChangeOfOtherAccount(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	asks.choose(t)
	for _, c := range []struct {
		change Change
		again  bool // the peer is asked again
	}{
		{Change{Kind: ChangeSessions, AccountIDs: []string{"ac-8", "ac-9"}}, false},
		{Change{Kind: ChangeAccess, AccountID: "ac-9"}, false},
		{Change{Kind: ChangeSessions, AccountIDs: []string{"ac-9", testAccount}}, true},
		{Change{Kind: ChangeAccess, AccountID: testAccount}, true},
		{Change{Kind: ChangeSessions}, true}, // of a version without the accounts
	} {
		before := holds.local.questions()
		for _, by := range []*testReplica{asks, holds} {
			must.Succeed(t, by.Publish(t.Context(), c.change))
			asks.choose(t)
		}
		want := before
		if c.again {
			want += 2
		}
		if got := holds.local.questions(); got != want {
			t.Errorf("%+v: %d questions, want %d", c.change, got, want)
		}
	}
}

// TestChoose_KeepsLaterPolicy has the answer to an earlier question arrive last.
func TestChoose_KeepsLaterPolicy(t *testing.T) {
	t.Parallel()
	asks, _ := newCluster(t).pair(echo)
	m := asks.choose(t)
	later, earlier := testHolder("ep-1"), testHolder("ep-1")
	later.Endpoint.TrafficPolicy = "later"
	asks.mu.Lock()
	defer asks.mu.Unlock()
	next := asks.sequence + 2
	m.link.recordAnswerLocked(keyOf(testQuery()), next, []Holder{later})
	m.link.recordAnswerLocked(keyOf(testQuery()), next-1, []Holder{earlier})
	if got := m.Endpoint().TrafficPolicy; got != "later" {
		t.Errorf("policy %q", got)
	}
}

func TestChoose_PassesOverUnresponsiveAgents(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	holds.local.set("ep-1", func(m *testMember) { m.holder.Unresponsive = true })
	_, err := asks.Choose(t.Context(), testQuery(), nil)
	if codeOf(err) != string(account.CodeAgentSilent) || !errors.Is(err, tunnel.ErrUnresponsive) {
		t.Errorf("error %v", err)
	}
	holds.local.set("ep-1", func(m *testMember) { m.holder.Unresponsive = false })
	wait.Until(t, "the agent", func() bool {
		_, err := asks.Choose(t.Context(), testQuery(), nil)
		return err == nil
	})
	holds.local.set("ep-1", func(m *testMember) { m.err = tunnel.ErrUnresponsive })
	m := asks.choose(t)
	if _, err := open(t, m).Read(make([]byte, 1)); !errors.Is(err, tunnel.ErrUnresponsive) {
		t.Errorf("error %v", err)
	}
	if m.Context().Err() != nil {
		t.Error("the member is gone, though its agent may respond again")
	}
	asks.mu.Lock()
	defer asks.mu.Unlock()
	if ready, silent := m.canServeLocked(); ready || !silent {
		t.Error("the member is chosen again before its replica was asked")
	}
}

// TestChoose_PublicAddressBelongsToLatestBind has two accounts that have bound a public address.
func TestChoose_PublicAddressBelongsToLatestBind(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	one, two, three := c.start("rp-1"), c.start("rp-2"), c.start("rp-3")
	older, newer := testHolder("ep-2"), testHolder("ep-3")
	newer.Endpoint.AccountID, newer.Asked = "ac-2", older.Asked.Add(time.Hour)
	two.local.add(older, nil)
	three.local.add(newer, nil)
	c.linked(one, two, three)
	q := Query{Pool: PublicAddress("api.demo", 80)}
	proceed := make(chan struct{})
	three.local.mu.Lock()
	three.local.holders = func() { <-proceed }
	three.local.mu.Unlock()
	go func() {
		defer close(proceed)
		wait.Until(t, "the answer of the older account's replica", func() bool {
			one.mu.Lock()
			defer one.mu.Unlock()
			qn := one.questions[keyOf(q)]
			return qn != nil && len(qn.members) == 1
		})
	}()
	for range 3 {
		m, err := one.Choose(t.Context(), q, nil)
		if err != nil || m.Endpoint().ID != "ep-3" || !m.asked.Equal(newer.Asked) || m.ReplicaID() != "rp-3" {
			t.Errorf("chosen %v, %v", m, err)
		}
	}
}

func TestMember_EndsWithLinkAndRow(t *testing.T) {
	t.Parallel()
	t.Run("peer stops", func(t *testing.T) {
		asks, holds := newCluster(t).pair(echo)
		m := asks.choose(t)
		st := open(t, m)
		send(t, st, "x")
		if _, err := st.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		holds.stop()
		wait.Receive(t, "the member's end", m.Context().Done())
		if _, err := st.Read(make([]byte, 1)); err == nil {
			t.Error("a stream outlives its link without an error")
		}
		if _, err := asks.Choose(t.Context(), testQuery(), nil); codeOf(err) != string(account.CodeEndpointOffline) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("row is gone", func(t *testing.T) {
		c := newCluster(t)
		asks, holds := c.pair(echo)
		m := asks.choose(t)
		c.registry.remove("rp-2")
		wait.Receive(t, "the member's end", m.Context().Done())
		wait.Until(t, "no peer", func() bool { return len(asks.Status()) == 0 })
		wait.Until(t, "the end of the gone replica's link", func() bool {
			s := holds.Status()
			return len(s) == 1 && !s[0].Connected
		})
	})
}

func TestMember_RemovedWhenUnused(t *testing.T) {
	t.Parallel()
	asks, _ := newCluster(t).pair(echo)
	m, err := asks.Choose(t.Context(), testQuery(), nil)
	must.Succeed(t, err)
	later := time.Now().Add(2 * unusedLifetime)
	asks.removeUnused(later)
	if m.Context().Err() != nil {
		t.Error("a member in use was removed")
	}
	m.Release()
	asks.removeUnused(later)
	if m.Context().Err() == nil || asks.Status()[0].Members != 0 {
		t.Error("an unused member was not removed")
	}
}

func TestPeers_StatusOfLink(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	asks, holds := c.pair(echo)
	open(t, asks.choose(t))
	wait.Until(t, "the counters and a ping", func() bool {
		out, in := asks.Status()[0], holds.Status()[0]
		return out.RelayedOut == 1 && out.Members == 1 && in.RelayedIn == 1 && out.RoundTrip > 0
	})
	s := asks.Status()[0]
	if s.ID != "rp-2" || s.Address != holds.addr || s.Version != "v1" || !s.Connected || s.Error != "" ||
		time.Since(s.Since) > time.Minute {
		t.Errorf("status %+v", s)
	}
}
