// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// edgeServer is what connections and requests to endpoints pass: the edge, the public listeners
// before it, and the backends and agents behind it.
type edgeServer struct {
	edge      *edge.Edge
	public    *publicEdge
	backends  *backends
	targets   *targets
	isolation *isolation // nil for a service that is alone
	geo       *geo.Databases
	refusals  sealRefusals
}

func (e *edgeServer) wire(
	set *settings, d *data, sessions *tunnelserver.Server, r *replicas, p *people, meter *requestMeter,
) {
	e.isolation, e.geo = r.isolation, p.geo
	e.refusals = sealRefusals{store: d.store.AuditLog, log: set.Logger, recorded: map[sealRefusal]time.Time{}}
	e.targets = &targets{store: d.store, sessions: sessions, replicas: r}
	e.backends = newBackends(set, e.targets)
	o := edge.Options{
		Agents: e.targets, Endpoints: e.targets, Backends: e.backends, StaticDialer: e.backends.guard,
		Logins: p.handler, Meter: meter, Logger: set.Logger, OpenTimeout: set.AgentOpenTimeout,
	}
	if !r.alone() {
		o.Checker = r.isolation
	}
	e.edge = edge.New(o)
	e.public.wire(e.edge, e.targets, d.ticketKeys, p.geo)
}

// run serves the public listeners, and keeps which child of each failover serves, until serving is
// done.
func (e *edgeServer) run(serving context.Context, tasks *group) {
	tasks.run(serving, e.backends.run)
	e.public.run(serving, tasks)
}

// EndpointBound implements tunnelserver.Edge.
func (e *edgeServer) EndpointBound(ep *account.Endpoint) (listenerURL, unreachable string) {
	if ep.Bindings[0] != account.BindingPublic {
		return "", ""
	}
	return e.public.listenerURL(ep, e.targets.sessions)
}

// ServeStream implements tunnelserver.Edge.
func (e *edgeServer) ServeStream(ctx context.Context, in tunnelserver.Incoming) {
	h := in.Stream.Header()
	if e.isolation != nil && e.isolation.Check(in.Endpoint) != nil {
		_ = in.Stream.Refuse(tunnel.RefusedDraining) // the forwarder tries another replica
		return
	}
	client, _ := netip.ParseAddrPort(in.ClientAddr) // the zero AddrPort for an invalid address
	e.edge.Serve(ctx, in.Stream, in.Endpoint, edge.ClientInfo{
		OperatorID: in.OperatorID, Cluster: in.Cluster, CredentialID: in.CredentialID, ClientAddr: in.ClientAddr,
		ClientIP: client.Addr().Unmap(), StatedPod: in.Pod, TraceID: h.TraceID, MaxWait: h.Deadline,
		Draining: in.Draining, Forwarder: in.Forwarder, Locator: (*locator)(e.geo),
		AppendForwarded: in.TrustsForwarding, Sealed: h.Sealed, Tried: h.Tried,
		Spare: edge.SpareKey{Session: in.Stream.Session(), ID: h.SpareID},
	})
	if h.Sealed {
		e.refusals.report(ctx, in)
	}
}

// expire makes what the edge serves of the account next ask the store.
func (e *edgeServer) expire(accountID string) {
	e.edge.ExpireAccount(accountID)
	e.backends.expire(accountID)
	if e.public.server != nil {
		e.public.server.ExpireAccount(accountID)
	}
}

func (e *edgeServer) close() {
	if e.backends != nil {
		e.backends.resolver.Close()
	}
	e.public.close()
}

// targets finds what serves a connection: agents with this server and with other replicas, and the
// endpoints that it may be forwarded to.
type targets struct {
	store    *store.Store
	sessions *tunnelserver.Server
	replicas *replicas
}

// ChooseAgent returns an agent that serves the endpoint, none of those in tried: one with a session
// here, or else with another replica.
func (t *targets) ChooseAgent(
	ctx context.Context, ep *account.Endpoint, maxWait time.Duration, seals bool, tried []edge.Agent,
) (edge.Agent, error) {
	to := tunnelserver.URLOf(ep)
	to.Seals = seals
	return t.choose(ctx, to, maxWait, tried)
}

// choose chooses one of the members here without waiting, then one with another replica, then one
// here for which it may wait. It waits for an agent with another replica that has just become
// unresponsive, unless an agent was tried.
func (t *targets) choose(
	ctx context.Context, to tunnelserver.Target, maxWait time.Duration, tried []edge.Agent,
) (edge.Agent, error) {
	members := agentsOf[*tunnelserver.Member](tried)
	if h, err := t.sessions.ChooseNow(to, members...); err == nil {
		return h, nil
	}
	if maxWait > 0 { // a timer is set only where it may be needed
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxWait)
		defer cancel()
	}
	var remote error
	if !t.replicas.alone() {
		m, err := t.replicas.peers.Choose(ctx, to.Query, agentsOf[*peers.Member](tried))
		if err == nil {
			return m, nil
		}
		remote = err
	}
	h, err := t.sessions.Choose(ctx, to, members...)
	switch {
	case err == nil:
		return h, nil
	case !errors.Is(remote, tunnel.ErrUnresponsive) || account.CodeOf(err) != account.CodeEndpointOffline:
		return nil, err // not h: a nil *Member is no nil Agent
	case len(tried) > 0:
		return nil, remote
	}
	m, err := t.replicas.peers.ChooseWaiting(ctx, to.Query)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// agentsOf returns the agents that are of one type.
func agentsOf[T edge.Agent](agents []edge.Agent) (all []T) {
	for _, a := range agents {
		if one, ok := a.(T); ok {
			all = append(all, one)
		}
	}
	return all
}

// ChooseTunnel returns an agent of the tunnel group, none of those in tried.
func (t *targets) ChooseTunnel(
	ctx context.Context, accountID string, labels map[string]string, tried []edge.Agent,
) (edge.Agent, error) {
	return t.choose(ctx, tunnelserver.TunnelGroup(accountID, labels), 0, tried)
}

// Endpoint implements edge.Endpoints.
func (t *targets) Endpoint(ctx context.Context, accountID, id string) (*account.Endpoint, error) {
	return t.store.Endpoint(ctx, accountID, id)
}

// InternalEndpoint returns the internal endpoint with the URL. It asks the store only if none is
// online.
func (t *targets) InternalEndpoint(ctx context.Context, accountID, url string) (*account.Endpoint, error) {
	u, err := account.ParseBindingURL(account.BindingInternal, url)
	if err != nil {
		return nil, account.Errorf(account.CodeNotFound, "%s is the URL of no internal endpoint", url)
	}
	if ep := t.sessions.Online(peers.Pool{AccountID: accountID, Binding: account.BindingInternal, Scheme: u.Scheme,
		Host: u.Host, Port: u.Port}); ep != nil {
		return ep, nil
	}
	page, err := t.store.ListEndpoints(ctx, accountID,
		account.EndpointFilter{Bindings: []string{account.BindingInternal}, URL: u.String()}, account.Page{Limit: 1})
	switch {
	case err != nil:
		return nil, err
	case len(page.Endpoints) == 0:
		return nil, account.Errorf(account.CodeNotFound, "no internal endpoint has the URL %s", url)
	}
	return t.store.Endpoint(ctx, accountID, page.Endpoints[0].ID) // a list has no policies
}

// OnlinePublic implements public.Endpoints.
func (t *targets) OnlinePublic(host string, port int) (*account.Endpoint, time.Time) {
	return t.sessions.OnlinePublic(host, port)
}

// GrantedHosts implements public.Endpoints.
func (t *targets) GrantedHosts(ctx context.Context, accountID string, hosts []string) (map[string]bool, error) {
	return t.store.GrantedHosts(ctx, accountID, hosts)
}

// FindEndpoint returns the endpoint of the public binding at the host and the first of the ports
// that has one. While the store is away, it is one that an agent with another replica has bound at
// the very first port, unless there is one here, which OnlinePublic returns.
func (t *targets) FindEndpoint(ctx context.Context, host string, ports ...int) (*account.Endpoint, error) {
	ep, away := t.store.PublicEndpoint(ctx, host, ports...)
	port := ports[0]
	if t.replicas.alone() || account.CodeOf(away) != account.CodeUnavailable {
		return ep, away
	}
	if held, _ := t.sessions.OnlinePublic(host, port); held != nil {
		return nil, away
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askPeersTimeout)
	defer cancel()
	m, err := t.replicas.peers.Choose(ctx, peers.Query{Pool: peers.PublicAddress(host, port)}, nil)
	if err != nil {
		return nil, away
	}
	defer m.Release()
	return m.Endpoint(), nil
}

// askPeersTimeout bounds how long the other replicas are asked for what the store does not answer.
const askPeersTimeout = 2 * time.Second

// ListPool returns the endpoints that have the endpoint's URL.
func (t *targets) ListPool(ctx context.Context, ep *account.Endpoint) ([]account.Endpoint, error) {
	page, err := t.store.ListEndpoints(ctx, ep.AccountID, account.EndpointFilter{Bindings: ep.Bindings, URL: ep.URL},
		account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return nil, err
	}
	return page.Endpoints, nil
}
