// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/relay"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// serveTCP joins the client to a stream of the agent. The client's bytes follow the stream's header at once; the client is accepted when the
// agent has answered, and refused with the agent's reason.
func (e *Edge) serveTCP(ctx context.Context, c Client, ep *account.Endpoint, o Origin) {
	agent, err := e.agent(ctx, ep, &o)
	if err != nil {
		e.refuse(c, refuseCode(err))
		return
	}
	defer agent.Release()
	header := e.header(agent.Endpoint())
	header.ClientAddr, header.TraceID, header.Pod = o.ClientAddr, o.TraceID, o.StatedPod
	st, err := agent.Open(ctx, header)
	if err != nil {
		e.opt.Meter.Opened("offline")
		e.refuse(c, refuseCode(err))
		return
	}
	up := e.newUpstream(st, c.Accept, func(err error) { e.refuse(c, refuseCode(err)) })
	moved, err := relay.Join(ctx, c, up, relay.Options{})
	if err != nil {
		e.log.Debug("a connection broke", "endpoint", header.EndpointID, "client", o.ClientAddr, "err", err, "to_agent", moved.AToB, "from_agent", moved.BToA)
	}
}

// header is the first flight of a stream to an agent.
func (e *Edge) header(ep *account.Endpoint) tunnel.OpenHeader {
	return tunnel.OpenHeader{EndpointID: ep.ID, Host: ep.Host, Port: ep.Port, Deadline: e.opt.OpenTimeout}
}

func (e *Edge) refuse(c Client, code tunnel.RefuseCode) {
	if err := c.Refuse(code); err != nil {
		e.log.Debug("refusal not sent", "code", code.String(), "err", err)
	}
}

// refuseCode says to a forwarder what went wrong on the way to the agent.
func refuseCode(err error) tunnel.RefuseCode {
	var refused *tunnel.RefusedError
	switch {
	case errors.As(err, &refused):
		switch refused.Code {
		case tunnel.RefusedUnknownEndpoint, tunnel.RefusedDraining: // the agent gave the endpoint back, or is about to
			return tunnel.RefusedOffline
		}
		return refused.Code
	case account.CodeOf(err) == account.CodeEndpointOffline:
		return tunnel.RefusedOffline
	case errors.Is(err, errSilent):
		return tunnel.RefusedUpstream
	}
	return tunnel.RefusedInternal
}
