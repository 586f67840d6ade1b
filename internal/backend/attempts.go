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

// Attempts gives the leaves to try for one connection or request, one after the other. It is safe
// for concurrent use.
type Attempts struct {
	r         *Resolver
	accountID string
	client    voter
	deadline  time.Time

	mu      sync.Mutex
	frames  []*frame // from the root down to the leaf that is tried
	left    int
	current *Attempt
}

// Attempt is a leaf to try: one of Labels, Static and Response is set. The caller tells what became
// of it; what is told once another attempt has begun is not heard.
type Attempt struct {
	BackendID string
	Labels    map[string]string // of a tunnel group
	Static    *account.StaticAddress
	Response  *account.HTTPResponse

	in      *Attempts
	outcome outcome
}

type outcome int

const (
	untold outcome = iota
	wentUp
	wentDown
)

// Attempts begins a connection or request to the backend. CodeNotFound when the account has no such
// backend.
func (r *Resolver) Attempts(ctx context.Context, accountID, backendID string, client Client) (*Attempts, error) {
	root, err := r.tree(ctx, accountID, backendID)
	if err != nil {
		return nil, err
	}
	top := &node{branches: []branch{{node: root}}}
	return &Attempts{
		r: r, accountID: accountID, client: client.voter(), deadline: r.opt.Clock().Add(maxDuration),
		frames: []*frame{newFrame(top)}, left: maxAttempts,
	}, nil
}

// Deadline is when no further attempt begins. The caller ends the ones under way by it too.
func (a *Attempts) Deadline() time.Time { return a.deadline }

// Next returns the next leaf to try. false: there is none, eight were tried, ten seconds have gone
// by or ctx is done. An attempt before it of which nothing was told counts neither way.
func (a *Attempts) Next(ctx context.Context) (*Attempt, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != nil && a.current.outcome == untold {
		a.release()
	}
	a.current = nil
	for a.left > 0 && ctx.Err() == nil && len(a.frames) > 0 {
		now := a.r.opt.Clock()
		if !now.Before(a.deadline) {
			break
		}
		f := a.frames[len(a.frames)-1]
		child, probe := a.pick(f, now, false)
		if child < 0 {
			a.pop()
			continue
		}
		f.tried[child], f.chosen, f.probe, f.probed, f.started = true, child, probe, probe, now
		n := f.branch().node
		if n.isGroup() {
			a.frames = append(a.frames, newFrame(n))
			continue
		}
		a.left--
		for _, f := range a.frames {
			f.yielded = true
		}
		a.current = &Attempt{BackendID: n.id, Labels: n.backend.Labels, Static: n.backend.Static,
			Response: n.backend.Response, in: a}
		return a.current, true
	}
	a.release() // turns that nobody will use
	return nil, false
}

// pop leaves a group in which nobody is left to try: a failure of the group as a child, when all
// that was tried in it failed.
func (a *Attempts) pop() {
	last := len(a.frames) - 1
	f := a.frames[last]
	a.frames = a.frames[:last]
	if last == 0 {
		return
	}
	if f.failed {
		a.failure(a.frames[last-1])
		return
	}
	a.frames[last-1].release()
}

func (a *Attempts) release() {
	for _, f := range a.frames {
		f.release()
	}
}

// release gives up the turn to try the child.
func (f *frame) release() {
	if f.probe {
		f.probe = false
		f.branch().health.release()
	}
}

// fail notes that the child which the frame chose failed, and leaves what is below.
func (a *Attempts) fail(frame int) {
	a.frames = a.frames[:frame+1]
	for _, f := range a.frames {
		f.failed = true
	}
	a.failure(a.frames[frame])
}

// failure notes that the child that f chose failed.
func (a *Attempts) failure(f *frame) {
	if h := f.branch().health; h != nil && h.failure(a.r.opt.Clock(), f.started, f.probe) {
		a.r.judge(a.accountID, f.node)
	}
	f.probe = false
}

// Up tells that the leaf was reached: the connection stands.
func (t *Attempt) Up() {
	a := t.in
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != t || t.outcome != untold {
		return
	}
	t.outcome = wentUp
	now := a.r.opt.Clock()
	for _, f := range a.frames {
		if h := f.branch().health; h != nil && h.success(now, f.started, f.probe) {
			a.r.judge(a.accountID, f.node)
		}
		f.failed, f.probe, f.started = false, false, now // a failure that follows is of a child that was up now
	}
}

// Down tells that the leaf could not be reached, and why. A client that went away
// (context.Canceled) says nothing of the leaf.
func (t *Attempt) Down(err error) {
	a := t.in
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != t || t.outcome == wentDown {
		return
	}
	t.outcome = wentDown
	if errors.Is(err, context.Canceled) {
		a.release()
		return
	}
	a.fail(len(a.frames) - 1)
}

// Status tells the status of the leaf's HTTP answer. Where a failover on the way lists it, retry
// says that another child may be tried: Next gives it, once the caller has found that the request
// can be repeated. Whether the child is down by it the failover's rule says, and what other clients
// were answered.
func (t *Attempt) Status(code int) (retry bool) {
	a := t.in
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != t || t.outcome == wentDown {
		return false
	}
	now := a.r.opt.Clock()
	for i, f := range slices.Backward(a.frames) {
		listed := f.node.backend.HealthStatus
		if len(listed) == 0 {
			continue
		}
		bad, h := slices.Contains(listed, code), f.branch().health
		down := h != nil && h.answer(now, f.node.backend.HealthRule.WithDefaults(), a.client, bad, f.probed)
		if !bad {
			continue
		}
		t.outcome = wentDown
		if down {
			a.fail(i)
		} else {
			a.frames = a.frames[:i+1]
			a.release()
		}
		return a.more()
	}
	return false
}

// more says that Next would find somebody to try.
func (a *Attempts) more() bool {
	now := a.r.opt.Clock()
	if a.left <= 0 || !now.Before(a.deadline) {
		return false
	}
	return slices.ContainsFunc(a.frames, func(f *frame) bool {
		child, _ := a.pick(f, now, true)
		return child >= 0
	})
}
