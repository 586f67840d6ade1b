// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// ofReplicas matches what only a client of replicas prints.
var ofReplicas = regexp.MustCompile(`(?i)replica`)

// TestCompat_NewClientsAtOldServer connects an agent, an operator and the CLI of this version to a
// server of the version before.
func TestCompat_NewClientsAtOldServer(t *testing.T) {
	t.Parallel()
	before, now := versions(t)
	for _, engine := range []string{"SQLite", "PostgreSQL"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			databaseURL := ""
			if engine == "PostgreSQL" {
				databaseURL = postgres.Server(t).URL(t)
			}
			r := startServersOf(t, before, databaseURL, 1)
			c := r.startProcesses(now, now)
			c.serveAll(t)
			c.operator.requireConditions(t)
			c.requireNoReplicas(t)

			ids := c.agent.ids()
			r.replicas[0].restart()
			c.waitServed()
			c.requireSame(t, ids)
			c.serveAll(t)
			c.operator.requireConditions(t)
			c.requireNoReplicas(t)
			c.requireStopped(t)
		})
	}
}

// requireNoReplicas fails the test when a client of a server that knows none mentions replicas.
func (c *compatChain) requireNoReplicas(t testing.TB) {
	t.Helper()
	if legs := c.operator.operator().Status.Legs; legs != "" {
		t.Errorf("the operator reports the legs %q", legs)
	}
	doctor := c.m.run("doctor", "--verbose")
	t.Logf("doctor:\n%s", doctor)
	for what, text := range map[string]string{"the doctor": doctor, "the agent": c.agent.log.String(),
		"the forwarder": c.operator.forwarder.log.String()} {
		if found := ofReplicas.FindString(text); found != "" {
			t.Errorf("%s mentions a %s", what, found)
		}
	}
}

// session returns the id of the agent's session.
func (c *compatChain) session() string {
	online := c.agent.events("online")
	return online[len(online)-1].SessionID
}

// requireStopped restarts and stops the agent's session by the API.
func (c *compatChain) requireStopped(t testing.TB) {
	t.Helper()
	first := c.session()
	if list := c.m.run("api", "tunnel-sessions", "list"); !strings.Contains(list, first) {
		t.Errorf("the list of sessions lacks %s:\n%s", first, list)
	}
	c.m.run("api", "tunnel-sessions", "restart", first)
	wait.Until(t, "another session of the agent", func() bool { return c.session() != first })
	c.waitServed()
	c.m.run("api", "tunnel-sessions", "stop", c.session())
	if code := c.agent.exitCode(); code != 5 {
		t.Errorf("the agent has ended with code %d, want 5", code)
	}
	for _, g := range c.targets() {
		wait.Until(t, "requests to "+g.name+" to be refused", func() bool {
			defer g.closeIdle()
			return g.request(t.Context()) != nil
		})
	}
}

// TestCompat_CLI runs the commands of `fairlead api` of one version at servers of the other.
func TestCompat_CLI(t *testing.T) {
	t.Parallel()
	before, now := versions(t)
	t.Run("new at old server", func(t *testing.T) {
		t.Parallel()
		for _, databaseURL := range []string{"", postgres.Server(t).URL(t)} {
			r := startServersOf(t, before, databaseURL, 1)
			r.newMachine(now).exercise(t)
		}
	})
	t.Run("old at replicas", func(t *testing.T) {
		t.Parallel()
		r := startServersOf(t, now, postgres.Server(t).URL(t), 3)
		r.newMachine(before).exercise(t)
	})
}

// exercise creates, reads, lists, changes and deletes objects of each kind while it watches the
// endpoints.
func (m *machine) exercise(t *testing.T) {
	t.Helper()
	agent := m.serve(endpointsYAML("http://web.demo", startUpstream(t)), 4)
	watch := m.watch(t)
	kinds := [][]string{{"backends", "http-response", "--status-code", "503"},
		{"backends", "tunnel-group", "--label", "app=api"}, {"backends", "static", "--address", "example.com:80"},
		{"endpoints", "--url", "http://cloud.demo"}, {"api-keys", "--scope", "read"},
		{"credentials", "--acl", "bind:http://*.demo"}, {"kubernetes-operators", "--feature", "bindings"}}
	for _, kind := range kinds {
		words := 1
		if kind[0] == "backends" {
			words = 2
		}
		command := func(verb string, more ...string) []string {
			all := append(append([]string{}, kind[:words]...), verb)
			return append(all, more...)
		}
		id := m.create(command("create", kind[words:]...)...)
		api := func(verb string, more ...string) string {
			return m.run(append([]string{"api"}, command(verb, more...)...)...)
		}
		api("update", id, "--description", "changed")
		for _, format := range []string{"table", "json", "yaml"} {
			for _, out := range []string{api("get", id, "-o", format), api("list", "-o", format)} {
				if !strings.Contains(out, id) || ofReplicas.MatchString(out) {
					t.Errorf("%s, %s: %s", kind[0], format, out)
				}
			}
		}
		if kind[0] == "endpoints" {
			wait.Until(t, "event of the endpoint", func() bool { return strings.Contains(watch.String(), id) })
		}
		api("delete", id)
		if out, code := m.try(append([]string{"api"}, command("get", id)...)...); code != 1 ||
			!strings.Contains(out, "ERR_FL_") {
			t.Errorf("%s after its deletion: exit code %d: %s", id, code, out)
		}
	}
	for _, list := range [][]string{{"tunnel-sessions", "list"}, {"tunnels", "list"}, {"events", "list"},
		{"identities", "list"}, {"endpoints", "list", "-o", "json"}} {
		out := m.run(append([]string{"api"}, list...)...)
		if ofReplicas.MatchString(out) {
			t.Errorf("%s: %s", list, out)
		}
	}
	var all []struct{ ID, Status string }
	if err := json.Unmarshal([]byte(m.run("api", "endpoints", "list", "-o", "json")), &all); err != nil ||
		len(all) != 3 {
		t.Errorf("endpoints: %v, %v", all, err)
	}
	if code := agent.terminate(); code != 0 {
		t.Errorf("the agent has ended with code %d", code)
	}
}

// watch starts `fairlead api endpoints list --watch`, and returns its output.
func (m *machine) watch(t *testing.T) *logbuffer.Buffer {
	t.Helper()
	p := startProgram(t, m.p.agent(), m.p.name+" watch", m.env(), "api", "endpoints", "list", "--watch")
	wait.Until(t, "watch to begin", func() bool { return strings.Contains(p.log.String(), httpURL) })
	return &p.log
}
