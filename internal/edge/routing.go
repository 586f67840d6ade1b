// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// maxHops is how many internal endpoints a connection or request may be forwarded to, one after the
// other.
const maxHops = 8

// arrive finds what the endpoint is at this moment: a connection may be older than the policy that
// holds now. With an endpoint of agents comes the one that is to serve; nil where there is none,
// and the policy may still answer. Of cloud endpoints that pool it is the one whose turn it is.
func (e *Edge) arrive(ctx context.Context, ep *account.Endpoint, o *ClientInfo) (*account.Endpoint, Agent, error) {
	if ep.Type != account.TypeCloud {
		agent, err := e.agent(ctx, ep, o, nil)
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
	if e.current.byID != nil {
		for _, m := range e.shares.next(ctx, ep) {
			// else it was deleted just now, or the store is away
			if now, err := e.current.known(ctx, ep.AccountID, m.id); err == nil {
				return now, nil, nil
			}
		}
	}
	now, err := e.current.endpoint(ctx, ep)
	return now, nil, err
}

// follow goes where a policy says: on to another endpoint, or to what serves the connection. The
// zero Target is the endpoint's own, of which agent was chosen already, or nil.
func (e *Edge) follow(
	ctx context.Context, ep *account.Endpoint, agent Agent, t trafficpolicy.Target, o *ClientInfo,
) (next *account.Endpoint, r route, err error) {
	switch {
	case t.InternalURL != "":
		next, err = e.current.internal(ctx, ep.AccountID, t.InternalURL)
		if err == nil && (next.Scheme == "tcp") != (ep.Scheme == "tcp") {
			return nil, route{}, account.Errorf(account.CodeNoInternal, "%s forwards to %s, which is of another scheme", ep.URL,
				t.InternalURL)
		}
	case t.BackendID != "":
		r, err = e.routeToBackend(ctx, ep, t.BackendID, o)
	default:
		r, err = e.routeTo(ctx, ep, o)
		r.first = agent
	}
	return next, r, err
}

// lead finds the way of a connection to a tcp endpoint, through the policies of all that it passes.
func (e *Edge) lead(ctx context.Context, ep *account.Endpoint, o *ClientInfo) (route, error) {
	for range maxHops + 1 {
		now, agent, err := e.arrive(ctx, ep, o)
		if err != nil {
			return route{}, err
		}
		verdict, err := e.admit(ctx, now, o)
		if agent != nil && (err != nil || verdict.Target != trafficpolicy.Target{}) {
			agent.Release()
		}
		if err != nil {
			return route{}, err
		}
		next, r, err := e.follow(ctx, now, agent, verdict.Target, o)
		if err != nil || next == nil {
			return r, err
		}
		ep = next
	}
	return route{}, account.Errorf(account.CodeLoop, "%s: more than %d internal endpoints in a row", ep.URL, maxHops)
}

// admit asks the policy of an endpoint about a connection. CodeDenied when it does not want it.
func (e *Edge) admit(ctx context.Context, ep *account.Endpoint, o *ClientInfo) (trafficpolicy.Verdict, error) {
	policy, err := e.policies.of(ep)
	if policy == nil || err != nil {
		return trafficpolicy.Verdict{}, err
	}
	v := o.verdicts.verdict(ctx, policy, o.conn(ep))
	if v.Deny {
		return v, account.Errorf(account.CodeDenied, "the traffic policy of %s denies the connection by %s", ep.URL, v.Rule)
	}
	return v, nil
}

// visit does with a request what an endpoint says; hops is the number of internal endpoints that it
// has passed.
func (x *exchange) visit(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, hops int) {
	ctx := r.Context()
	now, agent, err := x.edge.arrive(ctx, ep, x.origin)
	if agent != nil {
		x.take(target{agent: agent})
	}
	if err != nil {
		x.fail(w, r, err)
		return
	}
	policy, err := x.edge.policies.of(now)
	switch {
	case err != nil:
		x.fail(w, r, err)
		return
	case policy == nil:
		x.forward(w, r, now, agent, trafficpolicy.Target{}, hops)
		return
	}
	conn := x.origin.conn(now)
	verdict := x.origin.verdicts.verdict(ctx, policy, conn)
	if verdict.Deny {
		x.page(account.CodeDenied, "The traffic policy of this endpoint does not admit the connection.")
		return
	}
	if hops == 0 {
		w = &recorder{w, x}
	}
	policy.ServeHTTP(w, r, conn, func(w http.ResponseWriter, r *http.Request, t trafficpolicy.Target) {
		if t == (trafficpolicy.Target{}) {
			t = verdict.Target
		}
		x.forward(w, r, now, agent, t, hops)
	})
}

// forward sends a request on as the policy of the endpoint has left it.
func (x *exchange) forward(
	w http.ResponseWriter, r *http.Request, ep *account.Endpoint, agent Agent, t trafficpolicy.Target, hops int,
) {
	next, route, err := x.edge.follow(r.Context(), ep, agent, t, x.origin)
	switch {
	case err != nil:
		x.fail(w, r, err)
	case next == nil:
		x.route = route
		x.proxy(w, r)
	case hops == maxHops:
		x.fail(w, r, account.Errorf(account.CodeLoop, "more than %d internal endpoints in a row", maxHops))
	default:
		x.visit(w, r, next, hops+1)
	}
}
