// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import "time"

// frame is a group on the way to the leaf that is tried now.
type frame struct {
	node    *node
	tried   []bool
	yielded bool // it led to an attempt
	failed  bool // the last of which something was told did not get through

	chosen  int       // the child on the way
	probed  bool      // probe, also after its outcome
	probe   bool      // the way there is the one live connection that tries the child
	started time.Time // when the child was chosen
}

func newFrame(n *node) *frame { return &frame{node: n, tried: make([]bool, len(n.branches))} }

func (f *frame) branch() branch { return f.node.branches[f.chosen] }

// pick chooses the next child that has not been tried; -1 when there is none. A dry pick takes no
// turn and notes nothing.
func (a *Attempts) pick(f *frame, now time.Time, dry bool) (child int, probe bool) {
	if child, probe = a.pickFit(f, now, dry); child >= 0 {
		return child, probe
	}
	if child = a.first(f, func(b branch) bool { return a.r.level(a.accountID, b, now) == levelRecovering }); child >= 0 {
		return child, false
	}
	if f.yielded { // all down, and somebody was tried
		return -1, false
	}
	if child = a.first(f, func(b branch) bool { return a.r.reachable(a.accountID, b.node) }); child >= 0 {
		return child, false
	}
	return a.first(f, func(branch) bool { return true }), false
}

// pickFit chooses among the children that are up, or that it is this connection's turn to try.
func (a *Attempts) pickFit(f *frame, now time.Time, dry bool) (child int, probe bool) {
	unfit := make([]bool, len(f.tried))
	for {
		child = a.first(f, func(b branch) bool {
			up := b.health == nil || b.health.level() == levelUp || b.health.due(now)
			return up && a.r.possible(a.accountID, b.node, now)
		}, unfit...)
		if child < 0 || dry {
			return child, false
		}
		b := f.node.branches[child]
		if b.health == nil || b.health.level() == levelUp {
			a.r.notice(a.accountID, f.node, b.node.id)
			return child, false
		}
		if b.health.take(now, a.client) {
			return child, true
		}
		unfit[child] = true // another connection's turn
	}
}

// first returns the child that comes first among those that have not been tried and that fit; of a
// weighted backend one that the weights draw. -1 when there is none.
func (a *Attempts) first(f *frame, fits func(branch) bool, unfit ...bool) int {
	var fit []int
	total := 0
	for i, b := range f.node.branches {
		if f.tried[i] || len(unfit) > 0 && unfit[i] || !f.node.eligible(b) || !fits(b) {
			continue
		}
		if b.weight == 0 { // of a failover
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
