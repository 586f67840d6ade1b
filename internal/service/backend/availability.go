// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// online reports whether the leaf can serve as far as is known without trying: that is known only
// of a tunnel group.
func (r *Resolver) online(accountID string, n *node) bool {
	return n.kind != account.BackendTunnelGroup || r.source.TunnelOnline(accountID, n.backend.Labels)
}

// reachable reports whether some leaf at or below n may be tried, whatever its health.
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

// available reports whether a connection to n would find a leaf to try that is not known to be
// down.
func (r *Resolver) available(accountID string, n *node, now time.Time) bool {
	if !n.isGroup() {
		return r.online(accountID, n)
	}
	for _, b := range n.branches {
		fit := b.health == nil || b.health.level() > levelDown || b.health.probeDue(now)
		if n.eligible(b) && fit && r.available(accountID, b.node, now) {
			return true
		}
	}
	return false
}

// eligible reports whether the child may get connections at all: with weight 0 it never does.
func (n *node) eligible(b branch) bool { return n.kind != account.BackendWeighted || b.weight > 0 }

// level returns the health of the child now.
func (r *Resolver) level(accountID string, b branch, now time.Time) level {
	if !r.available(accountID, b.node, now) {
		return levelDown
	}
	if b.health == nil {
		return levelUp
	}
	return b.health.level()
}

// updateActive determines the active child of the failover: the first that is up, else the first
// that is recovering. It calls ActiveChanged when that changed.
func (r *Resolver) updateActive(accountID string, n *node) {
	if n.kind != account.BackendFailover {
		return
	}
	n.group.switching.Lock()
	defer n.group.switching.Unlock()
	now := time.Now()
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
	r.source.ActiveChanged(account.ActiveChildChange{AccountID: accountID, BackendID: n.id, From: from, To: &to})
}

// forgetActive forgets the active child of a failover that is no longer cached.
func (r *Resolver) forgetActive(accountID, id string, g *group) {
	if from := g.active.Swap(nil); from != nil {
		r.source.ActiveChanged(account.ActiveChildChange{AccountID: accountID, BackendID: id, From: from})
	}
}

// updateActiveIfOther updates the failover's active child when a connection goes to another one.
func (r *Resolver) updateActiveIfOther(accountID string, n *node, child string) {
	if n.kind != account.BackendFailover {
		return
	}
	if active := n.group.active.Load(); active == nil || *active != child {
		r.updateActive(accountID, n)
	}
}
