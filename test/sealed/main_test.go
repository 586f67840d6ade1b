// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sealed_test runs sealed endpoints through a service: the agent's library, the relay of
// forwarders, and the edge between them.
package sealed_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m) }

// rig is a service with a forwarder's relay.
type rig struct {
	*servicetest.Server
	t     *testing.T
	relay *forward.Relay
	owner *sealtest.Owner

	requests chan agent.Request // what agents report
	down     chan agent.UpstreamDown
	stop     context.CancelFunc // stop ends the agent that was started last.
	recorder *inspect.Recorder  // recorder of agents' upstreams; nil = none
	cluster  string             // cluster is the UID of the cluster whose objects the endpoints are for.

	opened atomic.Int32 // opened counts the calls that did not find a spare.

	dial    agent.DialFunc // dial makes the connections of agents; nil = a net.Dialer does.
	inPairs bool           // inPairs makes sealed calls run over parked connections.
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := servicetest.Start(t)
	f := s.StartForwarder()
	session, err := f.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	r := &rig{Server: s, t: t, inPairs: runs(t, inPairs), owner: sealtest.NewOwner(t, session.Welcome().AccountID),
		requests: make(chan agent.Request, 100), down: make(chan agent.UpstreamDown, 10)}
	r.relay = &forward.Relay{Sessions: sessions{f.Client, &r.opened}, Timing: forward.DefaultTiming(),
		Context: t.Context()}
	if runs(t, withSpares) {
		r.keepSpares()
	}
	return r
}

type sessions struct {
	*tunnel.Client
	opened *atomic.Int32
}

func (s sessions) Session(ctx context.Context) (*tunnel.Session, error) {
	s.opened.Add(1)
	return s.Wait(ctx)
}

func (s sessions) Live() *tunnel.Session { return s.Client.Session() }

// endpoint returns tcp://db.demo:5432 with this upstream.
func (r *rig) endpoint(upstream string, seal *sealed.Identity) agent.Endpoint {
	r.t.Helper()
	to, err := agent.ParseUpstream("tcp", upstream)
	must.Succeed(r.t, err)
	return agent.Endpoint{Key: "db", URL: databaseURL, Binding: account.BindingKubernetes, Upstream: to, Seal: seal,
		PoolingEnabled: true, Dial: new(net.Dialer).DialContext}
}

var databaseURL = account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}

// serve runs an agent and returns the id of its endpoint.
func (r *rig) serve(instance string, e agent.Endpoint) string {
	r.t.Helper()
	agents := &dials{to: r.dial}
	id := servicetest.Receive(r.t, r.startOver(agents.dial, instance, e), "bind").EndpointID
	if r.inPairs && e.Seal != nil {
		r.awaitParked(agents, tunnel.OpenHeader{EndpointID: id, Sealed: true, Scheme: e.URL.Scheme, Host: e.URL.Host,
			Port: e.URL.Port})
	}
	return id
}

// start runs an agent and returns the events of its binds.
func (r *rig) start(instance string, e agent.Endpoint) <-chan agent.Online {
	r.t.Helper()
	return r.startOver(nil, instance, e)
}

func (r *rig) startOver(dial agent.DialFunc, instance string, e agent.Endpoint) <-chan agent.Online {
	r.t.Helper()
	online := make(chan agent.Online, 100)
	a := agent.New(agent.Options{
		ServerOptions: agent.ServerOptions{Server: "https://" + r.Addrs.Service.String(),
			Address: r.Addrs.Service.String(), TLS: r.ClientTLS(), Token: func() string { return r.Authtoken },
			MaxBackoff: 100 * time.Millisecond, DialServer: dial},
		UpstreamOptions: agent.UpstreamOptions{Inspect: r.recorder},
		ShutdownOptions: agent.ShutdownOptions{UnbindTimeout: 20 * time.Second},
		InstanceID:      instance, ClusterUID: r.cluster, KeepRunning: true, RebindDelay: 50 * time.Millisecond,
		Observer: observer{r, online}, Endpoints: []agent.Endpoint{e}})
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	r.stop = cancel
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the agent ended: %v", err)
		}
	})
	return online
}

type observer struct {
	*rig
	online chan agent.Online
}

func (o observer) Observe(e agent.Event) {
	switch e := e.(type) {
	case agent.Online:
		o.online <- e
	case agent.Request:
		select {
		case o.requests <- e:
		default: // a test that makes many does not count them
		}
	case agent.UpstreamDown:
		o.down <- e
	}
}

// call is a pod's connection through the forwarder.
type call struct {
	*net.TCPConn
	failure chan *forward.Failure
}

// call connects to the endpoint at databaseURL; trust nil = not sealed.
func (r *rig) call(endpointID string, trust *sealed.Trust) call {
	return r.callAt(databaseURL, endpointID, trust)
}

func (r *rig) callAt(u account.EndpointURL, endpointID string, trust *sealed.Trust) call {
	return r.callLed(u, u, endpointID, trust)
}

// callLed connects to the endpoint at u, but the service leads the call to another one.
func (r *rig) callLed(u, to account.EndpointURL, endpointID string, trust *sealed.Trust) call {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(r.t, err)
	defer func() { _ = ln.Close() }()
	pod, err := net.Dial("tcp", ln.Addr().String())
	must.Succeed(r.t, err)
	accepted, err := ln.Accept()
	must.Succeed(r.t, err)
	c := call{pod.(*net.TCPConn), make(chan *forward.Failure, 1)}
	_ = c.SetDeadline(time.Now().Add(servicetest.MaxWait))
	conn := &forward.Conn{Stats: noStats{}, Header: tunnel.OpenHeader{EndpointID: endpointID, Scheme: to.Scheme,
		Host: to.Host, Port: to.Port, ClientAddr: servicetest.PodAddr}}
	r.relay.Init(conn, accepted.(*net.TCPConn), u)
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer conn.Release()
		serve := func() *forward.Failure { return r.relay.Serve(conn) }
		if trust != nil {
			serve = func() *forward.Failure {
				to, failure := r.relay.OpenSealed(conn, trust)
				switch {
				case failure == nil:
					r.relay.JoinSealed(conn, to)
				case failure.Code == account.CodeNotSealed && trust.Mode() == sealed.Prefer: // nothing was sealed yet
					return r.relay.Serve(conn)
				}
				return failure
			}
		}
		failure := serve()
		if failure != nil {
			r.relay.Fail(conn, failure)
		}
		c.failure <- failure
	}()
	r.t.Cleanup(func() { _ = pod.Close(); <-served })
	return c
}

type noStats struct{}

func (noStats) Opened(time.Time)         {}
func (noStats) Moved(int64, int64, bool) {}
