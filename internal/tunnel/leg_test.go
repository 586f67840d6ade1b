// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLegs_FoundBehindBalancer(t *testing.T) {
	t.Parallel()
	balancers := map[string]func(int) int{"round robin": roundRobin()}
	for seed := range uint64(8) {
		balancers[fmt.Sprint("random ", seed)] = atRandom(seed)
	}
	for name, next := range balancers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newFakeReplicas(t, 3, next)
				var changes atomic.Int32
				c := r.startClient(ClientConfig{Hello: func() Hello {
					return Hello{Role: RoleForwarder, Token: "flt_x", OperatorID: "op_1", InstanceID: "i"}
				}, OnLegs: func(*Session) { changes.Add(1) }})
				s := c.awaitSession(t)
				time.Sleep(2 * idleTime)
				awaitLegs(t, s, r.ids()...)
				for _, l := range s.Legs() {
					if l.Connections != 1 || l.Draining || l.Unresponsive || l.Streams != 0 {
						t.Errorf("leg %+v", l)
					}
				}
				if n := r.dialed(); n > 13 || s.WantedLegs() != 3 || changes.Load() < 3 {
					t.Errorf("%d dials, %d legs wanted, %d changes told", n, s.WantedLegs(), changes.Load())
				}
				want := Hello{Role: RoleForwarder, Token: "flt_x", OperatorID: "op_1", InstanceID: "i",
					Features:  []Feature{FeatureReplicas, FeatureReplicaAddresses, FeatureSpares},
					SessionID: s.ID(), JoinSecret: s.welcome.JoinSecret}
				for _, p := range r.live {
					if p.session(s.ID()) == nil || len(p.server.Sessions()) != 1 {
						t.Errorf("%s does not have the session", p.id)
					}
					for _, hello := range p.joins {
						if d := cmp.Diff(want, hello); d != "" {
							t.Error(d)
						}
					}
				}
				echoBytes(t, s, 1<<10)
				time.Sleep(time.Hour)
				if n := r.dialed(); n != 0 || s.Err() != nil {
					t.Errorf("%d dials although every leg is there; the session: %v", n, s.Err())
				}
			})
		})
	}
}

func TestLegs_AtMostMaxLegs(t *testing.T) {
	t.Parallel()
	for maxLegs, want := range map[int]int{0: 3, 1: 1, 2: 2, 9: 5} {
		synctest.Test(t, func(t *testing.T) {
			r := newFakeReplicas(t, 5, roundRobin())
			s := r.startClient(ClientConfig{MaxLegs: maxLegs}).awaitSession(t)
			time.Sleep(10 * time.Minute)
			// Two connections there are in any case.
			if n := len(s.Legs()); s.WantedLegs() != want || n < want || n > max(want, defaultConnections) {
				t.Errorf("MaxLegs %d: %d legs, %d wanted, want %d", maxLegs, n, s.WantedLegs(), want)
			}
		})
	}
}

// TestLegs_PinnedBalancer checks that a session whose balancer always chooses the same replica
// keeps two connections and searches in rounds of 8 dials for each replica, with two minutes between.
func TestLegs_PinnedBalancer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReplicas(t, 3, pinned)
		s := r.startClient(ClientConfig{}).awaitSession(t)
		time.Sleep(legSearchPause / 2)
		if n := r.dialed(); n != 1+8*3 {
			t.Errorf("%d dials at first, want 25", n)
		}
		for range 5 {
			time.Sleep(legSearchPause + 27*time.Second) // the pauses between the dials of a round
			if n := r.dialed(); n != 8*3 {
				t.Errorf("%d dials in a round, want 24", n)
			}
		}
		awaitLegs(t, s, "rp_1")
		if n, far := s.Legs()[0].Connections, openLinks(r.live[0].session(s.ID())); n != 2 || far != 2 {
			t.Errorf("the client has %d connections, the server %d, want 2", n, far)
		}
		r.setNumber(2)
		time.Sleep(10 * time.Millisecond)
		if n := r.dialed(); n != 2 {
			t.Errorf("%d dials after the number of replicas changed, want 2 at once", n)
		}
		time.Sleep(20 * time.Second)
		if n := r.dialed(); n != 7*2 {
			t.Errorf("%d dials followed, want 14", n)
		}
		r.setNumber(1)
		time.Sleep(time.Hour)
		if n := r.dialed(); n != 0 || s.Err() != nil {
			t.Errorf("%d dials although there is one replica; the session: %v", n, s.Err())
		}
	})
}

func TestLegs_LostOneIsReplaced(t *testing.T) {
	withReplicas(t, 3, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		r.kill(r.live[1])
		awaitLegs(t, s, "rp_1", "rp_3")
		r.start()
		time.Sleep(legSearchPause + time.Second)
		awaitLegs(t, s, "rp_1", "rp_3", "rp_4")
		r.kill(r.live[0]) // the one of the first connection
		r.start()
		time.Sleep(time.Second)
		awaitLegs(t, s, "rp_3", "rp_4", "rp_5")
		echoBytes(t, s, 1<<10)
		if s != c.Session() || len(c.downs) != 0 {
			t.Error("the session did not survive")
		}
	})
}

func TestLegs_FollowNumberOfReplicas(t *testing.T) {
	withReplicas(t, 2, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		r.start()
		time.Sleep(time.Hour)
		if n := r.dialed(); n != 0 {
			t.Errorf("%d dials for a replica that is not announced", n)
		}
		r.setNumber(3)
		time.Sleep(time.Second)
		awaitLegs(t, s, "rp_1", "rp_2", "rp_3")
		r.kill(r.live[2])
		r.setNumber(2)
		time.Sleep(time.Hour)
		awaitLegs(t, s, "rp_1", "rp_2")
		r.dialed()
		time.Sleep(time.Hour)
		if n := r.dialed(); n != 0 || s.WantedLegs() != 2 {
			t.Errorf("%d dials, %d legs wanted", n, s.WantedLegs())
		}
	})
}

// TestLegs_UnresponsiveReplica checks that a stopped replica takes no new streams and requests, and
// is replaced where there are more.
func TestLegs_UnresponsiveReplica(t *testing.T) {
	cfg := ClientConfig{Hello: agentHello, MaxLegs: 2}
	withReplicas(t, 2, cfg, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		stopped := r.live[0]
		stopped.process.Stop()
		r.mu.Lock()
		r.next = func(n int) int { return n - 1 } // a balancer with health checks
		r.mu.Unlock()
		for _, l := range s.links.active {
			l.mux.Probe()
		}
		time.Sleep(2 * time.Second)
		if _, yes := s.Unresponsive(); yes {
			t.Error("the session counts as unresponsive while one replica responds")
		}
		if legs := s.Legs(); !legs[0].Unresponsive || legs[1].Unresponsive {
			t.Errorf("legs %+v", legs)
		}
		for range 4 {
			if _, err := s.Bind(t.Context(), Bind{URL: "http://a.b", Name: "x"}); err != nil {
				t.Errorf("a bind: %v", err)
			}
			st, err := s.Open(t.Context(), fullHeader())
			if err != nil || st.link.replicaID != "rp_2" {
				t.Fatalf("a stream on %s: %v", st.link.replicaID, err)
			}
			_ = st.Close()
		}
		r.start()
		r.setNumber(3)
		time.Sleep(2 * time.Second)
		if legs := legIDs(s); !slices.Equal(legs, []string{"rp_1", "rp_2", "rp_3"}) {
			t.Errorf("legs %q", legs)
		}
		stopped.process.Continue()
		time.Sleep(time.Second)
		time.Sleep(idleTime + 2*shrinkInterval)
		if n := len(s.Legs()); n != 2 || s.Err() != nil {
			t.Errorf("%d legs once the replica responds again: %+v, %v", n, s.Legs(), s.Err())
		}
	})
}

// TestLegs_DemandIsOfOneReplica checks that each leg grows when one replica asks for connections,
// and that all legs stay when the session shrinks.
func TestLegs_DemandIsOfOneReplica(t *testing.T) {
	withReplicas(t, 3, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		far := r.live[1].session(s.ID())
		far.mu.Lock()
		l := far.links.active[0]
		far.mu.Unlock()
		l.conn.markBusy()
		time.Sleep(time.Second)
		for _, leg := range s.Legs() {
			if leg.Connections != 4 {
				t.Errorf("leg %+v, want 4 connections", leg)
			}
		}
		time.Sleep(desireTime + idleTime + 20*shrinkInterval)
		for _, leg := range s.Legs() {
			if leg.Connections != 1 {
				t.Errorf("leg %+v, want 1 connection", leg)
			}
		}
		awaitLegs(t, s, r.ids()...)
	})
}

func TestLegs_FixedNumberOfConnections(t *testing.T) {
	withReplicas(t, 3, ClientConfig{Connections: 1}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		if n := openLinks(c.Session()); n != 3 {
			t.Errorf("%d connections, want one for each replica", n)
		}
	})
}

// TestLegs_RefuseOtherSession checks that a replica which answers for another account is no leg.
func TestLegs_RefuseOtherSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReplicas(t, 2, roundRobin())
		r.live[1].handler.join = func(_ context.Context, h Hello) (Welcome, error) {
			return Welcome{SessionID: h.SessionID, AccountID: "acc_other", ReplicaID: "rp_2"}, nil
		}
		s := r.startClient(ClientConfig{}).awaitSession(t)
		time.Sleep(5 * time.Minute)
		awaitLegs(t, s, "rp_1")
	})
}

func TestLegs_StopEndsSessionOnAllReplicas(t *testing.T) {
	withReplicas(t, 3, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		r.live[1].session(s.ID()).Stop(CodeDraining, "this replica is about to stop")
		synctest.Wait()
		r.kill(r.live[1])
		awaitLegs(t, s, "rp_1", "rp_3")
		r.live[0].session(s.ID()).Stop(CodeTokenRevoked, "the token was deleted")
		var refused *Error
		if err := <-c.result; !errors.As(err, &refused) || refused.Code != CodeTokenRevoked {
			t.Errorf("Run returned %v", err)
		}
		synctest.Wait()
		for _, p := range r.live {
			if len(p.server.Sessions()) != 0 {
				t.Errorf("%s still has the session", p.id)
			}
		}
	})
}

// TestLegs_RefusingReplicaIsAvoided checks a replica that refuses streams because it drains, before
// its DRAIN has come: the next streams go to another one.
func TestLegs_RefusingReplicaIsAvoided(t *testing.T) {
	withReplicas(t, 2, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		var refuses atomic.Bool
		refuses.Store(true)
		r.live[0].handler.stream = func(_ context.Context, _ *Session, st *Stream) {
			if refuses.Load() {
				_ = st.Refuse(RefusedDraining)
				return
			}
			echo(st)
		}
		refusals := 0
		for range 20 {
			st := open(t, s)
			var refused *RefusedError
			if errors.As(st.WaitOpened(t.Context()), &refused) {
				refusals++
				if st.ReplicaID() != "rp_1" {
					t.Errorf("%s refused", st.ReplicaID())
				}
			}
			_ = st.Close()
		}
		if refusals > 1 {
			t.Errorf("%d streams were refused", refusals)
		}
		time.Sleep(avoidTime)
		refuses.Store(false)
		ids := map[string]bool{}
		for range 2 {
			st := open(t, s)
			defer st.Close()
			ids[st.ReplicaID()] = true
		}
		if len(ids) != 2 {
			t.Errorf("after that streams went to %v", ids)
		}
	})
}

// TestLegs_LateWelcome checks that the welcome of a further connection with a replica, which was on
// its way while a message on another one changed the number of replicas, does not restore it.
func TestLegs_LateWelcome(t *testing.T) {
	t.Parallel()
	for _, later := range []int{2, 4} {
		s := NewClient(ClientConfig{MaxLegs: 5}).newSession(Hello{}, Welcome{SessionID: "s"}, nil)
		welcome := &Welcome{SessionID: "s", ReplicaID: "rp_1", Replicas: 3}
		first := &link{conn: &muxConn{}}
		_, _, err := s.legs.addLink(first, welcome)
		if err != nil {
			t.Fatal(err)
		}
		s.legs.handleReplicas(first, later, nil)
		if _, _, err := s.legs.addLink(&link{conn: &muxConn{}}, welcome); err != nil {
			t.Fatal(err)
		}
		if n := s.WantedLegs(); n != later {
			t.Errorf("%d legs wanted after the welcome of another connection, want %d", n, later)
		}
	}
}
