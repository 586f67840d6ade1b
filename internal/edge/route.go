// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Limits of what is tried for one connection or request.
const (
	maxAttempts = 8
	maxTrying   = 10 * time.Second
)

// Attempts gives the leaves of a backend to try for one connection or request, one after the other.
type Attempts interface {
	// Next returns the next leaf; false when nobody is left to try.
	Next(ctx context.Context) (Attempt, bool)
}

// Attempt is a leaf of a backend: one of Labels, Static and Response is set, and Outcome.
type Attempt struct {
	BackendID string
	Labels    map[string]string      // of a tunnel group
	Static    *account.StaticAddress // an address
	Response  *account.HTTPResponse  // an answer
	Outcome   Outcome
}

// Outcome is told what became of an Attempt.
type Outcome interface {
	Up()            // the leaf was reached
	Down(err error) // it was not
	// Status tells the status of its HTTP answer. retry: it counts as a failure, and another leaf may
	// be tried.
	Status(code int) (retry bool)
}

// target is one place that a connection or request may go to: an agent, or a leaf of a backend that
// is none.
type target struct {
	agent Agent   // nil for static addresses and responses
	first bool    // the agent was chosen when the client arrived, and is the exchange's target already
	leaf  Attempt // zero for an agent of the endpoint itself
}

// up notes that the target was reached.
func (t *target) up() {
	if t.leaf.Outcome != nil {
		t.leaf.Outcome.Up()
	}
}

func (t *target) release() {
	if t.agent != nil {
		t.agent.Release()
	}
}

// route gives, one after the other, what a connection or request to an endpoint may go to.
type route struct {
	edge     *Edge
	origin   *ClientInfo
	endpoint *account.Endpoint

	first    Agent    // of the endpoint, chosen already; nil = none
	attempts Attempts // of its backend; nil where its agents serve it
	group    *Attempt // a tunnel group of which another tunnel may be tried
	down     error    // why the group's last tunnel did not serve
	tried    []Agent
	mute     *Attempt // of an agent that does not respond, and may again: zero for one of the endpoint itself
	count    int
	began    time.Time // of the second attempt
}

// routeTo is the way to what the endpoint itself says: its agents, or its backend.
func (e *Edge) routeTo(ctx context.Context, ep *account.Endpoint, o *ClientInfo) (route, error) {
	switch {
	case ep.Type != account.TypeCloud:
		return route{edge: e, origin: o, endpoint: ep}, nil
	case ep.BackendID == "":
		return route{}, account.Errorf(account.CodeNoTarget, "%s has no backend", ep.URL)
	}
	r, err := e.routeToBackend(ctx, ep, ep.BackendID, o)
	if others := e.shares.backends(ep); err == nil && len(others) > 0 {
		begin := func(ctx context.Context, id string) (Attempts, error) {
			return e.opt.BackendAttempts(ctx, ep.AccountID, id, o)
		}
		r.attempts = &turns{r.attempts, others, begin}
	}
	return r, err
}

func (e *Edge) routeToBackend(
	ctx context.Context, ep *account.Endpoint, backendID string, o *ClientInfo,
) (route, error) {
	if e.opt.BackendAttempts == nil {
		return route{}, account.Errorf(account.CodeNoTarget, "%s forwards to backend %s, and there are none here", ep.URL,
			backendID)
	}
	a, err := e.opt.BackendAttempts(ctx, ep.AccountID, backendID, o)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return route{}, account.Errorf(account.CodeNoTarget, "%s forwards to backend %s, which does not exist", ep.URL,
			backendID)
	case err != nil:
		return route{}, fmt.Errorf("reading backend %s: %w", backendID, err)
	}
	return route{edge: e, origin: o, endpoint: ep, attempts: a}, nil
}

// next chooses what is tried next. The caller releases it.
func (r *route) next(ctx context.Context) (target, error) {
	r.count++
	switch {
	case r.count == 2:
		r.began = time.Now()
	case r.count > maxAttempts, r.count > 2 && time.Since(r.began) > maxTrying:
		return target{}, errNobodyLeft
	}
	if r.attempts != nil {
		return r.nextLeaf(ctx)
	}
	if agent := r.first; agent != nil {
		r.first = nil
		return target{agent: agent, first: true}, nil
	}
	agent, err := r.edge.agent(ctx, r.endpoint, r.origin, r.tried)
	if err != nil && r.mute != nil { // there is no other: it is waited for
		r.mute, r.tried = nil, nil
		agent, err = r.edge.agent(ctx, r.endpoint, r.origin, nil)
	}
	if err != nil {
		return target{}, err
	}
	return target{agent: agent}, nil
}

// errNobodyLeft says that everything that may be tried was tried.
var errNobodyLeft = errors.New("nobody is left to try")

// nextLeaf goes through the leaves of a backend, and through the tunnels of a group.
func (r *route) nextLeaf(ctx context.Context) (target, error) {
	for {
		if r.group == nil {
			leaf, ok := r.attempts.Next(ctx)
			switch {
			case !ok && r.mute == nil:
				return target{}, errNobodyLeft
			case !ok:
				leaf, r.mute, r.tried = *r.mute, nil, nil
			}
			if leaf.Labels == nil {
				return target{leaf: leaf}, nil
			}
			r.group = &leaf
		}
		agent, err := r.edge.labelled(ctx, r.endpoint.AccountID, r.group.Labels, r.tried)
		if err == nil {
			return target{agent: agent, leaf: *r.group}, nil
		}
		if r.down != nil {
			err = r.down
		}
		r.group.Outcome.Down(err)
		r.group, r.down = nil, nil
	}
}

// failed notes that t did not serve, and says whether another one may be tried: nothing of what was
// sent has reached an upstream.
func (r *route) failed(t *target, err error) (again bool) {
	if !unopened(err) {
		return false
	}
	switch {
	case t.agent != nil:
		r.tried = append(r.tried, t.agent)
		r.down = err
		if errors.Is(err, tunnel.ErrUnresponsive) {
			leaf := t.leaf // which is another's after the next attempt
			r.mute = &leaf
		}
	case t.leaf.Outcome != nil:
		t.leaf.Outcome.Down(err)
	}
	return true
}

// sum is the error of a route that has come to its end: last is next's, failed what the attempts
// before it met.
func (r *route) sum(last, failed error) error {
	switch {
	case r.attempts != nil:
		return &account.Error{Code: account.CodeNoChild, Msg: r.endpoint.URL + ": no child of its backend could be reached",
			Cause: failed}
	case failed != nil:
		return failed
	}
	return last
}

// telling returns the one of two errors that says more.
func telling(before, now error) error {
	if before == nil || account.CodeOf(before) == account.CodeEndpointOffline {
		return now
	}
	return before
}

// notConnected says that no connection to a static address came about.
type notConnected struct{ cause error }

func (n *notConnected) Error() string { return "connecting to a static address: " + n.cause.Error() }
func (n *notConnected) Unwrap() error { return n.cause }

// unopened says of an error that what was sent may be sent elsewhere: the upstream has nothing of
// it, or may have it twice, and does not respond.
func unopened(err error) bool {
	var refused *tunnel.RefusedError
	var static *notConnected
	return errors.As(err, &refused) || errors.As(err, &static) || errors.Is(err, errSilent) ||
		errors.Is(err, tunnel.ErrUnresponsive) || account.CodeOf(err) == account.CodeEndpointOffline
}
