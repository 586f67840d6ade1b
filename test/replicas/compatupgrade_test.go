// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// stop ends all servers in an orderly way.
func (r *rig) stop() {
	r.t.Helper()
	for _, s := range r.replicas {
		if code := s.terminate(); code != 0 {
			r.t.Errorf("%s has ended with code %d", s.name, code)
		}
		r.balancer.waitUp(s.index, false)
	}
}

// startAgain starts all servers, and checks that they have the authority that clients trust.
func (r *rig) startAgain() {
	r.t.Helper()
	trusted := r.fingerprint
	for _, s := range r.replicas {
		s.start()
	}
	for _, s := range r.replicas {
		s.waitReady()
		s.readFingerprint()
		if r.fingerprint != trusted {
			r.t.Fatalf("%s has an authority with the fingerprint %s, and clients trust %s", s.name, r.fingerprint,
				trusted)
		}
		r.balancer.waitUp(s.index, true)
		s.api = r.newAPI("https://" + s.addr)
	}
}

// becomeReplicas makes three replicas of the rig's only, stopped server, with data directories that
// are empty.
func (r *rig) becomeReplicas(p programs) {
	r.t.Helper()
	first := r.replicas[0]
	first.relay, first.dir = freeAddr(r.t, "127.0.0.1"), filepath.Join(r.dir, "empty")
	r.replicas = append(r.replicas, r.newReplica(1, true), r.newReplica(2, true))
	r.setProgram(p)
}

// startWithAuthority starts a server on PostgreSQL whose authority lies in its data directory,
// where it has come from SQLite.
func startWithAuthority(t *testing.T, p programs) *rig {
	t.Helper()
	r := startServersOf(t, p, "", 1)
	r.stop()
	if _, err := os.Stat(filepath.Join(r.replicas[0].dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	r.databaseURL = postgres.Server(t).URL(t)
	r.startAgain()
	r.run("domain", "grant", "default", "*."+domain)
	return r
}

// TestCompat_Upgrade upgrades a server on PostgreSQL in its place, and makes replicas of it. An
// agent and an operator of the version before stay connected, and a person stays logged in.
func TestCompat_Upgrade(t *testing.T) {
	t.Parallel()
	before, now := versions(t)
	r := startWithAuthority(t, before)
	c := r.startProcesses(before, before)
	c.serveAll(t)
	ids, key := c.agent.ids(), c.m.create("api-keys", "create", "--description", "kept")
	person := r.startSite(t).logIn("ann", 0)

	requireKept := func(step string) {
		t.Helper()
		c.waitServed()
		c.requireSame(t, ids)
		c.operator.requireConditions(t)
		if list := c.m.run("api", "api-keys", "list"); !strings.Contains(list, key) {
			t.Errorf("%s: the API key %s is missing:\n%s", step, key, list)
		}
		wait.Until(t, "the login's endpoint", func() bool {
			res, err := person.try(0, loginURL+"/hello")
			if err != nil {
				return false
			}
			_ = res.Body.Close()
			return res.StatusCode != http.StatusNotFound && res.StatusCode < http.StatusInternalServerError
		})
		if served, err := person.isServed(0); err != nil || !served {
			t.Errorf("%s: a person who is logged in is not served: %v", step, err)
		}
	}
	r.stop()
	r.setProgram(now)
	r.startAgain()
	requireKept("one server of this version")

	r.stop()
	r.becomeReplicas(now)
	r.startAgain()
	requireKept("three replicas")
	for _, s := range r.replicas {
		s.restart()
		requireKept("restart of " + s.name)
	}
}

// TestCompat_Downgrade starts the version before on the store of this one, which works until
// replicas have used the store, and again after `store single`.
func TestCompat_Downgrade(t *testing.T) {
	t.Parallel()
	before, now := versions(t)
	for _, engine := range []string{"SQLite", "PostgreSQL"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			databaseURL := ""
			if engine == "PostgreSQL" {
				databaseURL = postgres.Server(t).URL(t)
			}
			r := startServersOf(t, now, databaseURL, 1)
			c := r.startProcesses(now, now)
			c.serveAll(t)
			ids := c.agent.ids()
			for _, p := range []programs{before, now} {
				r.stop()
				r.setProgram(p)
				r.startAgain()
				c.waitServed()
				c.requireSame(t, ids)
				c.operator.requireConditions(t)
			}
			if engine == "SQLite" {
				return
			}
			r.stop()
			r.becomeReplicas(now)
			r.startAgain()
			c.waitServed()
			c.requireSame(t, ids)

			r.stop()
			r.replicas = r.replicas[:1]
			s := r.replicas[0]
			s.relay = ""
			r.setProgram(before)
			s.start()
			const refusal = "the store is used by several servers; start this one as a replica, too"
			if code := s.exitCode(); code == 0 || !strings.Contains(s.log.String(), refusal) {
				t.Errorf("exit code %d, want a refusal with %q:\n%s", code, refusal, s.log.String())
			}
			r.setProgram(now)
			r.run("store", "single")
			r.setProgram(before)
			r.startAgain()
			c.waitServed()
			c.requireSame(t, ids)
		})
	}
}
