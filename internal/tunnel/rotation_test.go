// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestRotation_ReachesAllReplicas checks that a session of three legs visits all of four replicas in
// time, by the balancer or by addresses; that it never has fewer legs than three; and that a stream
// is not cut.
func TestRotation_ReachesAllReplicas(t *testing.T) {
	t.Parallel()
	for name, direct := range map[string]bool{"by the balancer": false, "by addresses": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				next := roundRobin()
				if direct {
					next = pinned
				}
				r := newFakeReplicas(t, 4, next)
				if direct {
					r.announce()
				}
				s := r.startClient(ClientConfig{}).awaitSession(t)
				time.Sleep(time.Minute)
				st := open(t, s)
				_, _ = st.Write([]byte("a"))
				seen, changes, last := map[string]bool{}, 0, legIDs(s)
				for range int(3 * time.Hour / time.Second) {
					time.Sleep(time.Second)
					now := connectedReplicas(s)
					if len(now) < 3 {
						t.Fatalf("legs %q", now)
					}
					for _, id := range now {
						seen[id] = true
					}
					if !slices.Equal(now, last) {
						changes++
					}
					last = now
				}
				// 3 hours are 14 to 24 intervals.
				if len(seen) != 4 || changes < 14 || changes > 24 || s.Err() != nil {
					t.Errorf("%d replicas visited in %d changes; the session: %v", len(seen), changes, s.Err())
				}
				b := make([]byte, 1)
				if _, err := st.Read(b); err != nil || b[0] != 'a' {
					t.Errorf("the stream: %q, %v", b, err)
				}
			})
		})
	}
}

// connectedReplicas returns the replicas whose connections take new streams.
func connectedReplicas(s *Session) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, l := range s.links.active {
		ids = append(ids, l.replicaID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// TestRotation_NoneWithoutSpareReplicas checks that a session with a leg on every replica, or with
// fewer legs than it wants, keeps those that it has.
func TestRotation_NoneWithoutSpareReplicas(t *testing.T) {
	withReplicas(t, 3, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		time.Sleep(3 * time.Hour)
		awaitLegs(t, c.Session(), r.ids()...)
		if n := r.dialed(); n != 0 {
			t.Errorf("%d dials", n)
		}
	})
}

// TestRotation_GivesUpBehindPinnedBalancer checks that a rotation ends when the balancer does not
// lead to a further replica.
func TestRotation_GivesUpBehindPinnedBalancer(t *testing.T) {
	withReplicas(t, 3, ClientConfig{}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		r.mu.Lock()
		r.next = pinned
		r.mu.Unlock()
		r.start()
		r.setNumber(4)
		time.Sleep(time.Hour)
		// 4 to 8 rotations of 32 dials
		if n := r.dialed(); n < 4*32 || n > 8*32 {
			t.Errorf("%d dials in an hour", n)
		}
		awaitLegs(t, c.Session(), "rp_1", "rp_2", "rp_3")
	})
}
