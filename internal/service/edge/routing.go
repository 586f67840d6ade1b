// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// maxHops bounds the internal endpoints that a connection or request may be forwarded to in a row.
const maxHops = 8

// resolveEndpoint returns the current state of the endpoint, which may be newer than the
// connection, and of a pool of cloud endpoints the member whose turn it is. For an endpoint of
// agents it also returns the agent that is to serve, or nil when none is online and the endpoint
// has a traffic policy, which may still answer. The caller releases the agent, also after an error.
func (e *Edge) resolveEndpoint(
	ctx context.Context, ep *account.Endpoint, info *ClientInfo,
) (*account.Endpoint, Agent, error) {
	latest, agent, err := e.findLatest(ctx, ep, info)
	if err == nil && e.opt.Checker != nil {
		err = e.opt.Checker.Check(latest)
	}
	return latest, agent, err
}

// findLatest is resolveEndpoint without Options.Checker.
func (e *Edge) findLatest(
	ctx context.Context, ep *account.Endpoint, info *ClientInfo,
) (*account.Endpoint, Agent, error) {
	if ep.Type != account.TypeCloud {
		agent, err := e.chooseAgent(ctx, ep, info, nil)
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
	if e.endpoints.source != nil {
		if latest := e.endpoints.first(ctx, ep.AccountID, e.poolMembers.ordered(ctx, ep)); latest != nil {
			return latest, nil, nil
		}
	}
	latest, err := e.endpoints.latest(ctx, ep)
	return latest, nil, err
}

// nextHop follows the target of a policy: it returns either the internal endpoint to go on to, or
// the route to what serves the connection. The zero Target is the endpoint itself, whose agent, if
// not nil, was already chosen.
func (e *Edge) nextHop(
	ctx context.Context, ep *account.Endpoint, agent Agent, t trafficpolicy.Target, info *ClientInfo,
) (next *account.Endpoint, r route, err error) {
	switch {
	case t.InternalURL != "":
		next, err = e.endpoints.getInternal(ctx, ep.AccountID, t.InternalURL)
		if err == nil && (next.Scheme == "tcp") != (ep.Scheme == "tcp") {
			return nil, route{}, account.Errorf(account.CodeNoInternal, "%s forwards to %s, which is of another scheme",
				ep.URL,
				t.InternalURL)
		}
	case t.BackendID != "":
		r, err = e.routeToBackend(ctx, ep, t.BackendID, info)
	default:
		r, err = e.routeToEndpoint(ctx, ep, info)
		r.preselected = agent
	}
	return next, r, err
}

// resolveTCP returns the route of a connection to a tcp endpoint, through the policies of all
// endpoints that it passes.
func (e *Edge) resolveTCP(ctx context.Context, ep *account.Endpoint, info *ClientInfo) (route, error) {
	for range maxHops + 1 {
		latest, agent, err := e.resolveEndpoint(ctx, ep, info)
		var verdict trafficpolicy.Verdict
		if err == nil {
			verdict, err = e.evaluateConn(ctx, latest, info)
		}
		if agent != nil && (err != nil || verdict.Target != trafficpolicy.Target{}) {
			agent.Release()
		}
		if err != nil {
			return route{}, err
		}
		next, r, err := e.nextHop(ctx, latest, agent, verdict.Target, info)
		if err != nil || next == nil {
			return r, err
		}
		ep = next
	}
	return route{}, account.Errorf(account.CodeLoop, "%s: more than %d internal endpoints in a row", ep.URL, maxHops)
}

// evaluateConn evaluates the endpoint's policy for a connection; CodeDenied when it denies it.
func (e *Edge) evaluateConn(
	ctx context.Context, ep *account.Endpoint, info *ClientInfo,
) (trafficpolicy.Verdict, error) {
	policy, err := e.policies.forEndpoint(ep)
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

// handleRequest applies the endpoint's policy to a request and forwards it. hops is the number of
// internal endpoints that the request has passed.
func (x *exchange) handleRequest(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, hops int) {
	ctx := r.Context()
	latest, agent, err := x.edge.resolveEndpoint(ctx, ep, x.info)
	if agent != nil {
		x.setTarget(target{agent: agent})
	}
	if err != nil {
		x.fail(w, r, err)
		return
	}
	if hops == 0 && x.conn != nil && !x.admitHost(r, latest) {
		return
	}
	policy, err := x.edge.policies.forEndpoint(latest)
	switch {
	case err != nil:
		x.fail(w, r, err)
		return
	case policy == nil:
		x.forward(w, r, latest, agent, trafficpolicy.Target{}, hops)
		return
	}
	conn := x.info.policyConn(latest)
	verdict := x.info.verdicts.verdict(ctx, policy, conn)
	if verdict.Deny {
		x.writeError(account.CodeDenied, "The traffic policy of this endpoint does not admit the connection.")
		return
	}
	if hops == 0 {
		w = &statusRecorder{w, x}
	}
	policy.ServeHTTP(w, r, conn, func(w http.ResponseWriter, r *http.Request, t trafficpolicy.Target) {
		if t == (trafficpolicy.Target{}) {
			t = verdict.Target
		}
		x.forward(w, r, latest, agent, t, hops)
	})
}

// forward sends a request on to the target that the endpoint's policy chose.
func (x *exchange) forward(
	w http.ResponseWriter, r *http.Request, ep *account.Endpoint, agent Agent, t trafficpolicy.Target, hops int,
) {
	next, route, err := x.edge.nextHop(r.Context(), ep, agent, t, x.info)
	switch {
	case err != nil:
		x.fail(w, r, err)
	case next == nil:
		x.route = route
		x.proxy(w, r)
	case hops == maxHops:
		x.fail(w, r, account.Errorf(account.CodeLoop, "more than %d internal endpoints in a row", maxHops))
	default:
		x.handleRequest(w, r, next, hops+1)
	}
}
