// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// serveTCP relays between the client and a target of the endpoint. The client's bytes follow the
// header of a stream at once. The client is accepted when a target has answered, and refused with
// the final error of the route when none has.
func (e *Edge) serveTCP(ctx context.Context, c Client, ep *account.Endpoint, info ClientInfo) {
	stack.Grow8KiB()
	record := e.startConnRecord(ep, &info)
	route, err := e.resolveTCP(ctx, ep, &info)
	switch {
	case account.CodeOf(err) == account.CodeDenied: // not a failure that the forwarder is to report
		e.log.Debug("connection denied", "endpoint", ep.ID, "client", info.ClientAddr, "err", err)
		e.finishConnRecord(record, "", err)
		_ = c.Accept()
		_ = c.Reset(tunnel.Aborted)
		return
	case err != nil:
		e.finishConnRecord(record, "", err)
		e.refuse(c, trafficerror.Of(err).Refusal)
		return
	}
	pending := e.newPendingConn(ctx, c, &route, tunnel.OpenHeader{Scheme: "tcp", ClientAddr: info.ClientAddr,
		TraceID: info.TraceID,
		Pod:     withoutAnnotations(info.StatedPod)})
	defer pending.release()
	moved, err := relay.Join(ctx, c, &countingConn{pending, record}, relay.Options{})
	e.finishConnRecord(record, pending.target.leaf.BackendID, pending.err)
	if err != nil {
		e.log.Debug("connection broke", "endpoint", ep.ID, "client", info.ClientAddr, "err", err, "to_agent",
			moved.AToB,
			"from_agent", moved.BToA)
	}
}

// withoutAnnotations returns the pod as agents may know it: annotations are for policies only.
func withoutAnnotations(pod *tunnel.PodIdentity) *tunnel.PodIdentity {
	if pod == nil {
		return nil
	}
	return &tunnel.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, ServiceAccount: pod.ServiceAccount,
		Truncated: pod.Truncated}
}

// connect opens a connection to the target.
func (e *Edge) connect(ctx context.Context, t *target, h tunnel.OpenHeader) (targetConn, error) {
	static := t.leaf.Static
	switch {
	case t.agent != nil:
		s, err := e.openAgentStream(ctx, t.agent, h)
		if err != nil {
			return nil, err // a nil *agentStream would be a non-nil targetConn
		}
		return s, nil
	case static == nil:
		return nil, &staticDialError{errors.New("an HTTP answer is nothing for a tcp endpoint")}
	}
	c, err := e.dialStatic(ctx, static.Address, static.TLS)
	if err != nil {
		return nil, err
	}
	return newStaticConn(c), nil
}

// openAgentStream opens a stream to the agent; h describes the client. The stream's header is sent
// together with the bytes that follow at once.
func (e *Edge) openAgentStream(ctx context.Context, agent Agent, h tunnel.OpenHeader) (*agentStream, error) {
	ep := agent.Endpoint()
	h.EndpointID, h.Host, h.Port, h.Deadline = ep.ID, ep.Host, ep.Port, e.opt.OpenTimeout
	st, err := agent.Open(ctx, h)
	if err != nil {
		e.opt.Meter.CountStream("offline")
		return nil, err
	}
	return e.newAgentStream(st), nil
}

// refuse refuses the client.
func (e *Edge) refuse(c Client, code tunnel.RefuseCode) {
	if err := c.Refuse(code); err != nil {
		e.log.Debug("refusal not sent", "code", code.String(), "err", err)
	}
}
