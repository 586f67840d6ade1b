// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	treeTTL = time.Second // after which a tree is read again
	// up to which it is used while another connection reads it again
	treeStaleTTL  = 3 * time.Second
	treeIdleTTL   = 5 * time.Minute // after which an unused tree is evicted
	evictInterval = time.Minute     // between evictions at least
	readTimeout   = 3 * time.Second // for one read of the store
)

// Source knows the backends, and is told which children serve. No method but BackendTree may block,
// and none may call the Resolver.
type Source interface {
	account.BackendTrees
	// Subscribe returns a channel that receives a value when backends of the account may have
	// changed, and a function that ends the watch.
	Subscribe(accountID string) (wake <-chan struct{}, cancel func())
	// TunnelOnline reports whether a labelled tunnel with all these labels is online.
	TunnelOnline(accountID string, labels map[string]string) bool
	// ActiveChanged is called when the active child of a failover changed, was first known, or is
	// forgotten; calls for one failover are sequential, but those that forget it.
	ActiveChanged(account.ActiveChildChange)
}

// Resolver chooses the leaves that serve connections to backends. It is safe for concurrent use.
type Resolver struct {
	source Source
	draw   func(n int) int // returns a random number in [0, n)

	mu        sync.Mutex
	accounts  map[string]*accountTrees
	evictedAt time.Time
	closed    bool
}

// accountTrees are the cached trees of one account, guarded by the Resolver's mutex.
type accountTrees struct {
	wake      <-chan struct{}
	stopWatch func()
	version   int // number of changes so far
	trees     map[string]*cachedTree
	groups    map[string]*group
}

// cachedTree is the tree of one root.
type cachedTree struct {
	root         *node // nil: not read yet
	err          error // the last read's error, while there is no root
	version      int   // the account's when the read began
	readAt, used time.Time
	// closed when the read in progress ends; nil = none is in progress
	reading chan struct{}
}

// New makes a Resolver. It starts nothing; Close ends its watches.
func New(s Source) *Resolver {
	return &Resolver{source: s, draw: rand.IntN, accounts: map[string]*accountTrees{}, evictedAt: time.Now()}
}

// Close ends all watches. Attempts that are under way may go on.
func (r *Resolver) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for id := range r.accounts {
		r.forget(id)
	}
}

// tree returns the account's backend with all backends below it. CodeNotFound when the account has
// none of that id.
func (r *Resolver) tree(ctx context.Context, accountID, id string) (*node, error) {
	for {
		r.mu.Lock()
		now := time.Now()
		r.evictIdle(now)
		a := r.account(accountID)
		t := a.trees[id]
		if t == nil {
			t = &cachedTree{}
			a.trees[id] = t
		}
		t.used = now
		changed := t.version != a.version
		age := now.Sub(t.readAt)
		busy := t.reading
		switch {
		case t.root != nil && !changed && (age < treeTTL || busy != nil && age < treeStaleTTL):
			r.mu.Unlock()
			return t.root, nil
		case busy == nil:
			t.reading, t.version = make(chan struct{}), a.version
			r.mu.Unlock()
			return r.read(ctx, accountID, id, t)
		}
		r.mu.Unlock()
		select {
		case <-busy:
			if err := r.readError(t); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// readError returns the error of the last read, for callers that waited for it.
func (r *Resolver) readError(t *cachedTree) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.err
}

// read reads a tree for all callers that want it. When the store does not answer, the last tree is
// used for another treeTTL.
func (r *Resolver) read(ctx context.Context, accountID, id string, t *cachedTree) (*node, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // others wait for it
	defer cancel()
	tree, err := r.source.BackendTree(ctx, accountID, id)
	var b *builder
	var root *node
	if err == nil {
		b = &builder{tree: tree, nodes: map[string]*node{}}
		root, err = b.build(tree.Root, 1)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	close(t.reading)
	t.reading, t.readAt, t.err = nil, time.Now(), err
	a := r.accounts[accountID]
	switch {
	case err == nil && t.root != nil && t.root.digest == root.digest:
	case err == nil && a != nil && a.trees[id] == t:
		old := t.root
		b.attachGroups(a)
		for _, g := range root.collectGroups(map[string]*group{}) {
			g.refs++
		}
		t.root = root
		r.releaseGroups(accountID, old)
	case err == nil: // forgotten meanwhile
		b.attachGroups(nil)
		t.root = root
	case t.root == nil || account.CodeOf(err) == account.CodeNotFound:
		if a != nil && a.trees[id] == t {
			r.forgetTree(accountID, id)
		}
		t.root = nil
		return nil, err
	default:
		t.err = nil
	}
	return t.root, nil
}

// group returns the group of the backend. Without an account it is a new one.
func (a *accountTrees) group(id string) *group {
	if a != nil && a.groups[id] != nil {
		return a.groups[id]
	}
	g := &group{health: map[string]*childHealth{}}
	if a != nil {
		a.groups[id] = g
	}
	return g
}

// releaseGroups drops the groups of a tree that is no longer cached, unless other trees have them.
func (r *Resolver) releaseGroups(accountID string, root *node) {
	if root == nil {
		return
	}
	a := r.accounts[accountID]
	for id, g := range root.collectGroups(map[string]*group{}) {
		if g.refs--; g.refs == 0 {
			delete(a.groups, id)
			r.forgetActive(accountID, id, g)
		}
	}
}

// account returns the account's trees and applies pending notifications of its watch.
func (r *Resolver) account(id string) *accountTrees {
	a := r.accounts[id]
	if a == nil {
		a = &accountTrees{trees: map[string]*cachedTree{}, groups: map[string]*group{}, stopWatch: func() {}}
		if !r.closed {
			a.wake, a.stopWatch = r.source.Subscribe(id)
		}
		r.accounts[id] = a
	}
	select {
	case _, open := <-a.wake:
		if a.version++; !open {
			a.wake = nil
		}
	default:
	}
	return a
}

// ExpireAccount makes connections that begin after it read the account's backends from the store.
func (r *Resolver) ExpireAccount(accountID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.accounts[accountID]; a != nil {
		a.version++
	}
}

// EvictIdle evicts trees that were not used for treeIdleTTL, which connections do as well.
func (r *Resolver) EvictIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.evictIdle(time.Now())
}

func (r *Resolver) evictIdle(now time.Time) {
	if now.Sub(r.evictedAt) < evictInterval {
		return
	}
	r.evictedAt = now
	for accountID, a := range r.accounts {
		for id, t := range a.trees {
			if t.reading == nil && now.Sub(t.used) >= treeIdleTTL {
				r.forgetTree(accountID, id)
			}
		}
	}
}

// forgetTree evicts a tree and, with the last one, the account.
func (r *Resolver) forgetTree(accountID, id string) {
	a := r.accounts[accountID]
	r.releaseGroups(accountID, a.trees[id].root)
	delete(a.trees, id)
	if len(a.trees) == 0 {
		r.forget(accountID)
	}
}

func (r *Resolver) forget(accountID string) {
	r.accounts[accountID].stopWatch()
	delete(r.accounts, accountID)
}

// Active returns the child that serves the failover's new connections now; "" when no child is up,
// and before the failover's first connection.
func (r *Resolver) Active(accountID, backendID string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.accounts[accountID]; a != nil && a.groups[backendID] != nil {
		if active := a.groups[backendID].active.Load(); active != nil {
			return *active
		}
	}
	return ""
}

// Failovers calls f with every recently used failover and its active child, "" = none is up, until
// f returns false.
func (r *Resolver) Failovers(f func(accountID, backendID, active string) bool) {
	type known struct{ accountID, backendID, active string }
	var all []known
	r.mu.Lock()
	for accountID, a := range r.accounts {
		for id, g := range a.groups {
			if active := g.active.Load(); active != nil {
				all = append(all, known{accountID, id, *active})
			}
		}
	}
	r.mu.Unlock()
	for _, k := range all {
		if !f(k.accountID, k.backendID, k.active) {
			return
		}
	}
}
