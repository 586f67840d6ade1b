// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// online says whether the leaf can serve as far as is known without trying: only of a tunnel group
// that is known.
func (r *Resolver) online(accountID string, n *node) bool {
	return n.kind != account.BackendTunnelGroup || r.opt.TunnelOnline(accountID, n.backend.Labels)
}

// reachable says that some leaf at or below n may be tried, whatever its health.
func (r *Resolver) reachable(accountID string, n *node) bool {
	if !n.isGroup() {
		return r.online(accountID, n)
	}
	for _, b := range n.branches {
		if n.eligible(b) && r.reachable(accountID, b.node) {
			return true
		}
	}
	return false
}

// possible says that a connection that enters n would find somebody to try who is not known to be
// down.
func (r *Resolver) possible(accountID string, n *node, now time.Time) bool {
	if !n.isGroup() {
		return r.online(accountID, n)
	}
	for _, b := range n.branches {
		fit := b.health == nil || b.health.level() > levelDown || b.health.due(now)
		if n.eligible(b) && fit && r.possible(accountID, b.node, now) {
			return true
		}
	}
	return false
}

// eligible says that the child may get connections at all: weight 0 is never.
func (n *node) eligible(b branch) bool { return n.kind != account.BackendWeighted || b.weight > 0 }

// level returns how far the child can be relied on now.
func (r *Resolver) level(accountID string, b branch, now time.Time) level {
	if !r.possible(accountID, b.node, now) {
		return levelDown
	}
	if b.health == nil {
		return levelUp
	}
	return b.health.level()
}

// judge finds out which child of the failover serves: the first that is up, else the first that
// recovers. It tells when that changed.
func (r *Resolver) judge(accountID string, n *node) {
	if n.kind != account.BackendFailover {
		return
	}
	n.group.switching.Lock()
	defer n.group.switching.Unlock()
	now := r.opt.Clock()
	to, best := "", levelDown
	for _, b := range n.branches {
		if l := r.level(accountID, b, now); l > best {
			to, best = b.node.id, l
		}
	}
	from := n.group.active.Load()
	if from != nil && *from == to {
		return
	}
	n.group.active.Store(&to)
	if from != nil && r.opt.OnActiveChange != nil {
		r.opt.OnActiveChange(accountID, n.id, *from, to)
	}
}

// notice judges the failover when a connection is about to go to another child than the active one.
func (r *Resolver) notice(accountID string, n *node, child string) {
	if n.kind != account.BackendFailover {
		return
	}
	if active := n.group.active.Load(); active == nil || *active != child {
		r.judge(accountID, n)
	}
}
