// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// relays are in front of the addresses where the servers reach each other.
type relays struct {
	r   *rig
	all []*balancer // by server
}

// interposeRelays puts relays between the servers, each of which it restarts.
func (r *rig) interposeRelays(exec func(statement string) error) *relays {
	r.t.Helper()
	relays := &relays{r: r}
	mapping := "NEW.relay_address"
	for _, s := range r.replicas {
		b := startBalancer(r.t)
		b.add("http://"+s.health+"/readyz", [fronts]string{s.relay, s.relay, s.relay})
		b.pin(netip.MustParseAddr("127.0.0.1"), 0) // also while the server is not ready
		mapping = fmt.Sprintf("CASE NEW.relay_address WHEN '%s' THEN '%s' ELSE %s END", s.relay, b.addrs[0], mapping)
		relays.all = append(relays.all, b)
	}
	for _, statement := range []string{
		`CREATE FUNCTION interpose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.relay_address := ` + mapping +
			`; RETURN NEW; END $$`,
		`CREATE TRIGGER interpose BEFORE INSERT ON replicas FOR EACH ROW EXECUTE FUNCTION interpose()`,
	} {
		must.Succeed(r.t, exec(statement))
	}
	for _, s := range r.replicas {
		s.restart()
	}
	relays.waitLinked(2)
	return relays
}

// waitLinked waits until each server has links to so many others.
func (l *relays) waitLinked(others float64) {
	l.r.t.Helper()
	for _, s := range l.r.replicas {
		wait.Until(l.r.t, "links of "+s.name, func() bool {
			return s.metric("fairlead_server_peers", `state="linked"`) == others
		})
	}
}

func (l *relays) cut() {
	for _, b := range l.all {
		b.cut(0)
	}
	l.waitLinked(0)
}

func (l *relays) heal() {
	for _, b := range l.all {
		b.heal(0)
	}
	l.waitLinked(2)
}

// TestReplicas_PeersCut makes the servers unreachable for each other, while clients and PostgreSQL
// reach them all: what the request's server has an agent for is served, a revocation takes the lease
// and a second, and all is as before when they reach each other again.
func TestReplicas_PeersCut(t *testing.T) {
	t.Parallel()
	const lease = 5 * time.Second
	pg := postgres.Server(t)
	url := pg.URL(t)
	r := startRigOn(t, url, 3, "--revocation-lease", lease.String())
	relays := r.interposeRelays(func(statement string) error { return pg.Exec(t.Context(), url, statement) })
	s := r.startSite(t)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	r.startAgent(1, publicEndpoint("pinned", startUpstream(t)))
	pinned := r.targetsAtEach("pinned." + domain)
	for _, g := range pinned {
		if err := g.request(t.Context()); err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
	}
	p, again := s.logIn("person", 0), s.logIn("again", 0)
	streams := p.openEverywhere()
	l := startLoad(t, requestRate(t), c.targets()...)
	l.wait(20)

	relays.cut()
	for i, g := range pinned {
		err := g.request(t.Context())
		if i == 1 && err != nil || i != 1 && (err == nil || !strings.HasPrefix(err.Error(), "status 503")) {
			t.Errorf("an endpoint whose agent is at server 1, through server %d: %v", i, err)
		}
	}
	began, answered := p.revoke(0)
	took := answered.Sub(began)
	t.Logf("revocation while the servers do not reach each other: answered after %s", took)
	if most := limit(lease+1500*time.Millisecond, lease+8*time.Second); took > most {
		t.Errorf("answered after %s, want at most %s", took, most)
	}
	for _, open := range streams {
		open.requireCut(t, answered)
	}

	relays.heal()
	for _, g := range pinned {
		wait.Until(t, "what is relayed to be served by "+g.name, func() bool { return g.request(t.Context()) == nil })
	}
	streams = again.openEverywhere()
	began, answered = again.revoke(1)
	if took, most := answered.Sub(began), limit(200*time.Millisecond, 2*time.Second); took > most {
		t.Errorf("a revocation is answered after %s, want at most %s", took, most)
	}
	for _, open := range streams {
		open.requireCut(t, answered)
	}
	l.stop()
	l.requireNoFailure("servers that do not reach each other")
}
