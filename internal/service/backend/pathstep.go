// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import "time"

// pathStep is a group on the path to the leaf being tried.
type pathStep struct {
	node      *node
	tried     []bool
	attempted bool // it led to an attempt
	failed    bool // the last attempt with a result failed

	chosen   int       // index of the child on the path
	wasProbe bool      // probe's value, kept after the result
	probe    bool      // this is the one live connection that probes the child
	started  time.Time // when the child was chosen
}

func newPathStep(n *node) *pathStep { return &pathStep{node: n, tried: make([]bool, len(n.branches))} }

func (f *pathStep) branch() branch { return f.node.branches[f.chosen] }

// pickChild chooses the next child that has not been tried; -1 when there is none. A dry run
// acquires no probe and changes nothing.
func (a *Attempts) pickChild(f *pathStep, now time.Time, dryRun bool) (child int, probe bool) {
	if child, probe = a.pickHealthy(f, now, dryRun); child >= 0 {
		return child, probe
	}
	if child = a.firstMatching(f, func(b branch) bool {
		return a.r.level(a.accountID, b, now) == levelRecovering
	}); child >= 0 {
		return child, false
	}
	if f.attempted { // all down, and one was tried
		return -1, false
	}
	if child = a.firstMatching(f, func(b branch) bool { return a.r.reachable(a.accountID, b.node) }); child >= 0 {
		return child, false
	}
	return a.firstMatching(f, func(branch) bool { return true }), false
}

// pickHealthy chooses among the children that are up or that this connection may probe.
func (a *Attempts) pickHealthy(f *pathStep, now time.Time, dryRun bool) (child int, probe bool) {
	skip := make([]bool, len(f.tried))
	for {
		child = a.firstMatching(f, func(b branch) bool {
			up := b.health == nil || b.health.level() == levelUp || b.health.probeDue(now)
			return up && a.r.available(a.accountID, b.node, now)
		}, skip...)
		if child < 0 || dryRun {
			return child, false
		}
		b := f.node.branches[child]
		if b.health == nil || b.health.level() == levelUp {
			a.r.updateActiveIfOther(a.accountID, f.node, b.node.id)
			return child, false
		}
		if b.health.acquireProbe(now, a.client) {
			return child, true
		}
		skip[child] = true // another connection's turn
	}
}

// firstMatching returns the first child that has not been tried and fits; of a weighted backend one
// drawn by weight. -1 when there is none.
func (a *Attempts) firstMatching(f *pathStep, fits func(branch) bool, skip ...bool) int {
	var fit []int
	total := 0
	for i, b := range f.node.branches {
		if f.tried[i] || len(skip) > 0 && skip[i] || !f.node.eligible(b) || !fits(b) {
			continue
		}
		if b.weight == 0 { // a failover's child
			return i
		}
		fit, total = append(fit, i), total+b.weight
	}
	if total == 0 {
		return -1
	}
	at := a.r.draw(total)
	for _, i := range fit {
		if at -= f.node.branches[i].weight; at < 0 {
			return i
		}
	}
	return -1
}
