// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// node is a backend of a tree as it was read. It does not change.
type node struct {
	id       string
	kind     account.BackendKind
	backend  account.Backend
	branches []branch
	group    *group // of a failover or weighted backend
	sum      [sha256.Size]byte
}

// branch is a child. Its health is nil where something else says whether it is up: a tunnel group's
// tunnels, and for the root itself nobody.
type branch struct {
	node   *node
	weight int
	health *health
}

// group is what is known of the children of one backend. The trees that have the backend in them
// share it.
type group struct {
	refs int // trees; guarded by the Resolver

	mu     sync.Mutex
	health map[string]*judged // by the child's id

	switching sync.Mutex             // one judgement at a time, each told before the next
	active    atomic.Pointer[string] // the child that serves; "" = none is up, nil = not known yet
}

// judged is a health and what it is about: once the child or something below it is changed, it is
// about something else.
type judged struct {
	health
	sum [sha256.Size]byte
}

// healthOf returns the child's health; a new one when it was judged in another shape.
func (g *group) healthOf(child string, sum [sha256.Size]byte) *health {
	g.mu.Lock()
	defer g.mu.Unlock()
	j := g.health[child]
	if j == nil || j.sum != sum {
		j = &judged{sum: sum}
		g.health[child] = j
	}
	return &j.health
}

// keep forgets the children that are no longer any.
func (g *group) keep(branches []branch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.health {
		if !slices.ContainsFunc(branches, func(b branch) bool { return b.node.id == id }) {
			delete(g.health, id)
		}
	}
}

// builder makes nodes of a tree that was read.
type builder struct {
	tree  *account.BackendTree
	group func(id string) *group
	made  map[string]*node
}

// build makes the node of the backend and all below it. A tree that is deeper than backends may be
// has a cycle.
func (b *builder) build(id string, depth int) (*node, error) {
	if n := b.made[id]; n != nil {
		return n, nil
	}
	bk, ok := b.tree.All[id]
	if !ok || depth > account.MaxBackendDepth {
		return nil, account.Errorf(account.CodeInternal, "the tree of backend %s is broken at %s, depth %d", b.tree.Root, id,
			depth)
	}
	n := &node{id: id, kind: bk.Kind, backend: bk}
	for _, child := range children(&bk) {
		below, err := b.build(child, depth+1)
		if err != nil {
			return nil, err
		}
		n.branches = append(n.branches, branch{node: below, weight: bk.Weights[child]})
	}
	n.sum = sum(n)
	b.made[id] = n
	return n, nil
}

// join gives every node below its group. It comes after build, when nothing can fail any more.
func (b *builder) join() {
	for _, n := range b.made {
		if !n.isGroup() {
			continue
		}
		n.group = b.group(n.id)
		for i := range n.branches {
			br := &n.branches[i]
			if br.node.kind != account.BackendTunnelGroup {
				br.health = n.group.healthOf(br.node.id, sum(br.node, n.backend.HealthStatus...))
			}
		}
		n.group.keep(n.branches)
	}
}

// children returns the ids in the order of failover; those of a weighted backend have none of their
// own.
func children(b *account.Backend) []string {
	if b.Kind == account.BackendFailover {
		return b.Children
	}
	if b.Kind != account.BackendWeighted {
		return nil
	}
	ids := make([]string, 0, len(b.Weights))
	for id := range b.Weights {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (n *node) isGroup() bool {
	return n.kind == account.BackendFailover || n.kind == account.BackendWeighted
}

// sum is a digest of what matters for connecting: of the backend, of all below it, and of more
// statuses that count as failures.
func sum(n *node, statuses ...int) [sha256.Size]byte {
	bk := n.backend
	bk.Description, bk.Metadata, bk.CreatedAt, bk.UpdatedAt = "", "", n.backend.CreatedAt, n.backend.CreatedAt
	var all bytes.Buffer
	_ = json.NewEncoder(&all).Encode([]any{bk, statuses}) // neither can fail: strings, numbers and maps into memory
	for _, b := range n.branches {
		all.Write(b.node.sum[:])
	}
	return sha256.Sum256(all.Bytes())
}

// groups lists the ids of the groups of the tree below n, each once.
func (n *node) groups(into map[string]*group) map[string]*group {
	if n.group != nil {
		into[n.id] = n.group
	}
	for _, b := range n.branches {
		b.node.groups(into)
	}
	return into
}
