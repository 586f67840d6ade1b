// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
)

// startPostgres starts a server of the test's own.
func startPostgres(t *testing.T, settings ...string) *postgrestest.Server {
	t.Helper()
	s, err := postgrestest.Start(append([]string{"fsync=off"}, settings...)...)
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// createEndpoint creates a cloud endpoint through one server.
func (r *rig) createEndpoint(replica int, url string) error {
	_, err := r.replicas[replica].api.CreateObject(r.t.Context(), "/endpoints", map[string]any{
		"url": url, "bindings": []string{"kubernetes"}, "traffic_policy": answerPolicy})
	return err
}

// answerPolicy is the traffic policy of endpoints without a backend.
const answerPolicy = "on_http_request:\n- actions:\n  - type: custom-response\n" +
	"    config: {status_code: 200, body: hello}\n"

// requireWrites waits until each server writes again and returns how long that took.
func (r *rig) requireWrites(since time.Time) time.Duration {
	r.t.Helper()
	for i := range r.replicas {
		for n := 0; ; n++ {
			err := r.createEndpoint(i, fmt.Sprintf("http://after-%d-%d-%d.demo", since.UnixNano(), i, n))
			if err == nil {
				break
			}
			if time.Since(since) > time.Minute {
				r.t.Fatalf("%s does not write: %v", r.replicas[i].name, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return time.Since(since)
}

// TestReplicas_ServeWithoutPostgres stops PostgreSQL for a while: traffic without a login goes on,
// no server is taken for dead, and all write when it is back.
func TestReplicas_ServeWithoutPostgres(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t)
	r := startRigOn(t, pg.URL(t), 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	before := r.registered()
	l := startLoad(t, requestRate(t), c.targets()...)
	l.wait(100)
	must.Succeed(t, pg.Down())
	time.Sleep(duration(t, outageVariable, 5*time.Second))
	for i := range r.replicas {
		if !r.balancer.isUp(i) {
			t.Errorf("%s is not ready while PostgreSQL is away", r.replicas[i].name)
		}
	}
	must.Succeed(t, pg.Up())
	took := r.requireWrites(time.Now())
	if most := limit(3*time.Second, 10*time.Second); took > most {
		t.Errorf("all servers write %s after PostgreSQL is back, want %s", took, most)
	}
	time.Sleep(2 * time.Second) // a beat later
	l.stop()
	l.requireNoFailure("PostgreSQL away")
	if after := r.registered(); !slices.Equal(before, after) {
		t.Errorf("registered were %v, and are %v", before, after)
	}
	t.Logf("all write %s after PostgreSQL is back", took)
}
