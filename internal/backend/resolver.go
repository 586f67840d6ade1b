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
	treeAge     = time.Second     // after which a tree is read again
	treeGrace   = 3 * time.Second // up to which it serves while another connection reads it again
	treeIdle    = 5 * time.Minute // after which a tree that nobody used is forgotten
	sweepEvery  = time.Minute     // at most so often idle trees are looked for
	readTimeout = 3 * time.Second // for reading a tree; the last one that was read serves when that fails
)

// Options are what a Resolver needs. None of the functions may block or call the Resolver.
type Options struct {
	Trees account.BackendTrees
	// WatchBackends returns a channel that receives a value when backends of the account may have
	// changed, and a function that ends the watch. nil: trees are only read again after treeAge.
	WatchBackends func(accountID string) (<-chan struct{}, func())
	// TunnelOnline reports whether a labelled tunnel with all these labels is online.
	TunnelOnline func(accountID string, labels map[string]string) bool
	// OnActiveChange is called when the active child of a failover changed; "" = no child is up. Calls
	// for one failover are sequential. May be nil.
	OnActiveChange func(accountID, backendID, from, to string)
	Clock          func() time.Time // default time.Now
}

// Resolver chooses who serves what goes to a backend. It is safe for concurrent use.
type Resolver struct {
	opt  Options
	draw func(n int) int // a number in [0, n)

	mu       sync.Mutex
	accounts map[string]*accountTrees
	swept    time.Time
	closed   bool
}

// accountTrees is what is kept of one account, guarded by the Resolver's mutex.
type accountTrees struct {
	wake   <-chan struct{}
	cancel func()
	change int // number of wake-ups seen
	trees  map[string]*cachedTree
	groups map[string]*group
}

// cachedTree is the tree of one root.
type cachedTree struct {
	root         *node // nil: not read yet
	err          error // of the last read, while there is no root
	change       int   // the account's when the read began
	readAt, used time.Time
	reading      chan struct{} // closed when the read that is under way has ended
}

// New makes a Resolver. It starts nothing; Close ends its subscriptions.
func New(o Options) *Resolver {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Resolver{opt: o, draw: rand.IntN, accounts: map[string]*accountTrees{}, swept: o.Clock()}
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

// tree returns the account's backend with all below it. CodeNotFound when the account has none of
// that id.
func (r *Resolver) tree(ctx context.Context, accountID, id string) (*node, error) {
	for {
		r.mu.Lock()
		now := r.opt.Clock()
		r.sweep(now)
		a := r.account(accountID)
		t := a.trees[id]
		if t == nil {
			t = &cachedTree{}
			a.trees[id] = t
		}
		t.used = now
		changed := t.change != a.change
		age := now.Sub(t.readAt)
		busy := t.reading
		switch {
		case t.root != nil && !changed && (age < treeAge || busy != nil && age < treeGrace):
			r.mu.Unlock()
			return t.root, nil
		case busy == nil:
			t.reading, t.change = make(chan struct{}), a.change
			r.mu.Unlock()
			return r.read(ctx, accountID, id, t)
		}
		r.mu.Unlock()
		select {
		case <-busy:
			if err := r.failed(t); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// failed is for those who waited for a read: why there is no tree.
func (r *Resolver) failed(t *cachedTree) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.err
}

// read reads a tree for all who want it. Where the store cannot be asked, the tree as it was last
// serves for another second.
func (r *Resolver) read(ctx context.Context, accountID, id string, t *cachedTree) (*node, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // others wait for it
	defer cancel()
	tree, err := r.opt.Trees.BackendTree(ctx, accountID, id)
	var b *builder
	var root *node
	if err == nil {
		b = &builder{tree: tree, made: map[string]*node{}}
		root, err = b.build(tree.Root, 1)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	close(t.reading)
	t.reading, t.readAt, t.err = nil, r.opt.Clock(), err
	a := r.accounts[accountID]
	switch {
	case err == nil && t.root != nil && t.root.sum == root.sum:
	case err == nil && a != nil && a.trees[id] == t:
		old := t.root
		b.group = a.group
		b.join()
		for _, g := range root.groups(map[string]*group{}) {
			g.refs++
		}
		t.root = root
		a.drop(old)
	case err == nil: // forgotten meanwhile
		b.group = func(string) *group { return newGroup() }
		b.join()
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

func newGroup() *group { return &group{health: map[string]*judged{}} }

func (a *accountTrees) group(id string) *group {
	g := a.groups[id]
	if g == nil {
		g = newGroup()
		a.groups[id] = g
	}
	return g
}

// drop lets go of the groups of a tree that is no longer kept.
func (a *accountTrees) drop(root *node) {
	if root == nil {
		return
	}
	for id, g := range root.groups(map[string]*group{}) {
		if g.refs--; g.refs == 0 {
			delete(a.groups, id)
		}
	}
}

// account returns what is kept of the account, with the changes that it was woken for.
func (r *Resolver) account(id string) *accountTrees {
	a := r.accounts[id]
	if a == nil {
		a = &accountTrees{trees: map[string]*cachedTree{}, groups: map[string]*group{}, cancel: func() {}}
		if r.opt.WatchBackends != nil && !r.closed {
			a.wake, a.cancel = r.opt.WatchBackends(id)
		}
		r.accounts[id] = a
	}
	select {
	case _, open := <-a.wake:
		if a.change++; !open {
			a.wake = nil
		}
	default:
	}
	return a
}

// sweep forgets what nobody has used for a while.
func (r *Resolver) sweep(now time.Time) {
	if now.Sub(r.swept) < sweepEvery {
		return
	}
	r.swept = now
	for accountID, a := range r.accounts {
		for id, t := range a.trees {
			if t.reading == nil && now.Sub(t.used) >= treeIdle {
				r.forgetTree(accountID, id)
			}
		}
	}
}

// forgetTree forgets a tree and, with the last one, the account.
func (r *Resolver) forgetTree(accountID, id string) {
	a := r.accounts[accountID]
	a.drop(a.trees[id].root)
	delete(a.trees, id)
	if len(a.trees) == 0 {
		r.forget(accountID)
	}
}

func (r *Resolver) forget(accountID string) {
	r.accounts[accountID].cancel()
	delete(r.accounts, accountID)
}

// Active returns the child that serves the failover's new connections now; "" when no child is up,
// and while nothing has gone through the failover.
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

// Failovers calls f with every failover that connections went through lately and its active child,
// "" = none is up, until f returns false.
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
