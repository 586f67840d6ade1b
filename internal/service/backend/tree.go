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

// node is a backend of a tree. It is immutable.
type node struct {
	id       string
	kind     account.BackendKind
	backend  account.Backend
	branches []branch
	group    *group // the group of a failover or weighted backend
	digest   [sha256.Size]byte
}

// branch is a child. Its health is nil for the root, and for a tunnel group, which is up while it
// has tunnels.
type branch struct {
	node   *node
	weight int
	health *health
}

// group is the state of the children of one backend, shared by all trees that contain it.
type group struct {
	refs int // number of trees; guarded by the Resolver

	mu     sync.Mutex
	health map[string]*childHealth // by the child's id

	switching sync.Mutex // serializes updates of active and their notifications
	// child that serves; "" = none is up, nil = not known yet
	active atomic.Pointer[string]
}

// childHealth is the health of a child with the digest of its configuration. A changed child has a
// new health.
type childHealth struct {
	health
	digest [sha256.Size]byte
}

// healthOf returns the child's health, a new one when its configuration has another digest.
func (g *group) healthOf(child string, digest [sha256.Size]byte) *health {
	g.mu.Lock()
	defer g.mu.Unlock()
	j := g.health[child]
	if j == nil || j.digest != digest {
		j = &childHealth{digest: digest}
		g.health[child] = j
	}
	return &j.health
}

// prune drops the health of former children.
func (g *group) prune(branches []branch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.health {
		if !slices.ContainsFunc(branches, func(b branch) bool { return b.node.id == id }) {
			delete(g.health, id)
		}
	}
}

// builder makes the nodes of a tree.
type builder struct {
	tree  *account.BackendTree
	nodes map[string]*node
}

// build makes the node of the backend and all below it. A tree deeper than MaxBackendDepth has a
// cycle.
func (b *builder) build(id string, depth int) (*node, error) {
	if n := b.nodes[id]; n != nil {
		return n, nil
	}
	bk, ok := b.tree.All[id]
	if !ok || depth > account.MaxBackendDepth {
		return nil, account.Errorf(account.CodeInternal, "the tree of backend %s is broken at %s, depth %d",
			b.tree.Root, id,
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
	n.digest = digestOf(n)
	b.nodes[id] = n
	return n, nil
}

// attachGroups gives every node its group, that of the account or, without one, a new one. It follows
// build, after which nothing can fail.
func (b *builder) attachGroups(a *accountTrees) {
	for _, n := range b.nodes {
		if !n.isGroup() {
			continue
		}
		n.group = a.group(n.id)
		for i := range n.branches {
			br := &n.branches[i]
			if br.node.kind != account.BackendTunnelGroup {
				br.health = n.group.healthOf(br.node.id, digestOf(br.node, n.backend.HealthStatus...))
			}
		}
		n.group.prune(n.branches)
	}
}

// children returns the ids of the children, in the order of failover.
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

// digestOf returns a digest of all that matters for connecting: of the backend, of those below it,
// and of the additional statuses that count as failures.
func digestOf(n *node, statuses ...int) [sha256.Size]byte {
	bk := n.backend
	bk.Description, bk.Metadata, bk.CreatedAt, bk.UpdatedAt = "", "", n.backend.CreatedAt, n.backend.CreatedAt
	var all bytes.Buffer
	_ = json.NewEncoder(&all).Encode([]any{bk, statuses}) // neither can fail: strings, numbers and maps into memory
	for _, b := range n.branches {
		all.Write(b.node.digest[:])
	}
	return sha256.Sum256(all.Bytes())
}

// collectGroups adds the groups of the tree below n to into, by id.
func (n *node) collectGroups(into map[string]*group) map[string]*group {
	if n.group != nil {
		into[n.id] = n.group
	}
	for _, b := range n.branches {
		b.node.collectGroups(into)
	}
	return into
}
