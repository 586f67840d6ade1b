// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// up starts PostgreSQL again. After a kill the processes of its connections may hold its memory for a
// moment longer.
func up(t *testing.T, pg *postgrestest.Server) {
	t.Helper()
	err := pg.Up()
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); err = pg.Up() {
		time.Sleep(50 * time.Millisecond)
	}
	must.Succeed(t, err)
}

// TestReplicas_SurvivePostgresRestarts kills PostgreSQL and starts it again, and restarts it in an
// orderly way: traffic without a login goes on, no server is taken for dead, and all write at once.
func TestReplicas_SurvivePostgresRestarts(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	r := startRigOn(t, pg.URL(t), 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	before := r.registered()
	l := startLoad(t, requestRate(t), c.targets()...)
	l.wait(50)
	for name, end := range map[string]func() error{"killed": pg.Kill, "restarted": pg.Down} {
		must.Succeed(t, end())
		up(t, pg)
		took := r.requireWrites(time.Now())
		t.Logf("all write %s after PostgreSQL was %s", took, name)
		if most := limit(3*time.Second, 15*time.Second); took > most {
			t.Errorf("%s: all servers write after %s, want %s", name, took, most)
		}
	}
	l.wait(200)
	l.stop()
	l.requireNoFailure("restarts of PostgreSQL")
	if after := r.registered(); !slices.Equal(before, after) {
		t.Errorf("registered were %v, and are %v", before, after)
	}
}

// TestReplicas_ColdServerServesWithoutPostgres stops PostgreSQL when a server has just started, which
// has not been asked for anything: it serves from its own connections and the others'. A server that
// is started meanwhile ends with the reason.
func TestReplicas_ColdServerServesWithoutPostgres(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	r := startRigOn(t, pg.URL(t), 3)
	c := r.startChain(-1, -1)
	r.startAgent(0, publicEndpoint("elsewhere", startUpstream(t)))
	r.waitLegs(c.agent)
	cold := r.replicas[2]
	cold.restart()
	wait.Until(t, "cold server to have the agent's endpoints and links to the others", func() bool {
		return cold.metric("fairlead_server_endpoints") == float64(len(c.ids)) &&
			cold.metric("fairlead_server_peers", `state="linked"`) == 2
	})
	must.Succeed(t, pg.Down())
	for _, g := range append(append(c.publicAt("http", cold.http), c.publicAt("https", cold.https)...),
		&target{name: "an endpoint of another server", addr: cold.http, host: "elsewhere." + domain}) {
		if err := g.request(t.Context()); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
		g.closeIdle()
	}
	cold.kill()
	cold.start()
	if code := cold.exitCode(); code != 1 {
		t.Errorf("a server without PostgreSQL has ended with code %d", code)
	}
	if text := lastLines(cold.log.String(), 1); !strings.Contains(text, "cannot be reached: ") {
		t.Errorf("it says %q", text)
	}
	up(t, pg)
	cold.start()
	cold.waitReady()
	r.requireWrites(time.Now())
	r.waitLegs(c.agent)
	c.serveAll(t, 1)
}
