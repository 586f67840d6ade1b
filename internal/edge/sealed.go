// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// resolveSealed returns the route of a sealed connection: to an agent that seals. It binds without a
// policy, but another member of its pool may have replaced the pool's: that one may deny the
// connection, and must not forward it.
func (rt *router) resolveSealed(ctx context.Context, ep *account.Endpoint, info *ClientInfo) (route, error) {
	if ep.Type == account.TypeCloud {
		return route{}, errNotSealed(ep)
	}
	latest, agent, err := rt.resolveEndpoint(ctx, ep, info)
	switch {
	case err == nil && agent == nil: // it has a policy, and no agent
		err = account.Errorf(account.CodeEndpointOffline, "the agent of %s is not connected", ep.URL)
	case err == nil:
		var verdict trafficpolicy.Verdict
		verdict, err = rt.evaluateConn(ctx, latest, info)
		if err == nil && verdict.Target != (trafficpolicy.Target{}) {
			err = account.Errorf(account.CodeNotSealed, "the policy of %s forwards a sealed connection", latest.URL)
		}
	}
	if err == nil {
		return route{router: rt, info: info, endpoint: latest, preselected: agent}, nil
	}
	if agent != nil {
		agent.Release()
	}
	return route{}, err
}

// reportDraining tells the agent of a sealed connection, which may be kept for further requests, once the
// forwarder or this server is about to stop.
func (p *pendingConn) reportDraining(forwarder, ended <-chan struct{}) {
	select {
	case <-forwarder:
	case <-p.edge.stopping:
	case <-ended:
		return
	}
	if p.waitOpened() != nil {
		return
	}
	to := p.target.agent
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		to.Report(tunnel.RequestLine{EndpointID: to.Endpoint().ID, Code: tunnel.LineDraining, Path: p.header.TraceID})
		select {
		case <-again.C:
		case <-ended:
			return
		}
	}
}
