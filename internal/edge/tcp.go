// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/relay"
	"github.com/fairlead-dev/fairlead/internal/stack"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// serveTCP joins the client to a target of the endpoint. The client's bytes follow the header of a
// stream at once; the client is accepted when a target has answered, and refused with the reason of
// the last one when none has.
func (e *Edge) serveTCP(ctx context.Context, c Client, ep *account.Endpoint, o ClientInfo) {
	stack.Grow8KiB()
	seen := e.seenConn(ep, &o)
	route, err := e.lead(ctx, ep, &o)
	switch {
	case account.CodeOf(err) == account.CodeDenied: // nothing is wrong with the way: the forwarder is not to report that
		e.log.Debug("a connection was denied", "endpoint", ep.ID, "client", o.ClientAddr, "err", err)
		e.saw(seen, "", err)
		_ = c.Accept()
		_ = c.Reset(tunnel.Aborted)
		return
	case err != nil:
		e.saw(seen, "", err)
		e.refuse(c, refuseCode(err))
		return
	}
	up := e.newOpening(ctx, c, &route, tunnel.OpenHeader{Scheme: "tcp", ClientAddr: o.ClientAddr, TraceID: o.TraceID,
		Pod: named(o.StatedPod)})
	defer up.release()
	moved, err := relay.Join(ctx, c, &seenOpening{up, seen}, relay.Options{})
	e.saw(seen, up.target.leaf.BackendID, up.err)
	if err != nil {
		e.log.Debug("a connection broke", "endpoint", ep.ID, "client", o.ClientAddr, "err", err, "to_agent", moved.AToB,
			"from_agent", moved.BToA)
	}
}

// named is what an agent gets to know of a pod: its annotations are for policies.
func named(pod *tunnel.PodIdentity) *tunnel.PodIdentity {
	if pod == nil {
		return nil
	}
	return &tunnel.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, ServiceAccount: pod.ServiceAccount,
		Truncated: pod.Truncated}
}

// connect begins a connection to the target.
func (e *Edge) connect(ctx context.Context, t *target, h tunnel.OpenHeader) (line, error) {
	static := t.leaf.Static
	switch {
	case t.agent != nil:
		u, err := e.openAgent(ctx, t.agent, h)
		if err != nil {
			return nil, err // not u: a nil *upstream is no nil line
		}
		return u, nil
	case static == nil:
		return nil, &notConnected{errors.New("an HTTP answer is nothing for a tcp endpoint")}
	}
	c, err := e.dial(ctx, static.Address, static.TLS)
	if err != nil {
		return nil, err
	}
	return newStaticLine(c), nil
}

// openAgent opens a stream; h is what is known of the client. The stream's header is its first
// flight, together with bytes that follow at once.
func (e *Edge) openAgent(ctx context.Context, agent Agent, h tunnel.OpenHeader) (*upstream, error) {
	ep := agent.Endpoint()
	h.EndpointID, h.Host, h.Port, h.Deadline = ep.ID, ep.Host, ep.Port, e.opt.OpenTimeout
	st, err := agent.Open(ctx, h)
	if err != nil {
		e.opt.Meter.CountStream("offline")
		return nil, err
	}
	return e.newUpstream(st), nil
}

func (e *Edge) refuse(c Client, code tunnel.RefuseCode) {
	if err := c.Refuse(code); err != nil {
		e.log.Debug("refusal not sent", "code", code.String(), "err", err)
	}
}

// refuseCode says to a forwarder what went wrong on the way to the agent.
func refuseCode(err error) tunnel.RefuseCode {
	var refused *tunnel.RefusedError
	switch account.CodeOf(err) {
	case account.CodeNoTarget, account.CodeNoInternal, account.CodeLoop, account.CodePolicyBroken:
		return tunnel.RefusedOffline
	case account.CodeNoChild:
		return tunnel.RefusedUpstream
	}
	switch {
	case errors.As(err, &refused):
		switch refused.Code {
		case tunnel.RefusedUnknownEndpoint, tunnel.RefusedDraining: // the agent gave the endpoint back, or is about to
			return tunnel.RefusedOffline
		}
		return refused.Code
	case account.CodeOf(err) == account.CodeEndpointOffline:
		return tunnel.RefusedOffline
	case errors.Is(err, errSilent), errors.Is(err, tunnel.ErrUnresponsive):
		return tunnel.RefusedUpstream
	}
	return tunnel.RefusedInternal
}
