// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/frozen"
)

// fakeReplica is a Server that is one of several.
type fakeReplica struct {
	*testServer
	id      string
	process frozen.Process
	// set by drain: new sessions and joins are refused
	draining atomic.Bool

	mu    sync.Mutex
	joins []Hello
}

// fakeReplicas are Servers behind a balancer.
type fakeReplicas struct {
	t *testing.T

	mu      sync.Mutex
	next    func(n int) int // chooses one of n live replicas
	number  int             // as the welcomes have it
	live    []*fakeReplica
	started int
	dials   int // by the service's name

	addresses   []ReplicaAddress        // that the servers announce
	direct      map[string]*fakeReplica // what answers at an address; nil: nothing, without a refusal
	directDials []string                // addresses
}

func newFakeReplicas(t *testing.T, n int, next func(n int) int) *fakeReplicas {
	t.Helper()
	r := &fakeReplicas{t: t, next: next}
	for range n {
		r.start()
	}
	r.setNumber(n)
	return r
}

func roundRobin() func(int) int {
	i := -1
	return func(n int) int {
		i++
		return i % n
	}
}

func atRandom(seed uint64) func(int) int { return rand.New(rand.NewPCG(seed, seed)).IntN }

func pinned(int) int { return 0 }

// start starts a further replica.
func (r *fakeReplicas) start() *fakeReplica {
	r.t.Helper()
	handler := newHandler()
	p := &fakeReplica{testServer: newTestServer(r.t, overPipe, handler)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started++
	p.id = fmt.Sprintf("rp_%d", r.started)
	handler.hello = func(context.Context, Hello) (Welcome, error) {
		return r.welcome(p, "ts_of_"+p.id)
	}
	handler.join = func(_ context.Context, h Hello) (Welcome, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.joins = append(p.joins, h)
		return r.welcome(p, h.SessionID)
	}
	r.live = append(r.live, p)
	return p
}

func (r *fakeReplicas) welcome(p *fakeReplica, sessionID string) (Welcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.draining.Load() {
		return Welcome{}, &Error{Code: CodeDraining, Msg: "soon"}
	}
	return Welcome{SessionID: sessionID, AccountID: "acc_1", ReplicaID: p.id, Replicas: r.number}, nil
}

// setNumber sets how many replicas the servers tell clients of.
func (r *fakeReplicas) setNumber(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number = n
	for _, p := range r.live {
		p.server.SetReplicas(n, r.addresses...)
	}
}

// kill ends a replica without a message.
func (r *fakeReplicas) kill(p *fakeReplica) {
	r.mu.Lock()
	r.live = slices.DeleteFunc(r.live, func(o *fakeReplica) bool { return o == p })
	r.mu.Unlock()
	for i := range p.acceptedConns() {
		p.closeConns(i)
	}
}

func (r *fakeReplicas) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	p, err := r.route(addr)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := p.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return p.process.Conn(c), nil
}

// route returns the replica that answers at an address.
func (r *fakeReplicas) route(addr string) (*fakeReplica, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if addr != testAddress {
		r.directDials = append(r.directDials, addr)
		if p, ok := r.direct[addr]; ok {
			return p, nil
		}
		return nil, errors.New("refused")
	}
	r.dials++
	if len(r.live) == 0 {
		return nil, errors.New("no replica")
	}
	return r.live[r.next(len(r.live))], nil
}

// dialed returns how many connections were dialed since the last call.
func (r *fakeReplicas) dialed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.dials
	r.dials = 0
	return n
}

// startClient starts a forwarder, or what cfg says.
func (r *fakeReplicas) startClient(cfg ClientConfig) *testClient {
	r.t.Helper()
	cfg.DialContext = r.DialContext
	r.mu.Lock()
	p := r.live[0]
	r.mu.Unlock()
	return p.testServer.startClient(cfg)
}

// withReplicas runs a test with a forwarder's session that has found n replicas, in a synctest
// bubble.
func withReplicas(t *testing.T, n int, cfg ClientConfig, test func(t *testing.T, r *fakeReplicas, c *testClient)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReplicas(t, n, roundRobin())
		defer r.thaw()
		c := r.startClient(cfg)
		c.awaitSession(t)
		time.Sleep(2 * idleTime)
		awaitLegs(t, c.Session(), r.ids()...)
		r.dialed()
		test(t, r, c)
	})
}

// thaw continues all replicas.
func (r *fakeReplicas) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.live {
		p.process.Continue()
	}
}

// ids returns the ids of the live replicas.
func (r *fakeReplicas) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for _, p := range r.live {
		ids = append(ids, p.id)
	}
	return ids
}

// legIDs returns the replicas of a session's legs.
func legIDs(s *Session) []string {
	var ids []string
	for _, l := range s.Legs() {
		ids = append(ids, l.ReplicaID)
	}
	return ids
}

// awaitLegs checks that a session has exactly these legs when everything has settled.
func awaitLegs(t *testing.T, s *Session, ids ...string) {
	t.Helper()
	synctest.Wait()
	if got := legIDs(s); !slices.Equal(got, ids) {
		t.Fatalf("legs %q, want %q", got, ids)
	}
}

// session returns the replica's side of the session with this id, or nil.
func (p *fakeReplica) session(id string) *Session {
	for _, s := range p.server.Sessions() {
		if s.ID() == id {
			return s
		}
	}
	return nil
}
