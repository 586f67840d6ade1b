// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// relayedMetric counts the streams that a server has opened through another one.
const relayedMetric = "fairlead_server_relayed_streams_total"

// relayed returns how many streams the servers have opened through each other.
func (r *rig) relayed() float64 {
	r.t.Helper()
	sum := 0.0
	for _, s := range r.replicas {
		sum += s.metric(relayedMetric, `direction="out"`)
	}
	return sum
}

// waitLegs waits until a client has connections with all of the servers.
func (r *rig) waitLegs(a *testAgent) {
	r.t.Helper()
	for i := range r.replicas {
		wait.Until(r.t, "connection of the agent with "+r.replicas[i].name, func() bool {
			return r.balancer.openFrom(a.client, i) > 0
		})
	}
}

// serveAll sends requests through each server's public listeners and through a forwarder that is
// pinned to it, and returns the failures.
func (c *chain) serveAll(t *testing.T, requests int) {
	t.Helper()
	for i, s := range c.r.replicas {
		forwarder := c.r.startForwarder(i, map[string]string{clusterURL: c.ids[clusterURL]})[clusterURL]
		all := append(c.publicAt("http", s.http), c.publicAt("https", s.https)...)
		all = append(all, &target{name: "forwarder", addr: forwarder, host: "web.demo"})
		for _, g := range all {
			for range requests {
				if err := g.request(t.Context()); err != nil {
					t.Errorf("%s through %s: %v", g.name, s.name, err)
				}
			}
			g.closeIdle()
		}
	}
}

// TestReplicas_ServeWithoutRelay binds endpoints by an agent that reaches all servers: each server
// serves them itself.
func TestReplicas_ServeWithoutRelay(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	before := r.relayed()
	c.serveAll(t, 5)
	if relayed := r.relayed() - before; relayed != 0 {
		t.Errorf("%v streams were relayed", relayed)
	}
}

// TestReplicas_RelayToTheHolder binds endpoints by an agent that reaches one server only: the
// others relay to it.
func TestReplicas_RelayToTheHolder(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	c := r.startChain(1, -1)
	c.serveAll(t, 5)
	if relayed := r.relayed(); relayed == 0 {
		t.Error("no stream was relayed")
	}
	for _, i := range []int{0, 2} {
		if n := r.balancer.openFrom(c.agent.client, i); n > 0 {
			t.Errorf("the agent has %d connections with %s", n, r.replicas[i].name)
		}
	}
	r.balancer.unpin(c.agent.client)
	c.agent.stop()
	for _, s := range r.replicas {
		g := c.publicAt("http", s.http)[1]
		wait.Until(t, "endpoint of a stopped agent to be gone", func() bool { return g.request(t.Context()) != nil })
	}
}

// TestReplicas_StopWaitsForRelayedRequests stops the only server that an agent reaches while it relays
// a request for another server: the request is answered.
func TestReplicas_StopWaitsForRelayedRequests(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2)
	r.startAgent(0, endpoint{url: httpURL, binding: "public", upstream: startSlowUpstream(t)})
	began := make(chan struct{})
	answered := make(chan error, 1)
	go func() {
		close(began)
		answered <- getSlow(t.Context(), &target{addr: r.replicas[1].http, host: "web." + domain})
	}()
	<-began
	wait.Until(t, "request to be relayed", func() bool { return r.relayed() > 0 })
	if code := r.replicas[0].terminate(); code != 0 {
		t.Errorf("the server has ended with code %d", code)
	}
	if err := wait.Receive(t, "answer", answered); err != nil {
		t.Error(err)
	}
}

// TestReplicas_AgentFindsAnotherServer stops the only server that an agent reached: the agent finds the
// other.
func TestReplicas_AgentFindsAnotherServer(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2)
	c := r.startChain(0, -1)
	r.balancer.unpin(c.agent.client)
	began := time.Now()
	r.replicas[0].kill()
	g := c.publicAt("http", r.replicas[1].http)[1]
	wait.Until(t, "the other server to serve", func() bool { return g.request(t.Context()) == nil })
	t.Logf("served by the other server after %s", time.Since(began))
	if status := r.endpointStatus(1, c.ids[httpURL]); status != "online" {
		t.Errorf("the endpoint is %s", status)
	}
}

// endpointStatus asks a server for an endpoint.
func (r *rig) endpointStatus(replica int, id string) string {
	r.t.Helper()
	e, err := r.replicas[replica].api.Endpoint(r.t.Context(), id)
	must.Succeed(r.t, err)
	return e.Status
}
