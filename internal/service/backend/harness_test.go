// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const acme = "ac-acme"

var errRefused = errors.New("connection refused")

// resolverFixture is a Resolver with the store, the tunnels and the upstreams that it and its
// caller use.
type resolverFixture struct {
	mu         sync.Mutex
	all        map[string]account.Backend
	broken     error // of the store
	reads      int
	wake       chan struct{}
	live       int             // subscriptions
	offline    map[string]bool // by the label "g"
	dead       map[string]bool // leaves that refuse
	tried      map[string]int
	switches   []string
	known      []string // failovers whose active child was first known, or is forgotten
	onCallback func()   // by TunnelOnline and ActiveChanged
	*Resolver
}

func newResolverFixture(t *testing.T, backends ...account.Backend) *resolverFixture {
	w := &resolverFixture{all: map[string]account.Backend{}, offline: map[string]bool{}, dead: map[string]bool{},
		tried: map[string]int{}, wake: make(chan struct{}, 1)}
	for _, b := range backends {
		w.all[b.ID] = b
	}
	w.Resolver = New(w)
	t.Cleanup(w.Close)
	return w
}

// Subscribe implements Source.
func (w *resolverFixture) Subscribe(string) (<-chan struct{}, func()) {
	w.change(func() { w.live++ })
	return w.wake, func() { w.change(func() { w.live-- }) }
}

// TunnelOnline implements Source.
func (w *resolverFixture) TunnelOnline(_ string, labels map[string]string) bool {
	if w.onCallback != nil {
		defer w.onCallback()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.offline[labels["g"]]
}

// ActiveChanged implements Source.
func (w *resolverFixture) ActiveChanged(c account.ActiveChildChange) {
	if w.onCallback != nil {
		w.onCallback()
	}
	w.change(func() {
		switch {
		case c.From == nil:
			w.known = append(w.known, c.BackendID+": "+*c.To)
		case c.To == nil:
			w.known = append(w.known, c.BackendID+" forgotten")
		default:
			w.switches = append(w.switches, c.BackendID+": "+*c.From+">"+*c.To)
		}
	})
}

func (w *resolverFixture) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *resolverFixture) kill(ids ...string) {
	w.change(func() {
		for _, id := range ids {
			w.dead[id] = true
		}
	})
}
func (w *resolverFixture) revive(id string) { w.change(func() { delete(w.dead, id) }) }

// put changes the store and wakes the Resolver.
func (w *resolverFixture) put(b account.Backend) {
	w.change(func() { w.all[b.ID] = b })
	w.notify()
}

func (w *resolverFixture) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *resolverFixture) BackendTree(_ context.Context, _, id string) (*account.BackendTree, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if w.broken != nil {
		return nil, w.broken
	}
	if _, ok := w.all[id]; !ok {
		return nil, account.Errorf(account.CodeNotFound, "no backend %s", id)
	}
	tree := &account.BackendTree{Root: id, All: map[string]account.Backend{}}
	w.collect(id, tree.All)
	return tree, nil
}

func (w *resolverFixture) collect(id string, into map[string]account.Backend) {
	b, ok := w.all[id]
	if _, seen := into[id]; seen || !ok {
		return
	}
	into[id] = b
	for _, child := range children(&b) {
		w.collect(child, into)
	}
}

// connect is what a caller does for a connection: it tries until a leaf can be reached. It returns
// the leaves in order, the last of them with "!" when it was not reached either.
func (w *resolverFixture) connect(t testing.TB, id string) string {
	t.Helper()
	return w.connectFor(t, id, 10*time.Millisecond)
}

func (w *resolverFixture) connectFor(t testing.TB, id string, connecting time.Duration) string {
	t.Helper()
	attempts, err := w.Attempts(t.Context(), acme, id, Client{})
	if err != nil {
		t.Error(err)
		return err.Error()
	}
	var way []string
	for {
		at, ok := attempts.Next(t.Context())
		if !ok {
			return strings.Join(way, " ") + "!"
		}
		var dead bool
		w.change(func() { w.tried[at.BackendID]++; dead = w.dead[at.BackendID] })
		way = append(way, at.BackendID)
		time.Sleep(connecting) // of a synctest bubble
		if !dead {
			at.Up()
			return strings.Join(way, " ")
		}
		at.Down(errRefused)
	}
}

// answered makes one request of a client that may be repeated, and returns the leaves that answered
// it, in order; each with the status that it has in statuses.
func (w *resolverFixture) answered(t testing.TB, id string, by Client, statuses map[string]int) string {
	t.Helper()
	attempts, err := w.Attempts(t.Context(), acme, id, by)
	must.Succeed(t, err)
	var way []string
	for {
		at, ok := attempts.Next(t.Context())
		if !ok {
			t.Fatalf("no attempt after %v", way)
		}
		way = append(way, at.BackendID)
		time.Sleep(10 * time.Millisecond) // of a synctest bubble
		at.Up()
		if !at.Status(statuses[at.BackendID]) {
			return strings.Join(way, " ")
		}
	}
}

// expect makes one connection and compares the way it took.
func (w *resolverFixture) expect(t testing.TB, id, want string) {
	t.Helper()
	if got := w.connect(t, id); got != want {
		t.Errorf("a connection to %s took the way %q, not %q", id, got, want)
	}
}

func (w *resolverFixture) expectSwitches(t testing.TB, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.switches, want) {
		t.Errorf("switches %v, not %v", w.switches, want)
	}
	w.switches = nil
}

func failover(id string, children ...string) account.Backend {
	return account.Backend{ID: id, AccountID: acme, Kind: account.BackendFailover, Children: children}
}

func weighted(id string, weights map[string]int) account.Backend {
	return account.Backend{ID: id, AccountID: acme, Kind: account.BackendWeighted, Weights: weights}
}

func static(id string) account.Backend {
	return account.Backend{ID: id, AccountID: acme, Kind: account.BackendStatic,
		Static: &account.StaticAddress{Address: id + ".example.com:80"}}
}

func tunnels(id string) account.Backend {
	return account.Backend{ID: id, AccountID: acme, Kind: account.BackendTunnelGroup,
		Labels: map[string]string{"g": id}}
}

func answer(id string) account.Backend {
	return account.Backend{ID: id, AccountID: acme, Kind: account.BackendHTTPResponse,
		Response: &account.HTTPResponse{StatusCode: 200, Body: id}}
}

func statics(n int) (all []account.Backend, ids []string) {
	for i := range n {
		id := fmt.Sprintf("s%02d", i)
		all, ids = append(all, static(id)), append(ids, id)
	}
	return all, ids
}
