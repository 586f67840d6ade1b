// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestPool_AgentsShareURL runs two agents with one URL: both get requests of a pod, and when one
// dies or leaves, the other gets all of them through the same Services.
func TestPool_AgentsShareURL(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "pool")
	c, s := r.c, r.Service
	host := "api." + ns
	url := "http://" + host
	pod := c.NettoolPod(t, ns)
	port := freePort()
	c.StartUpstream(t, "web", "serve", "127.0.0.1:"+port)
	first := s.Agent(t, "http", port, url, "--pooling-enabled", "--name", "first")
	bep := r.BoundEndpoint(t, host, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	second := s.Agent(t, "http", port, url, "--pooling-enabled", "--name", "second")
	r.waitEndpoints(t, bep, 2)
	if len(bep.Spec.Ports) != 1 {
		t.Errorf("a pool of two has ports %+v, want one", bep.Spec.Ports)
	}
	alone := s.AgentOnly(t, "http", port, url)
	if code := alone.ExitCode(); code == 0 || !strings.Contains(alone.Output(), "--pooling-enabled") {
		t.Errorf("an agent that does not share the URL ended with %d: %s", code, alone.Output())
	}
	before := serviceIdentities(t, r, bep)
	c.waitAnswers(t, pod, url)

	calls := c.startLoad(t, pod, "-v", "-rate", "30", url)
	waitRequests(t, first, 30)
	waitRequests(t, second, 30)
	first.Kill()
	died := time.Now()
	waitRequests(t, second, 100)
	ids := r.waitEndpoints(t, bep, 2) // the dead one is offline, and may come back
	first = s.Agent(t, "http", port, url, "--pooling-enabled", "--name", "first")
	waitRequests(t, first, 30)
	if again := r.waitEndpoints(t, bep, 2); again != ids {
		t.Errorf("the restarted agent is another endpoint: %s, before: %s", again, ids)
	}
	if err := first.Signal(syscall.SIGINT); err != nil { // the hostname's first goes for good
		t.Fatal(err)
	}
	left := time.Now()
	if code := first.ExitCode(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
	r.waitEndpoints(t, bep, 1)
	waitRequests(t, second, 100)
	sum := calls.stop(t)
	for _, q := range calls.samples() {
		if !q.ok && !underWayAt(q.at, died) && !underWayAt(q.at, left) {
			t.Errorf("a request failed %v after the death and %v after the departure: %s", q.at.Sub(died),
				q.at.Sub(left),
				q.reason)
		}
	}
	t.Logf("%d requests answered, %d failed, slowest %v", sum.OK, sum.Failed, sum.Slowest)
	if sum.Failed > 10 {
		t.Errorf("%d requests failed; only those under way at the agent that died may", sum.Failed)
	}
	if after := serviceIdentities(t, r, bep); after != before {
		t.Errorf("Services %s, before %s", after, before)
	}
}

// underWayAt reports whether a request that ended at t may have been under way at the event.
func underWayAt(t, event time.Time) bool {
	d := t.Sub(event)
	return d > -2*time.Second && d < 5*time.Second
}

// waitRequests waits until the agent's screen shows that many more requests.
func waitRequests(t *testing.T, agent *Process, more int) {
	t.Helper()
	const line = "GET "
	began := strings.Count(agent.Output(), line)
	deadline, tick := time.NewTimer(time.Minute), time.NewTicker(50*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		got := strings.Count(agent.Output(), line) - began
		if got >= more {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("an agent served %d requests in a minute, want %d", got, more)
		}
	}
}

// waitEndpoints waits until the hostname's object has so many endpoints, reads it into bep and
// returns their ids.
func (r *Release) waitEndpoints(t *testing.T, bep *v1alpha1.BoundEndpoint, want int) string {
	t.Helper()
	var ids []string
	r.c.Eventually(t, 30*time.Second, fmt.Sprintf("%s has %d endpoints", bep.Name, want),
		func(ctx context.Context) error {
			if err := r.c.Client.Get(ctx, client.ObjectKeyFromObject(bep), bep); err != nil {
				return err
			}
			ids = nil
			for _, e := range bep.Spec.Endpoints {
				ids = append(ids, e.ID)
			}
			if len(ids) != want {
				return fmt.Errorf("it has %v", ids)
			}
			return nil
		})
	return strings.Join(ids, " ")
}

// TestPool_PortsOfHostnameComeAndGo adds and removes ports of one hostname in any order: the one
// that stays answers throughout, and the Services stay.
func TestPool_PortsOfHostnameComeAndGo(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "ports", "--set", "binding.removalDelay=1s")
	c := r.c
	pod := c.NettoolPod(t, ns)
	web, echo := freePort(), freePort()
	c.StartUpstream(t, "web", "serve", "127.0.0.1:"+web)
	c.StartUpstream(t, "echo", "echo", "127.0.0.1:"+echo)
	for i, o := range []struct{ name, before, stands, after string }{
		{"tcp beside a standing http", "", "http", "+tcp -tcp +tcp -tcp"},
		{"http beside a standing tcp", "", "tcp", "+http -http +http"},
		{"tcp was first and leaves", "tcp", "http", "-tcp +tcp -tcp"},
		{"http was first and leaves", "http", "tcp", "-http +http"},
	} {
		h := &hostname{
			r: r, pod: pod, name: fmt.Sprintf("db-%d.%s", i, ns), agents: map[string]*Process{},
			upstreams: map[string]string{"http": web, "tcp": echo},
		}
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			if o.before != "" {
				h.startAgent(t, o.before)
			}
			h.startAgent(t, o.stands)
			bep := r.BoundEndpoint(t, h.name, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
			before := serviceIdentities(t, r, bep)
			calls := c.startLoad(t, pod, "-rate", "10", h.url(o.stands))
			for step := range strings.FieldsSeq(o.after) {
				if step[0] == '+' {
					h.startAgent(t, step[1:])
				} else {
					h.stopAgent(t, step[1:])
				}
			}
			sum := calls.stop(t)
			t.Logf("%d requests to %s while %s: %d failed, slowest %v", sum.OK, h.url(o.stands), o.after, sum.Failed,
				sum.Slowest)
			if sum.Failed > 0 || sum.OK == 0 {
				t.Errorf("%d requests were answered, and these failed: %+v", sum.OK, calls.samples())
			}
			if after := serviceIdentities(t, r, bep); after != before {
				t.Errorf("Services %s, before %s", after, before)
			}
		})
	}
}

// hostname is one with at most an http and a tcp endpoint.
type hostname struct {
	r         *Release
	pod       *corev1.Pod
	name      string
	upstreams map[string]string // port by kind
	agents    map[string]*Process
}

func (h *hostname) url(kind string) string {
	return map[string]string{"http": "http://" + h.name, "tcp": "tcp://" + h.name + ":5432"}[kind]
}

// startAgent starts the agent and waits until a pod gets an answer.
func (h *hostname) startAgent(t *testing.T, kind string) {
	t.Helper()
	h.agents[kind] = h.r.Service.Agent(t, kind, h.upstreams[kind], h.url(kind))
	h.r.BoundEndpoint(t, h.name, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	h.r.c.waitAnswers(t, h.pod, h.url(kind))
}

// stopAgent ends the agent as Ctrl-C does and waits until the upstream Service has lost the port.
func (h *hostname) stopAgent(t *testing.T, kind string) {
	t.Helper()
	must.Succeed(t, h.agents[kind].Signal(syscall.SIGINT))
	bep := &v1alpha1.BoundEndpoint{}
	h.r.c.Eventually(t, 30*time.Second, "the upstream Service without the port of "+h.url(kind),
		func(ctx context.Context) error {
			if err := h.r.c.Client.Get(ctx, client.ObjectKey{Namespace: h.r.Namespace, Name: h.name}, bep); err != nil {
				return err
			}
			upstream := &corev1.Service{}
			if err := h.r.c.Client.Get(ctx, client.ObjectKey{Namespace: h.r.Namespace, Name: bep.Spec.ProjectionID},
				upstream); err != nil {
				return err
			}
			for _, port := range upstream.Spec.Ports {
				if strings.HasPrefix(port.Name, kind) {
					return fmt.Errorf("it has %+v", upstream.Spec.Ports)
				}
			}
			return nil
		})
}
