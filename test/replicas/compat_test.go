// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// poolURL is the cloud endpoint whose backend is the agent's labelled tunnel.
const poolURL = "http://pool." + domain

// compatChain is an agent and an operator, processes of their own.
type compatChain struct {
	r         *rig
	m         *machine
	agent     *agentProcess
	operator  *release
	forwarder string // its address
}

// startProcesses starts an agent, with endpoints of three kinds and a labelled tunnel, and an
// operator, of one version each.
func (r *rig) startProcesses(agent, operator programs) *compatChain {
	r.t.Helper()
	c := &compatChain{r: r, m: r.newMachine(agent), operator: r.startOperator(operator)}
	group := c.m.create("backends", "tunnel-group", "create", "--label", "app=api")
	c.m.create("endpoints", "create", "--url", poolURL, "--binding", "public", "--backend-id", group)
	c.agent = c.m.serve(endpointsYAML(c.operator.url(), startSlowUpstream(r.t)), 4)
	c.forwarder = c.operator.waitReady()
	c.waitServed()
	return c
}

// requestSlow sends requests to slowPath, through the forwarder and at the public listeners, until
// wait, which reports the failures.
func (c *compatChain) requestSlow(t testing.TB) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	for _, g := range c.targets() {
		if g.tls != nil || g.kept {
			continue
		}
		all.Go(func() {
			if err := getSlow(t.Context(), g); err != nil {
				t.Errorf("a slow request to %s: %v", g.name, err)
			}
		})
	}
	return all.Wait
}

// targets returns targets of every kind: through the forwarder, and at the public listeners.
func (c *compatChain) targets() []*target {
	return append(c.throughForwarder(), c.public()...)
}

func (c *compatChain) throughForwarder() []*target {
	host := "web." + c.operator.target
	return []*target{{name: "forwarder, kept", addr: c.forwarder, host: host, kept: true},
		{name: "forwarder, fresh", addr: c.forwarder, host: host}}
}

func (c *compatChain) public() []*target {
	web := &chain{r: c.r}
	return append(append(web.public("http"), web.public("https")...),
		&target{name: "labelled tunnel", addr: c.r.balancer.addrs[frontHTTP], host: "pool." + domain})
}

// serveAll sends requests to all targets.
func (c *compatChain) serveAll(t testing.TB) {
	t.Helper()
	for i := range c.r.replicas {
		c.r.balancer.waitUp(i, true)
	}
	for _, g := range c.targets() {
		for range 5 {
			if err := g.request(t.Context()); err != nil {
				t.Errorf("%s: %v", g.name, err)
			}
		}
		g.closeIdle()
	}
}

// settled is for how long all requests have to be answered before a chain counts as served: longer
// than a replica remembers that the others have no agent.
const settled = 500 * time.Millisecond

// waitServed waits until all targets are served again.
func (c *compatChain) waitServed() {
	c.r.t.Helper()
	targets, since := c.targets(), time.Now()
	wait.Until(c.r.t, "requests to all targets to be answered", func() bool {
		for _, g := range targets {
			if g.request(c.r.t.Context()) != nil {
				since = time.Now()
			}
			g.closeIdle()
		}
		return time.Since(since) > settled
	})
}

// requireSame fails the test when the agent has ended, when an endpoint has another id than before,
// or the BoundEndpoint another port.
func (c *compatChain) requireSame(t testing.TB, ids map[string]string) {
	t.Helper()
	if !c.agent.isRunning() {
		t.Fatalf("the agent has ended with code %d", c.agent.exitCode())
	}
	now := c.agent.ids()
	for _, url := range []string{c.operator.url(), httpURL, httpsURL} {
		if now[url] != ids[url] {
			t.Errorf("%s has the id %s, and had %s", url, now[url], ids[url])
		}
	}
	if addr := c.operator.waitReady(); addr != c.forwarder {
		t.Errorf("the forwarder listens at %s, and did at %s", addr, c.forwarder)
	}
}

// offline matches the answer that no agent serves an endpoint, or a backend.
var offline = regexp.MustCompile(`^status 503: {"error_code":"ERR_FL_(3001|3021)"`)

// restartAll restarts one server after the other under load, and returns for how long requests
// failed at each. Requests that are under way must be answered, and one that fails with the answer
// that the endpoint is offline.
func (c *compatChain) restartAll(t testing.TB) (gaps []time.Duration) {
	t.Helper()
	for _, s := range c.r.replicas {
		l := startLoad(t, 100, c.targets()...)
		l.wait(30)
		wait := c.requestSlow(t)
		l.wait(30)
		s.restart()
		wait()
		l.wait(30)
		l.stop()
		failed, gap := l.failed(), time.Duration(0)
		for _, o := range failed {
			gap = max(gap, o.began.Sub(failed[0].began))
			if !offline.MatchString(o.err.Error()) {
				t.Errorf("restart of %s: a request to %s failed: %v", s.name, o.target.name, o.err)
			}
		}
		t.Logf("restart of %s: %d requests failed, within %s\n%s", s.name, len(failed), gap, l)
		gaps = append(gaps, gap)
	}
	return gaps
}

// TestCompat_OldClientsAtReplicas connects an agent and an operator of the version before to three
// replicas, which are restarted and killed under load.
func TestCompat_OldClientsAtReplicas(t *testing.T) {
	t.Parallel()
	before, now := versions(t)
	r := startServersOf(t, now, postgres.Server(t).URL(t), 3)
	c := r.startProcesses(before, before)
	c.serveAll(t)
	c.operator.requireConditions(t)
	ids := c.agent.ids()

	for _, gap := range c.restartAll(t) {
		if most := limit(500*time.Millisecond, 5*time.Second); gap > most {
			t.Errorf("requests failed for %s at the restart of a replica, want at most %s", gap, most)
		}
	}
	c.waitServed()
	c.requireSame(t, ids)
	c.operator.requireConditions(t)

	for i, s := range r.replicas {
		l := startLoad(t, 100, c.targets()...)
		l.wait(50)
		killed := time.Now()
		s.kill()
		l.wait(300)
		l.stop()
		window := l.window(killed, time.Second)
		t.Logf("kill of server %d: requests fail or wait for %s\n%s", i, window, l)
		if most := limit(2*time.Second, 15*time.Second); window > most {
			t.Errorf("requests fail or wait for %s after a kill, want at most %s", window, most)
		}
		c.waitServed()
		c.requireSame(t, ids)
		r.balancer.waitUp(i, false)
		s.start()
		s.waitReady()
		r.balancer.waitUp(i, true)
	}
}

// TestCompat_MixedClientsAtReplicas connects an agent and an operator of different versions to
// three replicas.
func TestCompat_MixedClientsAtReplicas(t *testing.T) {
	t.Parallel()
	before, now := versions(t)
	for name, c := range map[string]struct {
		agent, operator programs
		legs            string // of the KubernetesOperator
	}{
		"old agent":    {before, now, "3/3"},
		"old operator": {now, before, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startServersOf(t, now, postgres.Server(t).URL(t), 3)
			chain := r.startProcesses(c.agent, c.operator)
			chain.serveAll(t)
			chain.operator.requireConditions(t)
			wait.Until(t, "legs of the operator", func() bool {
				return chain.operator.operator().Status.Legs == c.legs
			})
			ids := chain.agent.ids()
			for _, s := range r.replicas {
				s.restart()
				chain.waitServed()
				chain.requireSame(t, ids)
			}
			chain.serveAll(t)
			chain.operator.requireConditions(t)
			if legs := chain.operator.operator().Status.Legs; (legs == "") != (c.legs == "") {
				t.Errorf("legs are %q", legs)
			}
		})
	}
}
