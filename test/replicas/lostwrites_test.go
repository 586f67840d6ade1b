// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// publicEndpoint returns a public endpoint with a host below domain.
func publicEndpoint(name, upstream string) endpoint {
	return endpoint{url: "http://" + name + "." + domain, binding: "public", upstream: upstream}
}

// startPublic starts an agent that binds public endpoints, of which so many can be bound, and waits
// until it has connections with all servers.
func (r *rig) startPublic(online int, names ...string) *testAgent {
	r.t.Helper()
	upstream := startUpstream(r.t)
	var all []endpoint
	for _, name := range names {
		all = append(all, publicEndpoint(name, upstream))
	}
	a := r.runAgent(-1, r.authtoken, all...)
	a.waitOnline(r.t, online)
	r.waitLegs(a)
	return a
}

// isServedEverywhere reports whether each server serves a public endpoint.
func (r *rig) isServedEverywhere(name string) bool {
	return !slices.ContainsFunc(r.targetsAtEach(name+"."+domain), func(g *target) bool {
		return g.request(r.t.Context()) != nil
	})
}

// holder returns the session that has a public endpoint online; "" if none has.
func (r *rig) holder(name string) string {
	r.t.Helper()
	list, err := r.replicas[0].api.ListEndpoints(r.t.Context(), account.EndpointFilter{})
	must.Succeed(r.t, err)
	for _, e := range list.Endpoints {
		if e.Host == name+"."+domain && e.Status == account.StatusOnline && e.TunnelSession != nil {
			return e.TunnelSession.ID
		}
	}
	return ""
}

// poll waits until the condition holds, for 40 s, and returns how long that took. It leaves the API
// room for other calls.
func (r *rig) poll(what string, since time.Time, condition func() bool) time.Duration {
	r.t.Helper()
	for !condition() {
		if time.Since(since) > 40*time.Second {
			r.t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(since)
}

// TestReplicas_LostWritesComeBack promotes a standby that lacks acknowledged writes: sessions that
// began, ended or were replaced, binds, cloud endpoints, and a restart of a server. What lives is
// written again, and what only the database believes in goes, while other traffic goes on.
func TestReplicas_LostWritesComeBack(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	r := startRigOn(t, p.url, 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	ended, replaced := r.startPublic(1, "ended"), r.startPublic(1, "replaced")
	taking := r.startPublic(1, "wanted")
	waiting := r.startPublic(1, "own", "wanted") // the second is taken
	watchers := []*watcher{r.startWatcher(0, 0), r.startWatcher(1, 5)}
	before := r.version(0)
	l := startLoad(t, requestRate(t), c.targets()...)
	l.wait(50)

	p.cut(t)
	lost := r.loseWrites(ended, taking)
	for _, a := range []*testAgent{c.agent, replaced, waiting} {
		r.waitLegs(a)
	}
	live := r.registered()

	p.failOver(t)
	promoted := time.Now()
	if session := r.holder("replaced"); session == lost {
		t.Fatal("no write was lost")
	}
	took := r.requireWrites(promoted)
	if most := limit(3*time.Second, 15*time.Second); took > most {
		t.Errorf("all servers write %s after the promotion, want %s", took, most)
	}
	r.requireLostBack(promoted)
	r.poll("the servers' rows to be those of the live ones", promoted, func() bool {
		return slices.Equal(r.registered(), live)
	})
	l.wait(100)
	l.stop()
	l.requireNoFailure("asynchronous promotion")
	r.requireOneEpoch(before, watchers)
	for _, w := range watchers {
		for _, url := range []string{clusterURL, httpURL, httpsURL} {
			if w.wasOffline(url) {
				t.Errorf("%s was offline", url)
			}
		}
	}
}

// loseWrites restarts a server, starts and stops agents, replaces a session and creates endpoints. It
// returns the session that is the holder of the endpoint whose session was replaced.
func (r *rig) loseWrites(ended, taking *testAgent) (lost string) {
	r.t.Helper()
	if isSoak() { // its former process, which the standby knows, counts for 16 s
		r.replicas[2].restart()
	}
	r.startPublic(1, "late")
	ended.stop()
	taking.stop()
	session := r.holder("replaced")
	must.Succeed(r.t, r.replicas[0].api.PostAction(r.t.Context(), "/tunnel_sessions/"+session+"/restart"))
	r.poll("a session to be replaced", time.Now(), func() bool {
		lost = r.holder("replaced")
		return lost != "" && lost != session
	})
	r.poll("the second endpoint to be bound", time.Now(), func() bool { return r.isServedEverywhere("wanted") })
	for i := range 5 {
		must.Succeed(r.t, r.createEndpoint(i%3, fmt.Sprintf("http://lost-%d.demo", i)))
	}
	return lost
}

// requireLostBack waits until lost binds are there again, and lost ends are, too.
func (r *rig) requireLostBack(promoted time.Time) {
	r.t.Helper()
	r.poll("lost ends", promoted, func() bool { return r.holder("ended") == "" })
	ends := time.Since(promoted)
	var binds time.Duration
	for _, name := range []string{"late", "replaced", "own", "wanted"} {
		binds = r.poll(name, promoted, func() bool { return r.holder(name) != "" && r.isServedEverywhere(name) })
	}
	r.t.Logf("after the promotion, sessions whose end was lost are over after %s, and lost binds are served after %s",
		ends, binds)
	// the process before the restart is removed after 16 s, with its legs
	if most := limit(35*time.Second, 40*time.Second); max(ends, binds) > most {
		r.t.Errorf("want at most %s", most)
	}
}
