// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/fixedsource"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// nextClient returns a loopback address that a client connects from, so that the balancer can pin
// it.
func (r *rig) nextClient() netip.Addr {
	r.clients++
	return netip.AddrFrom4([4]byte{127, 2, byte(r.clients >> 8), byte(r.clients)})
}

// dialFrom returns a DialContext that connects from an address.
func dialerFrom(client netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}}).DialContext
}

// testAgent is an agent in the test's process.
type testAgent struct {
	client netip.Addr
	events chan agent.Event // while there is room
	stop   func()           // ends it and waits
	ended  chan error       // gets what agent.Run returned
	log    logbuffer.Buffer
}

// endpoint describes an endpoint that an agent binds; policy may be "", seal nil.
type endpoint struct {
	url, binding, upstream, policy string
	seal                           *sealed.Identity
}

// startAgent binds endpoints through the balancer and returns their ids by URL. replica is where
// the agent is pinned to; -1 is nowhere.
func (r *rig) startAgent(replica int, endpoints ...endpoint) (*testAgent, map[string]string) {
	r.t.Helper()
	a, ids := r.startAgentWith(replica, r.authtoken, endpoints...)
	r.t.Cleanup(func() {
		a.stop()
		if err := <-a.ended; err != nil {
			r.t.Errorf("an agent has ended: %v", err)
		}
	})
	return a, ids
}

// startAgentWith is startAgent with an authtoken, for an agent that may end.
func (r *rig) startAgentWith(replica int, token string, endpoints ...endpoint) (*testAgent, map[string]string) {
	r.t.Helper()
	a := r.runAgent(replica, token, endpoints...)
	return a, a.waitOnline(r.t, len(endpoints))
}

// runAgent starts an agent and does not wait for it.
func (r *rig) runAgent(replica int, token string, endpoints ...endpoint) *testAgent {
	r.t.Helper()
	a := &testAgent{client: r.nextClient(), events: make(chan agent.Event, 10_000), ended: make(chan error, 1)}
	if replica >= 0 {
		r.balancer.pin(a.client, replica)
	}
	config, err := trust.Options{CASHA256: r.fingerprint}.ClientConfig()
	if err != nil {
		r.t.Fatal(err)
	}
	address := r.balancer.addrs[frontService]
	o := agent.Options{
		ServerOptions: agent.ServerOptions{Server: "https://" + address, Address: address, TLS: config,
			Token: func() string { return token }, DialServer: dialerFrom(a.client), MaxBackoff: time.Second},
		Logger: slog.New(slog.NewTextHandler(&a.log, &slog.HandlerOptions{Level: r.clientLog})),
		Observer: observerFunc(func(e agent.Event) {
			select {
			case a.events <- e:
			default:
			}
		})}
	for _, e := range endpoints {
		url, err := account.ParseBindingURL(e.binding, e.url)
		if err != nil {
			r.t.Fatal(err)
		}
		upstream, err := agent.ParseUpstream(url.Scheme, e.upstream)
		if err != nil {
			r.t.Fatal(err)
		}
		o.Endpoints = append(o.Endpoints,
			agent.Endpoint{URL: url, Binding: e.binding, Upstream: upstream, TrafficPolicy: e.policy, Seal: e.seal})
	}
	a.stop = r.background("an agent", &a.log, func(ctx context.Context) { a.ended <- agent.Run(ctx, o) })
	return a
}

// background runs f until stop, or the end of the test. log may be nil.
func (r *rig) background(what string, log *logbuffer.Buffer, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); f(ctx) }()
	stop = func() { cancel(); <-ended }
	r.t.Cleanup(func() {
		stop()
		if r.t.Failed() && log != nil {
			r.t.Logf("%s:\n%s", what, lastLines(log.String(), 60))
		}
	})
	return stop
}

// waitOnline waits until so many endpoints are online, and returns their ids by URL.
func (a *testAgent) waitOnline(t testing.TB, endpoints int) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for len(ids) < endpoints {
		if e, ok := wait.Receive(t, "endpoint to be online", a.events).(agent.Online); ok {
			ids[e.URL] = e.EndpointID
		}
	}
	return ids
}

// operator returns the id of the operator that all forwarders belong to.
func (r *rig) operator() string {
	r.t.Helper()
	if r.operatorID == "" {
		o, _, err := r.replicas[0].api.UpsertOperator(r.t.Context(),
			account.Operator{Description: "test", EnabledFeatures: []string{"bindings"}})
		if err != nil {
			r.t.Fatal(err)
		}
		r.operatorID = o.ID
	}
	return r.operatorID
}

// startForwarder listens for endpoints with the kubernetes binding, by URL their id, and returns
// its addresses by URL. replica is where the forwarder is pinned to; -1 is nowhere.
func (r *rig) startForwarder(replica int, ids map[string]string) map[string]string {
	r.t.Helper()
	objects, addrs := fixedsource.Source{OperatorID: r.operator()}, map[string]string{}
	for url, id := range ids {
		addrs[url] = freeAddr(r.t, "127.0.0.1")
		objects.BoundEndpoints = append(objects.BoundEndpoints, boundEndpoint(r.t, url, id, addrs[url]))
	}
	r.runForwarder(replica, objects, nil)
	for _, addr := range addrs {
		wait.Until(r.t, "forwarder to serve", func() bool {
			res, err := http.Get("http://" + addr + "/hello")
			if err != nil {
				return false
			}
			_ = res.Body.Close()
			return res.StatusCode == http.StatusOK
		})
	}
	return addrs
}

// runForwarder starts a forwarder for the objects and does not wait for it. rules may be nil.
func (r *rig) runForwarder(replica int, objects fixedsource.Source, rules forwarder.TrustRules) (stop func()) {
	r.t.Helper()
	client := r.nextClient()
	if replica >= 0 {
		r.balancer.pin(client, replica)
	}
	config, err := trust.Options{CASHA256: r.fingerprint}.ClientConfig()
	must.Succeed(r.t, err)
	var log logbuffer.Buffer
	o := forwarder.Options{EdgeAddress: r.balancer.addrs[frontService], TLS: config, Dial: dialerFrom(client),
		AuthtokenFile: filepath.Join(r.dir, "authtoken"), InstanceID: fmt.Sprintf("forwarder-%d", r.clients),
		Source: objects, RuleOptions: forwarder.RuleOptions{Trust: rules},
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: r.clientLog}))}
	return r.background("a forwarder", &log, func(ctx context.Context) {
		if err := forwarder.Run(ctx, o); err != nil {
			r.t.Errorf("a forwarder has ended: %v", err)
		}
	})
}

func boundEndpoint(t testing.TB, raw, id, addr string) *v1alpha1.BoundEndpoint {
	t.Helper()
	url, err := account.ParseEndpointURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	target, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	service, namespace, _ := strings.Cut(url.Host, ".")
	return &v1alpha1.BoundEndpoint{
		ObjectMeta: metav1.ObjectMeta{Name: url.Host},
		Spec: v1alpha1.BoundEndpointSpec{
			Service: service, Namespace: namespace, ProjectionID: "ep-test", State: v1alpha1.StateBound,
			Ports:     []v1alpha1.BoundPort{{Port: int32(url.Port), Scheme: url.Scheme, TargetPort: int32(target)}},
			Endpoints: []v1alpha1.EndpointRef{{ID: id, URL: url.String()}},
		},
	}
}

// startUpstream starts an HTTP server for agents and returns its URL.
func startUpstream(t testing.TB) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(serveUpstream))
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	return srv.URL
}

// observerFunc is an agent.Observer that calls a function.
type observerFunc func(agent.Event)

func (f observerFunc) Observe(e agent.Event) { f(e) }
