// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// agentsOfToken is how many agents of a fleet have one authtoken: binds are limited for each.
const agentsOfToken = 20

// fleetTimeout is how long a fleet may look for its servers: an agent that has dialed often in vain
// tries again a minute later.
const fleetTimeout = 3 * time.Minute

// fleet is many agents with an endpoint each.
type fleet struct {
	r       *rig
	clients map[netip.Addr]bool
}

func fleetURL(i int) string { return fmt.Sprintf("http://agent-%d.fleet", i) }

// startFleet starts so many agents, and waits until each has connections with all servers.
func (r *rig) startFleet(n int) *fleet {
	r.t.Helper()
	f := &fleet{r: r, clients: map[netip.Addr]bool{}}
	upstream := startUpstream(r.t)
	agents := make([]*testAgent, n)
	var token string
	for i := range n {
		if i%agentsOfToken == 0 {
			token = r.createAuthtoken()
		}
		agents[i] = r.runAgent(-1, token, endpoint{url: fleetURL(i), binding: "kubernetes", upstream: upstream})
		f.clients[agents[i].client] = true
	}
	for _, a := range agents {
		a.waitOnline(r.t, 1)
	}
	f.waitLegs(time.Now())
	r.t.Cleanup(func() { // all at once
		var stops sync.WaitGroup
		for _, a := range agents {
			stops.Go(a.stop)
		}
		stops.Wait()
	})
	return f
}

// createAuthtoken makes an authtoken that may bind all.
func (r *rig) createAuthtoken() string {
	r.t.Helper()
	_, token := r.createCredential()
	return token
}

func (r *rig) createCredential() (id, token string) {
	r.t.Helper()
	raw, err := r.replicas[0].api.CreateObject(r.t.Context(), "/credentials", map[string]any{"acl": []string{"bind:*"}})
	must.Succeed(r.t, err)
	var made struct{ ID, Token string }
	must.Succeed(r.t, json.Unmarshal(raw, &made))
	return made.ID, made.Token
}

// waitLegs waits until each agent has connections with all servers, and returns how long after an
// event that was.
func (f *fleet) waitLegs(since time.Time) time.Duration {
	f.r.t.Helper()
	for i, s := range f.r.replicas {
		for missing := f.missing(i); missing > 0; missing = f.missing(i) {
			if time.Since(since) > fleetTimeout {
				f.r.t.Fatalf("after %s, %d agents have no connection with %s", time.Since(since), missing, s.name)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return time.Since(since)
}

// missing returns how many agents have no connection with a server.
func (f *fleet) missing(server int) int {
	have, n := f.r.balancer.clientsOf(server), 0
	for client := range f.clients {
		if !have[client] {
			n++
		}
	}
	return n
}

// TestReplicas_KilledServerKeepsFleetOnline kills one of three servers with many agents: no endpoint
// goes offline, and all agents find its replacement.
func TestReplicas_KilledServerKeepsFleetOnline(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	n := number(t, agentsVariable, 60)
	began := time.Now()
	f := r.startFleet(n)
	t.Logf("%d agents have their connections after %s", n, time.Since(began))
	watchers := []*watcher{r.startWatcher(0, 0), r.startWatcher(1, 0)}
	victim := r.replicas[2]
	victim.kill()
	killed := time.Now()
	r.balancer.waitUp(2, false)
	if isSoak() { // its legs are removed, too
		wait.Until(t, "killed server to be fenced", func() bool { return len(r.registered()) == 2 })
	}
	victim.start()
	victim.waitReady()
	r.balancer.waitUp(2, true)
	up := time.Now()
	took := f.waitLegs(up)
	t.Logf("%d agents: the replacement is up %s after the kill, and all have connections with it %s later", n,
		up.Sub(killed), took)
	if most := limit(30*time.Second, time.Minute); took > most {
		t.Errorf("all agents have their connections after %s, want %s", took, most)
	}
	for _, w := range watchers {
		w.requireList(0)
		for i := range n {
			if w.wasOffline(fleetURL(i)) {
				t.Errorf("%s was offline", fleetURL(i))
			}
		}
	}
}
