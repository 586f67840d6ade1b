// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of what is tried for one connection or request.
const (
	maxAttempts = 8
	maxDuration = 10 * time.Second
)

// Attempts yields the leaves to try for one connection or request. It is safe for concurrent use.
type Attempts struct {
	r         *Resolver
	accountID string
	client    clientKey
	deadline  time.Time

	mu        sync.Mutex
	path      []*pathStep // from the root down to the leaf being tried
	remaining int
	current   *Attempt
}

// Attempt is a leaf to try: one of Labels, Static and Response is set. The caller reports its
// result; a report after the next attempt has begun is ignored.
type Attempt struct {
	BackendID string
	Labels    map[string]string // a tunnel group's labels
	Static    *account.StaticAddress
	Response  *account.HTTPResponse

	attempts *Attempts
	outcome  outcome
}

type outcome int

const (
	outcomeUnknown outcome = iota
	outcomeUp
	outcomeDown
)

// Attempts starts a connection or request to the backend. CodeNotFound when the account has no such
// backend.
func (r *Resolver) Attempts(ctx context.Context, accountID, backendID string, client Client) (*Attempts, error) {
	root, err := r.tree(ctx, accountID, backendID)
	if err != nil {
		return nil, err
	}
	top := &node{branches: []branch{{node: root}}}
	return &Attempts{
		r: r, accountID: accountID, client: client.key(), deadline: time.Now().Add(maxDuration),
		path: []*pathStep{newPathStep(top)}, remaining: maxAttempts,
	}, nil
}

// Deadline is when no further attempt begins. The caller also ends running attempts by it.
func (a *Attempts) Deadline() time.Time { return a.deadline }

// Next returns the next leaf to try. false: none is left, maxAttempts were tried, maxDuration has
// passed or ctx is done. An attempt without a reported result counts neither as success nor as
// failure.
func (a *Attempts) Next(ctx context.Context) (*Attempt, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != nil && a.current.outcome == outcomeUnknown {
		a.release()
	}
	a.current = nil
	for a.remaining > 0 && ctx.Err() == nil && len(a.path) > 0 {
		now := time.Now()
		if !now.Before(a.deadline) {
			break
		}
		f := a.path[len(a.path)-1]
		child, probe := a.pickChild(f, now, false)
		if child < 0 {
			a.pop()
			continue
		}
		f.tried[child], f.chosen, f.probe, f.wasProbe, f.started = true, child, probe, probe, now
		n := f.branch().node
		if n.isGroup() {
			a.path = append(a.path, newPathStep(n))
			continue
		}
		a.remaining--
		for _, f := range a.path {
			f.attempted = true
		}
		a.current = &Attempt{BackendID: n.id, Labels: n.backend.Labels, Static: n.backend.Static,
			Response: n.backend.Response, attempts: a}
		return a.current, true
	}
	a.release() // turns that no attempt will use
	return nil, false
}

// pop leaves a group without a child left to try: a failure of the group as a child, when all that
// was tried in it failed.
func (a *Attempts) pop() {
	last := len(a.path) - 1
	f := a.path[last]
	a.path = a.path[:last]
	if last == 0 {
		return
	}
	if f.failed {
		a.recordFailure(a.path[last-1])
		return
	}
	a.path[last-1].release()
}

// release gives up all probes on the path.
func (a *Attempts) release() {
	for _, f := range a.path {
		f.release()
	}
}

// release gives up the probe of the child.
func (f *pathStep) release() {
	if f.probe {
		f.probe = false
		f.branch().health.releaseProbe()
	}
}

// fail records that the child chosen at the step failed, and drops the path below it.
func (a *Attempts) fail(step int) {
	a.path = a.path[:step+1]
	for _, f := range a.path {
		f.failed = true
	}
	a.recordFailure(a.path[step])
}

// recordFailure records that the child chosen by f failed.
func (a *Attempts) recordFailure(f *pathStep) {
	if h := f.branch().health; h != nil && h.recordFailure(time.Now(), f.started, f.probe) {
		a.r.updateActive(a.accountID, f.node)
	}
	f.probe = false
}

// Up reports that the leaf was reached.
func (t *Attempt) Up() {
	a := t.attempts
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != t || t.outcome != outcomeUnknown {
		return
	}
	t.outcome = outcomeUp
	now := time.Now()
	for _, f := range a.path {
		if h := f.branch().health; h != nil && h.recordSuccess(now, f.started, f.probe) {
			a.r.updateActive(a.accountID, f.node)
		}
		f.failed, f.probe, f.started = false, false, now // a failure that follows is of a child that was up now
	}
}

// Down reports that the leaf could not be reached, and why. context.Canceled, of a client that
// left, counts neither way.
func (t *Attempt) Down(err error) {
	a := t.attempts
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != t || t.outcome == outcomeDown {
		return
	}
	t.outcome = outcomeDown
	if errors.Is(err, context.Canceled) {
		a.release()
		return
	}
	a.fail(len(a.path) - 1)
}

// Status reports the status of the leaf's HTTP answer. Where a failover on the path lists it, retry
// reports that another child may be tried: Next returns it, and the caller decides whether the
// request can be repeated. Whether the status takes the child down depends on the failover's rule
// and the answers to other clients.
func (t *Attempt) Status(code int) (retry bool) {
	a := t.attempts
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != t || t.outcome == outcomeDown {
		return false
	}
	now := time.Now()
	for i, f := range slices.Backward(a.path) {
		listed := f.node.backend.HealthStatus
		if len(listed) == 0 {
			continue
		}
		bad, h := slices.Contains(listed, code), f.branch().health
		down := h != nil && h.recordStatus(now, f.node.backend.HealthRule.WithDefaults(), a.client, bad, f.wasProbe)
		if !bad {
			continue
		}
		t.outcome = outcomeDown
		if down {
			a.fail(i)
		} else {
			a.path = a.path[:i+1]
			a.release()
		}
		return a.canRetry()
	}
	return false
}

// canRetry reports whether Next would return a leaf.
func (a *Attempts) canRetry() bool {
	now := time.Now()
	if a.remaining <= 0 || !now.Before(a.deadline) {
		return false
	}
	return slices.ContainsFunc(a.path, func(f *pathStep) bool {
		child, _ := a.pickChild(f, now, true)
		return child >= 0
	})
}
