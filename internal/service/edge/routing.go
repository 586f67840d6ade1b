// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
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

// chooseAgent chooses the agent that serves the endpoint. It waits at most ClientInfo.MaxWait.
func (rt *router) chooseAgent(
	ctx context.Context, ep *account.Endpoint, info *ClientInfo, tried []Agent,
) (Agent, error) {
	if info.MaxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, info.MaxWait)
		defer cancel()
	}
	return rt.agents.ChooseAgent(ctx, ep, tried)
}

// resolveEndpoint returns the current state of the endpoint, which may be newer than the
// connection, and of a pool of cloud endpoints the member whose turn it is. For an endpoint of
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

// resolveTCP returns the route of a connection to a tcp endpoint, through the policies of all
// endpoints that it passes.
func (rt *router) resolveTCP(ctx context.Context, ep *account.Endpoint, info *ClientInfo) (route, error) {
	for range maxHops + 1 {
		latest, agent, err := rt.resolveEndpoint(ctx, ep, info)
		var verdict trafficpolicy.Verdict
		if err == nil {
			verdict, err = rt.evaluateConn(ctx, latest, info)
		}
		if agent != nil && (err != nil || verdict.Target != trafficpolicy.Target{}) {
			agent.Release()
		}
		if err != nil {
			return route{}, err
		}
		next, r, err := rt.nextHop(ctx, latest, agent, verdict.Target, info)
		if err != nil || next == nil {
			return r, err
		}
		ep = next
	}
	return route{}, account.Errorf(account.CodeLoop, "%s: more than %d internal endpoints in a row", ep.URL, maxHops)
}

// evaluateConn evaluates the endpoint's policy for a connection; CodeDenied when it denies it.
func (rt *router) evaluateConn(
	ctx context.Context, ep *account.Endpoint, info *ClientInfo,
) (trafficpolicy.Verdict, error) {
	policy, err := rt.policies.forEndpoint(ep)
	if policy == nil || err != nil {
		return trafficpolicy.Verdict{}, err
	}
	v := info.verdicts.verdict(ctx, policy, info.policyConn(ep))
	if v.Deny {
		return v, account.Errorf(account.CodeDenied, "the traffic policy of %s denies the connection by %s", ep.URL,
			v.Rule)
	}
	return v, nil
}
