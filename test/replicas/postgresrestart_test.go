// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/store/postgrestest"
)

// up starts PostgreSQL again. After a kill the processes of its connections may hold its memory for a
// moment longer.
func up(t *testing.T, pg *postgrestest.Server) {
	t.Helper()
	err := pg.Up()
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); err = pg.Up() {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
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
	l := startLoad(t, number(t, rateVariable, 100), c.targets()...)
	l.wait(50)
	for name, end := range map[string]func() error{"killed": pg.Kill, "restarted": pg.Down} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
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
