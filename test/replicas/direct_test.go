// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestReplicas_PinnedClientsUseAddresses has an agent and a forwarder that the balancer always leads
// to one server, as with client-IP affinity, and servers with addresses for clients: both have
// connections with all three, nothing is relayed, and traffic goes on when that server is killed.
func TestReplicas_PinnedClientsUseAddresses(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, "--replica-address", ownAddress)
	c := r.startChain(0, 0)
	for _, s := range r.replicas {
		wait.Until(t, "agent and forwarder to be connected with "+s.name, func() bool {
			return s.metric("fairlead_server_sessions", `role="agent"`) == 1 &&
				s.metric("fairlead_server_sessions", `role="forwarder"`) == 1 &&
				s.metric("fairlead_server_endpoints") == r.replicas[0].metric("fairlead_server_endpoints")
		})
	}
	for i := 1; i < 3; i++ {
		if n := r.balancer.open(i); n > 0 {
			t.Errorf("the balancer has %d connections with %s", n, r.replicas[i].name)
		}
	}
	before := r.relayed()
	l := startLoad(t, requestRate(t), append(c.throughForwarder(), c.atReplicas(0, 1, 2)...)...)
	l.wait(100)
	l.stop()
	l.requireNoFailure("three servers")
	if relayed := r.relayed() - before; relayed != 0 {
		t.Errorf("%v streams were relayed", relayed)
	}
	l = startLoad(t, requestRate(t), c.throughForwarder()...)
	l.wait(50)
	killed := time.Now()
	r.replicas[0].kill()
	l.wait(200)
	l.stop()
	for _, o := range l.failed() {
		if o.began.After(killed.Add(limit(100*time.Millisecond, time.Second))) {
			t.Errorf("a request to %s failed that began %s after the kill: %v", o.target.name, o.began.Sub(killed),
				o.err)
		}
	}
	t.Logf("after the kill requests fail or wait for %s; %d failed", l.window(killed, slowRequest()),
		len(l.failed()))
}
