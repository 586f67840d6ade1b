// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/frozen"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// fakeReplicas are several fakeEdges behind a balancer.
type fakeReplicas struct {
	all []*fakeReplica

	mu   sync.Mutex
	next int
}

// fakeReplica is one of them.
type fakeReplica struct {
	*fakeEdge
	process frozen.Process

	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

// startReplicas starts n replicas. handle serves the streams of each.
func startReplicas(t *testing.T, n int, handle func(r *fakeReplica, st *tunnel.Stream)) *fakeReplicas {
	t.Helper()
	all := &fakeReplicas{}
	for i := range n {
		r := &fakeReplica{}
		r.fakeEdge = startEdge(t, func(_ context.Context, st *tunnel.Stream) { handle(r, st) })
		r.replica, r.replicas, r.dial = fmt.Sprintf("rp-%d", i+1), n, all.dial
		r.setWrap(r.track)
		t.Cleanup(r.process.Continue)
		all.all = append(all.all, r)
	}
	return all
}

// dial leads to one replica after the other, as a balancer does.
func (all *fakeReplicas) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for range all.all {
		all.next++
		if r := all.all[all.next%len(all.all)]; !r.isDead() {
			return new(net.Dialer).DialContext(ctx, network, r.addr)
		}
	}
	return nil, fmt.Errorf("no replica lives")
}

func (r *fakeReplica) track(c net.Conn) net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c)
	if r.dead {
		_ = c.Close()
	}
	return r.process.Conn(c)
}

func (r *fakeReplica) isDead() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

// kill ends the replica as SIGKILL does.
func (r *fakeReplica) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
	_ = r.ln.Close()
	for _, c := range r.conns {
		_ = c.Close()
	}
}

// connectedTo starts a forwarder and waits until it has a leg with each replica.
func connectedTo(t *testing.T, all *fakeReplicas, timing timing) *runningForwarder {
	t.Helper()
	r := connected(t, all.all[0].fakeEdge, timing)
	r.awaitLegs(len(all.all), len(all.all))
	return r
}

func (r *runningForwarder) awaitLegs(serving, wanted int) {
	r.t.Helper()
	wait.Until(r.t, fmt.Sprintf("%d of %d replicas", serving, wanted), func() bool {
		s, w := r.edge.legCounts()
		return s == serving && w == wanted
	})
}

func TestEdgeClient_FindsAndLosesReplicas(t *testing.T) {
	t.Parallel()
	all := startReplicas(t, 3, func(_ *fakeReplica, st *tunnel.Stream) { respond(t.Context(), st) })
	r := connectedTo(t, all, shortTiming())
	session := r.edge.Live()
	wait.Until(t, "no missing leg in the status", func() bool { return r.edge.status().LegsMissingSince == nil })
	if s := r.edge.status(); len(s.Legs) != 3 || s.Legs[0].Replica != "rp-1" {
		t.Errorf("the status is %+v", s)
	}
	all.all[1].kill()
	r.awaitLegs(2, 3)
	wait.Until(t, "the missing leg in the status", func() bool { return r.edge.status().LegsMissingSince != nil })
	for _, left := range []*fakeReplica{all.all[0], all.all[2]} {
		left.server.SetReplicas(2)
	}
	r.awaitLegs(2, 2)
	wait.Until(t, "no missing leg in the status", func() bool { return r.edge.status().LegsMissingSince == nil })
	if res, _ := get(t, r.dial(10080), "/"); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	all.all[2].kill()
	r.awaitLegs(1, 2)
	if s := r.edge.status(); !s.Up || r.edge.Live() != session || session.Err() != nil || !r.ready.Load() {
		t.Errorf("another session, or not ready: %+v", s)
	}
}

func TestEdgeClient_ReplicaDrains(t *testing.T) {
	t.Parallel()
	all := startReplicas(t, 2, func(_ *fakeReplica, st *tunnel.Stream) { respond(t.Context(), st) })
	r := connectedTo(t, all, shortTiming())
	session := r.edge.Live()
	kept := r.dial(10080)
	if res, _ := get(t, kept, "/"); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	leaving := all.all[0]
	leaving.setHandle(refuseWith(tunnel.RefusedDraining))
	for _, s := range leaving.server.Sessions() {
		if err := s.Drain(testTimeout); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "the drain", func() bool { serving, _ := r.edge.legCounts(); return serving == 1 })
	for _, c := range []net.Conn{kept, r.dial(10080), r.dial(10080)} {
		if res, _ := get(t, c, "/"); res.StatusCode != 200 {
			t.Error(res.Status)
		}
	}
	if s := r.edge.status(); !s.Up || s.Error != "" || r.edge.Live() != session {
		t.Errorf("another session, or %+v", s)
	}
}

func TestShutdown_TellsEveryReplica(t *testing.T) {
	t.Parallel()
	all := startReplicas(t, 3, func(_ *fakeReplica, st *tunnel.Stream) { respond(t.Context(), st) })
	r := connectedTo(t, all, shortTiming())
	r.stop()
	for _, e := range all.all {
		for _, s := range e.server.Sessions() {
			wait.Receive(t, "the forwarder's drain", s.PeerDraining())
		}
	}
}
