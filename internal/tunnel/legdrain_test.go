// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// drain makes a replica drain: it tells its sessions, and refuses new ones and new connections.
func (p *fakeReplica) drain(t *testing.T, d time.Duration) {
	t.Helper()
	p.draining.Store(true)
	for _, s := range p.server.Sessions() {
		if err := s.Drain(d); err != nil {
			t.Fatal(err)
		}
	}
}

// openOn opens streams until one is on the replica.
func openOn(t *testing.T, s *Session, id string) *Stream {
	t.Helper()
	for range 100 {
		st := open(t, s)
		if err := st.WaitOpened(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st.link.replicaID == id {
			return st
		}
	}
	t.Fatalf("no stream on %s", id)
	return nil
}

// finish checks that a stream still works, and ends it.
func finish(t *testing.T, st *Stream) {
	t.Helper()
	_, _ = io.WriteString(st, "still alive")
	_ = st.CloseWrite()
	if b, err := io.ReadAll(struct{ io.Reader }{st}); err != nil || string(b) != "still alive" {
		t.Errorf("a live stream received %q, %v", b, err)
	}
	_ = st.Close()
}

// isDraining reports whether the session as a whole drains.
func isDraining(s *Session) bool {
	select {
	case <-s.PeerDraining():
		return true
	default:
		return false
	}
}

func TestLegs_DrainingReplicaIsLeft(t *testing.T) {
	var lines atomic.Int32
	cfg := ClientConfig{OnRequestLine: func(RequestLine) { lines.Add(1) }}
	withReplicas(t, 3, cfg, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s, leaves := c.Session(), r.live[0]
		st, stays := openOn(t, s, "rp_1"), openOn(t, s, "rp_2")
		r.start()
		leaves.drain(t, 10*time.Second)
		time.Sleep(5 * time.Second)
		awaitLegs(t, s, "rp_1", "rp_2", "rp_3", "rp_4")
		if st.PeerDraining().Err() == nil || stays.PeerDraining().Err() != nil {
			t.Error("the streams of the replica that drains, and they alone, were not told")
		}
		_ = stays.Close()
		if legs := s.Legs(); !legs[0].Draining || legs[0].Streams != 1 || legs[1].Draining {
			t.Errorf("legs %+v", legs)
		}
		for range 8 {
			if st := open(t, s); st.link.replicaID == "rp_1" {
				t.Error("a new stream on the replica that drains")
			}
		}
		if _, err := leaves.session(s.ID()).Open(t.Context(), fullHeader()); err == nil {
			t.Error("the replica that drains opened a stream")
		}
		leaves.session(s.ID()).SendRequestLine(RequestLine{EndpointID: "ep_1"})
		time.Sleep(time.Second)
		if lines.Load() != 1 {
			t.Error("no request line of the stream that finishes")
		}
		finish(t, st)
		awaitLegs(t, s, "rp_2", "rp_3", "rp_4")
		if len(leaves.server.Sessions()) != 0 {
			t.Error("the replica still has the session after its last stream")
		}
		if s != c.Session() || isDraining(s) || len(c.downs) != 0 {
			t.Error("the session did not survive")
		}
	})
}

// TestLegs_AllReplicasReplaced checks that a session outlives a rolling restart.
func TestLegs_AllReplicasReplaced(t *testing.T) {
	withReplicas(t, 3, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		for range 3 {
			leaves := r.live[0]
			r.start()
			leaves.drain(t, 10*time.Second)
			echoBytes(t, s, 1<<10)
			time.Sleep(10 * time.Second)
			r.kill(leaves)
			time.Sleep(2 * legSearchPause)
			echoBytes(t, s, 1<<10)
		}
		awaitLegs(t, s, "rp_4", "rp_5", "rp_6")
		if s != c.Session() || len(c.downs) != 0 {
			t.Error("the session did not survive")
		}
	})
}

// TestLegs_OnlyReplicaDrains checks that a session whose only replica drains is continued on
// another one that is found in time, and else drains as a whole.
func TestLegs_OnlyReplicaDrains(t *testing.T) {
	for name, c := range map[string]struct {
		starts  time.Duration // when another replica is there
		survive bool
	}{"replaced": {2 * time.Second, true}, "too late": {6 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			withReplicas(t, 1, ClientConfig{}, func(t *testing.T, r *fakeReplicas, client *testClient) {
				s, leaves := client.Session(), r.live[0]
				st := openOn(t, s, "rp_1")
				leaves.drain(t, 10*time.Second)
				synctest.Wait()
				var refused *Error
				if _, err := s.Open(t.Context(), fullHeader()); !errors.As(err, &refused) ||
					refused.Code != CodeDraining || s.CanOpen() || isDraining(s) {
					t.Errorf("a new stream while another replica is looked for: %v", err)
				}
				time.Sleep(c.starts)
				r.start()
				r.mu.Lock()
				r.next = func(n int) int { return n - 1 }
				r.mu.Unlock()
				time.Sleep(11*time.Second - c.starts)
				finish(t, st)
				synctest.Wait()
				if (s == client.Session()) != c.survive || isDraining(s) == c.survive || (s.Err() == nil) != c.survive {
					t.Errorf("the session survived: %v; it drains: %v; %v", s == client.Session(), isDraining(s),
						s.Err())
				}
				awaitLegs(t, client.Session(), "rp_2")
				if n := r.dialed(); n > 60 {
					t.Errorf("%d dials", n)
				}
				echoBytes(t, client.Session(), 1<<10)
			})
		})
	}
}

// TestLegs_OnlyReplicaDrainsAndOthersRefuse checks that the search ends at once when another
// replica does not take the session.
func TestLegs_OnlyReplicaDrainsAndOthersRefuse(t *testing.T) {
	withReplicas(t, 1, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s, leaves := c.Session(), r.live[0]
		r.start().handler.join = nil
		leaves.drain(t, time.Hour)
		time.Sleep(legSearchPause)
		if !isDraining(s) || c.Session() == s || c.Session() == nil {
			t.Error("no new session")
		}
	})
}

// TestLegs_LastOneLostWhileAnotherDrains checks that a session is continued on a new replica when
// the only one that does not drain is lost.
func TestLegs_LastOneLostWhileAnotherDrains(t *testing.T) {
	withReplicas(t, 2, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		st := openOn(t, s, "rp_1")
		r.live[0].drain(t, time.Minute)
		time.Sleep(time.Second)
		r.kill(r.live[1])
		r.start()
		time.Sleep(10 * time.Second)
		awaitLegs(t, s, "rp_1", "rp_3")
		finish(t, st)
		awaitLegs(t, s, "rp_3")
		if s != c.Session() || isDraining(s) {
			t.Error("the session did not survive")
		}
	})
}

// TestSession_DrainTellsAllReplicas checks that a client that drains tells also the replicas that
// it finds later, and does not wait for one that does not respond.
func TestSession_DrainTellsAllReplicas(t *testing.T) {
	withReplicas(t, 3, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		r.live[0].process.Stop()
		for _, l := range s.links.active {
			l.mux.Probe()
		}
		time.Sleep(2 * time.Second)
		began := time.Now()
		if err := s.Drain(time.Hour); err != nil || time.Since(began) > 0 {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		r.live[0].process.Continue()
		r.kill(r.live[0])
		r.start()
		time.Sleep(2 * legSearchPause)
		awaitLegs(t, s, r.ids()...)
		for _, p := range r.live {
			if !isDraining(p.session(s.ID())) {
				t.Errorf("%s was not told", p.id)
			}
		}
		for range 8 {
			if err := open(t, s).WaitOpened(t.Context()); err != nil {
				t.Errorf("a stream of a forwarder that drains: %v", err)
			}
		}
	})
}

// TestClient_ServerWithoutReplicas checks that an older server gets the hellos of before.
func TestClient_ServerWithoutReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		c := h.startClient(ClientConfig{})
		s := c.awaitSession(t)
		time.Sleep(time.Second)
		if legs := s.Legs(); len(legs) != 1 || legs[0] != (Leg{Connections: 2}) || s.WantedLegs() != 1 {
			t.Errorf("legs %+v, %d wanted", legs, s.WantedLegs())
		}
		var further Hello
		h.handler.join = func(_ context.Context, hello Hello) (Welcome, error) {
			further = hello
			return Welcome{}, errUnknownSession()
		}
		h.server.mu.Lock()
		clear(h.server.sessions) // so that the handler sees the hello
		h.server.mu.Unlock()
		h.closeConns(1)
		time.Sleep(time.Second)
		synctest.Wait()
		if further.Role != RoleForwarder || further.SessionID != s.ID() || further.JoinSecret == "" ||
			further.Token != "" || further.ClientVersion != "" || further.Features != nil {
			t.Errorf("hello of a further connection: %+v", further)
		}
	})
}

// TestServer_OldClientOfReplicas checks a client that knows no replicas: its second connection
// joins on another one, it is told no number, and a drain ends its session there only.
func TestServer_OldClientOfReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReplicas(t, 2, roundRobin())
		first, welcome, err := r.live[0].dialRaw(t, Hello{Role: RoleAgent, Token: "flt_x"})
		if err != nil {
			t.Fatal(err)
		}
		hello := Hello{Role: RoleAgent, SessionID: welcome.SessionID, JoinSecret: welcome.JoinSecret}
		second, joined, err := r.live[1].dialRaw(t, hello)
		if err != nil || joined.SessionID != welcome.SessionID {
			t.Fatalf("a connection with another replica: %+v, %v", joined, err)
		}
		r.setNumber(3)
		r.live[1].drain(t, time.Second)
		synctest.Wait()
		if a, b := drainControl(first), drainControl(second); len(a) != 0 || len(b) != 1 || b[0] != "drain 0" {
			t.Errorf("the client was told %q and %q", a, b)
		}
		if isDraining(r.live[0].session(welcome.SessionID)) {
			t.Error("the other replica drains, too")
		}
	})
}
