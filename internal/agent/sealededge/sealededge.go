// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sealededge serves the sealed connections of an agent's endpoint with the edge, as the
// service serves plain ones: strict HTTP, forwarding headers, error pages, the owner's traffic policy.
//
// What comes in: connections whose seal the agent has accepted, and their upstream. What goes out: the
// requests to that upstream, over kept connections, and a line about each for the agent's user. The
// commands and exporters link it; internal/agent, which other programs embed, does not.
package sealededge

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// Edge serves the sealed endpoints of an agent.
type Edge struct{ edge *edge.Edge }

// New returns an Edge. Close ends it.
func New(log *slog.Logger) *Edge {
	return &Edge{edge.New(edge.Options{Agents: agents{}, Meter: noMeter{}, Logger: log})}
}

// Close ends the edge and aborts the connections that it serves.
func (x *Edge) Close() { x.edge.Close() }

// Server is the agent.SealedServer of one version of an endpoint.
type Server struct {
	edge     *edge.Edge
	endpoint *account.Endpoint
	ctx      context.Context // ctx ends with Drain.
	drain    context.CancelFunc
}

var _ agent.SealedServer = (*Server)(nil)

// Server returns the server of a sealed endpoint.
func (x *Edge) Server(e *agent.Endpoint) *Server {
	ep := e.AccountEndpoint()
	ep.ID = ep.HostPort  // the service's id proves nothing
	ep.AccountID = e.Key // members of a pool in one agent have a policy each
	s := &Server{edge: x.edge, endpoint: &ep}
	s.ctx, s.drain = context.WithCancel(context.Background())
	return s
}

// Admits implements agent.SealedServer.
func (s *Server) Admits(ctx context.Context, in *sealed.Incoming) bool {
	info := infoOf(in)
	return s.edge.Admit(ctx, s.endpoint, &info) == nil
}

// ServeHTTP implements agent.SealedServer.
func (s *Server) ServeHTTP(
	ctx context.Context, in *sealed.Incoming, to agent.SealedUpstream, draining <-chan struct{},
) {
	info := infoOf(in)
	info.Draining, info.DrainsIdle = draining, true
	ctx = context.WithValue(ctx, upstreamKey{}, upstream{to, s})
	s.edge.Serve(ctx, &client{in: in}, s.endpoint, info)
}

// Draining implements agent.SealedServer.
func (s *Server) Draining() context.Context { return s.ctx }

// Drain implements agent.SealedServer.
func (s *Server) Drain() { s.drain() }

// infoOf describes a caller. Its cluster, and with it its pod, is known to policies only if the caller
// has proven itself.
func infoOf(in *sealed.Incoming) edge.ClientInfo {
	h := in.Header
	from, _ := netip.ParseAddrPort(h.ClientAddr) // the zero AddrPort for an invalid address
	return edge.ClientInfo{OperatorID: in.Caller, Cluster: in.Caller, ClientAddr: h.ClientAddr,
		ClientIP: from.Addr().Unmap(), StatedPod: h.Pod, TraceID: h.TraceID, AppendForwarded: h.TrustsForwarding}
}

// client is a sealed connection as the edge serves it. It has none of the methods by which the edge would
// write to a stream of the tunnel: what they write is not sealed.
type client struct {
	relay.HalfCloser // the *sealed.Conn; nil before Accept

	in *sealed.Incoming
}

// Accept implements edge.Client.
func (c *client) Accept() error {
	conn, err := c.in.Open()
	if err == nil {
		c.HalfCloser = conn
	}
	return err
}

// Refuse implements edge.Client.
func (c *client) Refuse(code tunnel.RefuseCode) error {
	return c.in.Refuse(code.String(), code.String())
}

// Reset implements edge.Client.
func (c *client) Reset(tunnel.RefuseCode) error {
	relay.Abort(c.HalfCloser)
	return nil
}

// Close does nothing for a connection that was not opened.
func (c *client) Close() error {
	if c.HalfCloser == nil {
		return nil
	}
	return c.HalfCloser.Close()
}

// upstreamKey is the key of a connection's upstream in its context.
type upstreamKey struct{}

// upstream is the edge.LocalAgent of an upstream.
type upstream struct {
	agent.SealedUpstream
	server *Server
}

func (u upstream) Endpoint() *account.Endpoint { return u.server.endpoint }
func (u upstream) Context() context.Context    { return u.server.ctx }
func (u upstream) Release()                    {}

// Open implements edge.Agent; an upstream that is dialed has no streams.
func (u upstream) Open(context.Context, tunnel.OpenHeader) (*tunnel.Stream, error) {
	return nil, errors.ErrUnsupported
}

// agents chooses the upstream of a connection, from its context.
type agents struct{}

// ChooseAgent implements edge.Agents.
func (agents) ChooseAgent(
	ctx context.Context, ep *account.Endpoint, _ time.Duration, _ bool, tried []edge.Agent,
) (edge.Agent, error) {
	to, ok := ctx.Value(upstreamKey{}).(upstream)
	if !ok || slices.Contains(tried, edge.Agent(to)) {
		return nil, account.Errorf(account.CodeEndpointOffline, "%s has no other upstream", ep.URL)
	}
	return to, nil
}

// ChooseTunnel implements edge.Agents.
func (agents) ChooseTunnel(context.Context, string, map[string]string, []edge.Agent) (edge.Agent, error) {
	return nil, account.Errorf(account.CodeNoTarget, "a sealed endpoint has no tunnels")
}

// noMeter is an edge.Meter that counts nothing: the agent's user sees the lines.
type noMeter struct{}

func (noMeter) Start(*edge.RequestRecord)  {}
func (noMeter) Finish(*edge.RequestRecord) {}
func (noMeter) CountStream(string)         {}
func (noMeter) CountBytes(int, int)        {}
