// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// maxHops bounds the internal endpoints that a connection or request may be forwarded to in a row.
const maxHops = 8

// router finds what serves a connection or request to an endpoint, as it is now: an agent, the route
// to a backend, or an internal endpoint that its policy chooses. It is safe for concurrent use.
type router struct {
	agents      Agents
	backends    Backends // nil = there are none
	checker     Checker  // nil = every endpoint may be served
	policies    *policies
	endpoints   *endpointCache
	poolMembers *poolMembers
}

func newRouter(o *Options) *router {
	return &router{agents: o.Agents, backends: o.Backends, checker: o.Checker,
		policies: newPolicies(o.Logger, o.Logins), endpoints: newEndpointCache(o),
		poolMembers: newPoolMembers(o.Endpoints)}
}

// chooseAgent chooses the agent that serves the endpoint: for a sealed connection one that seals, for
// others one that does not, and none of ClientInfo.Tried. It waits at most ClientInfo.MaxWait.
func (rt *router) chooseAgent(
	ctx context.Context, ep *account.Endpoint, info *ClientInfo, tried []Agent,
) (Agent, error) {
	var unfit error
	waits := info.Sealed && len(tried) == 0
	for {
		agent, err := rt.agents.ChooseAgent(ctx, ep, info.MaxWait, waits, tried)
		if err != nil {
			return nil, cmp.Or(unfit, err)
		}
		switch latest := agent.Endpoint(); {
		case info.Sealed && !latest.Sealed():
			unfit = errNotSealed(latest)
		case !info.Sealed && latest.Sealed():
			unfit = account.Errorf(account.CodeEndpointSealed, "%s is sealed: its agent serves no plain connections",
				latest.URL)
		case !info.Sealed || !slices.Contains(strings.Split(info.Tried, ","), latest.ID):
			return agent, nil
		}
		tried = append(slices.Clip(tried), agent)
		agent.Release()
	}
}

func errNotSealed(ep *account.Endpoint) error {
	return account.Errorf(account.CodeNotSealed, "%s is not sealed: its agent serves plain connections", ep.URL)
}

// resolveEndpoint returns the current state of the endpoint, which may be newer than the
// connection, and of a pool of cloud endpoints the next member in turn. For an endpoint of
// agents it also returns the agent that is to serve, or nil when none is online and the endpoint
// has a traffic policy, which may still answer. The caller releases the agent, also after an error.
func (rt *router) resolveEndpoint(
	ctx context.Context, ep *account.Endpoint, info *ClientInfo,
) (*account.Endpoint, Agent, error) {
	latest, agent, err := rt.findLatest(ctx, ep, info)
	if err == nil && rt.checker != nil {
		err = rt.checker.Check(latest)
	}
	return latest, agent, err
}

// findLatest is resolveEndpoint without Options.Checker.
func (rt *router) findLatest(
	ctx context.Context, ep *account.Endpoint, info *ClientInfo,
) (*account.Endpoint, Agent, error) {
	if ep.Type != account.TypeCloud {
		agent, err := rt.chooseAgent(ctx, ep, info, nil)
		switch {
		case err == nil:
			return agent.Endpoint(), agent, nil
		case ep.TrafficPolicy == "":
			return nil, nil, err
		}
		switch account.CodeOf(err) {
		case account.CodeEndpointOffline, account.CodeAgentSilent: // the policy may still answer
		default:
			return nil, nil, err
		}
	}
	if rt.endpoints.source != nil {
		if latest := rt.endpoints.first(ctx, ep.AccountID, rt.poolMembers.ordered(ctx, ep)); latest != nil {
			return latest, nil, nil
		}
	}
	latest, err := rt.endpoints.latest(ctx, ep)
	return latest, nil, err
}

// nextHop follows the target of a policy: it returns either the internal endpoint to go on to, or
// the route to what serves the connection. The zero Target is the endpoint itself, whose agent, if
// not nil, was already chosen.
func (rt *router) nextHop(
	ctx context.Context, ep *account.Endpoint, agent Agent, t trafficpolicy.Target, info *ClientInfo,
) (next *account.Endpoint, r route, err error) {
	switch {
	case t.InternalURL != "":
		next, err = rt.endpoints.getInternal(ctx, ep.AccountID, t.InternalURL)
		if err == nil && (next.Scheme == "tcp") != (ep.Scheme == "tcp") {
			return nil, route{}, account.Errorf(account.CodeNoInternal, "%s forwards to %s, which is of another scheme",
				ep.URL, t.InternalURL)
		}
	case t.BackendID != "":
		r, err = rt.routeToBackend(ctx, ep, t.BackendID, info)
	default:
		r, err = rt.routeToEndpoint(ctx, ep, info)
		r.preselected = agent
	}
	return next, r, err
}

// routeToEndpoint returns the route to the endpoint's own agents or backend.
func (rt *router) routeToEndpoint(ctx context.Context, ep *account.Endpoint, info *ClientInfo) (route, error) {
	switch {
	case ep.Type != account.TypeCloud:
		return route{router: rt, info: info, endpoint: ep}, nil
	case ep.BackendID == "":
		return route{}, account.Errorf(account.CodeNoTarget, "%s has no backend", ep.URL)
	}
	r, err := rt.routeToBackend(ctx, ep, ep.BackendID, info)
	if others := rt.poolMembers.otherBackends(ep); err == nil && len(others) > 0 {
		r.attempts = &chainedAttempts{r.attempts, others, rt.backends, ep.AccountID, info}
	}
	return r, err
}

// routeToBackend returns the route to a backend.
func (rt *router) routeToBackend(
	ctx context.Context, ep *account.Endpoint, backendID string, info *ClientInfo,
) (route, error) {
	if rt.backends == nil {
		return route{}, account.Errorf(account.CodeNoTarget, "%s forwards to backend %s, and there are none here",
			ep.URL, backendID)
	}
	a, err := rt.backends.Attempts(ctx, ep.AccountID, backendID, info)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return route{}, account.Errorf(account.CodeNoTarget, "%s forwards to backend %s, which does not exist", ep.URL,
			backendID)
	case err != nil:
		return route{}, fmt.Errorf("reading backend %s: %w", backendID, err)
	}
	return route{router: rt, info: info, endpoint: ep, attempts: a}, nil
}

// Limits of the attempts for one connection or request.
const (
	maxAttempts  = 8
	maxRetryTime = 10 * time.Second
)

// Attempts yields the leaves of a backend to try for one connection or request.
type Attempts interface {
	// Next returns the next leaf; false when none is left.
	Next(ctx context.Context) (Attempt, bool)
}

// Attempt is a leaf of a backend: one of Labels, Static and Response is set, and Outcome.
type Attempt struct {
	BackendID string
	Labels    map[string]string      // a tunnel group's labels
	Static    *account.StaticAddress // a static address
	Response  *account.HTTPResponse  // a fixed response
	Outcome   Outcome
}

// Outcome receives the result of an Attempt.
type Outcome interface {
	Up()            // reports that the leaf was reached
	Down(err error) // reports that it was not
	// Status reports the status of the leaf's HTTP answer. retry: it counts as a failure, and
	// another leaf may be tried.
	Status(code int) (retry bool)
}

// target is what a connection or request may go to: an agent, or a leaf of a backend without one.
type target struct {
	agent Agent // agent of the target; nil for static addresses and fixed responses
	// preselected reports that the agent was chosen before the route, and is the exchange's target.
	preselected bool
	leaf        Attempt // leaf of a backend; zero for an agent of the endpoint itself
}

// reportUp reports to the backend that the target was reached.
func (t *target) reportUp() {
	if t.leaf.Outcome != nil {
		t.leaf.Outcome.Up()
	}
}

func (t *target) release() {
	if t.agent != nil {
		t.agent.Release()
	}
}

// route yields, one after the other, the targets of a connection or request to an endpoint.
type route struct {
	router   *router
	info     *ClientInfo
	endpoint *account.Endpoint

	preselected Agent    // agent that was chosen already; nil = none
	attempts    Attempts // leaves of the endpoint's backend; nil where its agents serve it
	tunnelGroup *Attempt // leaf whose tunnels are being tried; nil = none
	groupErr    error    // error of the group's last tunnel
	tried       []Agent
	// unresponsive is the leaf whose agent does not respond but may again; zero for an agent of the
	// endpoint itself, nil = there is none.
	unresponsive *Attempt
	attemptCount int
	retriesBegan time.Time // time of the second attempt
}

// nextTarget chooses the target to try next; errNoTargetLeft when the limits are reached or none is
// left. The caller releases it.
func (r *route) nextTarget(ctx context.Context) (target, error) {
	r.attemptCount++
	switch {
	case r.attemptCount == 2:
		r.retriesBegan = time.Now()
	case r.attemptCount > maxAttempts, r.attemptCount > 2 && time.Since(r.retriesBegan) > maxRetryTime:
		return target{}, errNoTargetLeft
	}
	if r.attempts != nil {
		return r.nextLeaf(ctx)
	}
	if agent := r.preselected; agent != nil {
		r.preselected = nil
		return target{agent: agent, preselected: true}, nil
	}
	agent, err := r.router.chooseAgent(ctx, r.endpoint, r.info, r.tried)
	if err != nil && r.unresponsive != nil { // there is no other: wait for it
		r.unresponsive, r.tried = nil, nil
		agent, err = r.router.chooseAgent(ctx, r.endpoint, r.info, nil)
	}
	if err != nil {
		return target{}, err
	}
	return target{agent: agent}, nil
}

// errNoTargetLeft reports that every target that may be tried was tried.
var errNoTargetLeft = errors.New("no target is left to try")

// nextLeaf returns the next leaf of the backend, or the next tunnel of the tunnel group being
// tried.
func (r *route) nextLeaf(ctx context.Context) (target, error) {
	for {
		if r.tunnelGroup == nil {
			leaf, ok := r.attempts.Next(ctx)
			switch {
			case !ok && r.unresponsive == nil:
				return target{}, errNoTargetLeft
			case !ok:
				leaf, r.unresponsive, r.tried = *r.unresponsive, nil, nil
			}
			if leaf.Labels == nil {
				return target{leaf: leaf}, nil
			}
			r.tunnelGroup = &leaf
		}
		agent, err := r.router.agents.ChooseTunnel(ctx, r.endpoint.AccountID, r.tunnelGroup.Labels, r.tried)
		if err == nil {
			return target{agent: agent, leaf: *r.tunnelGroup}, nil
		}
		if r.groupErr != nil {
			err = r.groupErr
		}
		r.tunnelGroup.Outcome.Down(err)
		r.tunnelGroup, r.groupErr = nil, nil
	}
}

// recordFailure records that t did not serve. It reports whether another target may be tried:
// nothing of what was sent has reached an upstream.
func (r *route) recordFailure(t *target, err error) (again bool) {
	if !isUndelivered(err) {
		return false
	}
	switch {
	case t.agent != nil:
		r.tried = append(r.tried, t.agent)
		r.groupErr = err
		if errors.Is(err, tunnel.ErrUnresponsive) {
			leaf := t.leaf // a copy: t changes with the next attempt
			r.unresponsive = &leaf
		}
	case t.leaf.Outcome != nil:
		t.leaf.Outcome.Down(err)
	}
	return true
}

// exclude excludes a target that broke off from the next attempt.
func (r *route) exclude(t *target) {
	if t.agent != nil {
		r.tried = append(r.tried, t.agent)
		r.groupErr = account.Errorf(account.CodeUpstreamBroken, "an upstream broke off")
	}
}

// finalError returns the error of an exhausted route: last is that of nextTarget, failed that of
// the attempts before it.
func (r *route) finalError(last, failed error) error {
	switch {
	case r.attempts != nil:
		return &account.Error{Code: account.CodeNoChild,
			Msg: r.endpoint.URL + ": no child of its backend could be reached", Cause: failed}
	case failed != nil:
		return failed
	}
	return last
}

// moreSpecific returns the more precise of two errors: the earlier one, unless that only says
// offline.
func moreSpecific(before, now error) error {
	if before == nil || account.CodeOf(before) == account.CodeEndpointOffline {
		return now
	}
	return before
}

// staticDialError reports that no connection to a static address was made.
type staticDialError struct{ cause error }

func (n *staticDialError) Error() string { return "connecting to a static address: " + n.cause.Error() }
func (n *staticDialError) Unwrap() error { return n.cause }

// isUndelivered reports whether what was sent may be sent to another target after err: the upstream
// has nothing of it, or may get it twice and does not respond.
func isUndelivered(err error) bool {
	return errors.As(err, new(*tunnel.RefusedError)) || errors.As(err, new(*staticDialError)) ||
		errors.Is(err, trafficerror.ErrAgentTimeout) ||
		errors.Is(err, tunnel.ErrUnresponsive) || account.CodeOf(err) == account.CodeEndpointOffline
}
