// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// registered returns the ids of the servers that are registered in the store.
func (r *rig) registered() (ids []string) {
	r.t.Helper()
	st, err := store.Open(r.t.Context(), store.Options{DataDir: r.dir, DatabaseURL: r.databaseURL})
	must.Succeed(r.t, err)
	defer func() { _ = st.Close() }()
	all, err := st.Replicas(r.t.Context())
	must.Succeed(r.t, err)
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

// TestReplicas_KilledServerLosesOnlyItsRequests kills one of three servers under load, several
// times.
func TestReplicas_KilledServerLosesOnlyItsRequests(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	var windows []time.Duration
	for i := range number(t, killsVariable, 3) {
		victim := r.replicas[i%3]
		l := startLoad(t, requestRate(t), c.throughForwarder()...)
		l.wait(50)
		killed := time.Now()
		victim.kill()
		l.wait(100)
		l.stop()
		windows = append(windows, l.window(killed, slowRequest()))
		for _, o := range l.failed() {
			if o.began.After(killed.Add(limit(100*time.Millisecond, time.Second))) {
				t.Errorf("a request to %s failed that began %s after the kill: %v", o.target.name, o.began.Sub(killed),
					o.err)
			}
		}
		t.Logf("kill of %s: window %s, %d failed\n%s", victim.name, windows[i], len(l.failed()), l)
		r.balancer.waitUp(victim.index, false)
		victim.start()
		victim.waitReady()
		r.balancer.waitUp(victim.index, true)
		r.waitLegs(c.agent)
	}
	q := newQuantiles(windows)
	t.Logf("windows through forwarders: %s", q)
	if most := limit(100*time.Millisecond, time.Second); q.at(100) > most {
		t.Errorf("requests fail or wait for %s after a kill, want at most %s", q.at(100), most)
	}
}

// TestReplicas_StoppedServerIsFenced stops the process of one of three servers under load. Forwarders
// leave it; the others take it for dead; when it runs again, it begins anew and serves.
func TestReplicas_StoppedServerIsFenced(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	before := r.registered()
	if len(before) != 3 {
		t.Fatalf("registered are %v", before)
	}
	l := startLoad(t, requestRate(t), c.throughForwarder()...)
	l.wait(50)
	victim := r.replicas[1]
	stopped := time.Now()
	victim.signal(syscall.SIGSTOP)
	wait.Until(t, "stopped server to be fenced", func() bool { return len(r.registered()) == 2 })
	fenced := time.Since(stopped)
	window := l.window(stopped, slowRequest())
	t.Logf("SIGSTOP: requests through forwarders fail or wait for %s; fenced after %s\n%s", window, fenced, l)
	// 16 s without a beat; the last one was up to 2 s before the stop.
	if fenced < 14*time.Second || fenced > limit(22*time.Second, 40*time.Second) {
		t.Errorf("fenced after %s", fenced)
	}
	if most := limit(2*time.Second, 6*time.Second); window > most {
		t.Errorf("requests fail or wait for %s after a server was stopped, want at most %s", window, most)
	}
	victim.signal(syscall.SIGCONT)
	wait.Until(t, "server to begin anew", func() bool { return len(r.registered()) == 3 })
	for _, id := range r.registered() {
		if !slices.Contains(before, id) {
			before = nil // it has another id
			break
		}
	}
	if before != nil {
		t.Errorf("the server that was fenced has its former id; registered are %v", before)
	}
	r.balancer.waitUp(1, true)
	c.serveAll(t, 3)
	r.waitLegs(c.agent)
	resumed := time.Now()
	l.wait(50)
	l.stop()
	most := limit(500*time.Millisecond, 6*time.Second) // a busy machine takes seconds for some
	if window := l.window(resumed, most); window > 0 {
		t.Errorf("requests fail or wait until %s after the server has begun anew\n%s", window, l)
	}
}

// TestReplicas_BlackHoledLinkIsLeft carries no byte between the clients and one of three servers.
func TestReplicas_BlackHoledLinkIsLeft(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	l := startLoad(t, requestRate(t), c.throughForwarder()...)
	l.wait(50)
	holed := time.Now()
	r.balancer.blackHole(2)
	for time.Since(holed) < 5*time.Second {
		l.wait(10)
	}
	window := l.window(holed, slowRequest())
	r.balancer.heal(2)
	r.balancer.waitUp(2, true)
	l.stop()
	t.Logf("black hole: requests through forwarders fail or wait for %s\n%s", window, l)
	if most := limit(2*time.Second, 4*time.Second); window > most {
		t.Errorf("requests fail or wait for %s, want at most %s", window, most)
	}
}

// TestReplicas_WritesDoNotWaitForKilledServer kills a server and starts it anew at its addresses: a
// deletion waits for the killed process no longer than until then.
func TestReplicas_WritesDoNotWaitForKilledServer(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	raw, err := r.replicas[0].api.CreateObject(t.Context(), "/endpoints", map[string]any{
		"url": "http://cloud." + domain, "bindings": []string{"public"}, "traffic_policy": answerPolicy})
	must.Succeed(t, err)
	r.replicas[1].kill()
	r.replicas[1].start()
	r.replicas[1].waitReady()
	began := time.Now()
	must.Succeed(t, r.replicas[0].api.DeleteObject(t.Context(), "/endpoints/"+idOf(t, raw)))
	if took, most := time.Since(began), limit(2*time.Second, 8*time.Second); took > most {
		t.Errorf("a deletion is answered after %s, want at most %s", took, most)
	}
}
