// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// compatVariable names a directory with the three programs of the version before this one. The
// tests that run them beside this version's are skipped without it.
const compatVariable = "FAIRLEAD_COMPAT_BIN"

// programs are the programs of one version.
type programs struct{ name, dir string }

func (p programs) server() string   { return filepath.Join(p.dir, "fairlead-server") }
func (p programs) operator() string { return filepath.Join(p.dir, "fairlead-operator") }
func (p programs) agent() string    { return filepath.Join(p.dir, "fairlead") }

// versions returns the programs of the version before and of this one.
func versions(t *testing.T) (before, now programs) {
	t.Helper()
	dir := os.Getenv(compatVariable)
	if dir == "" {
		t.Skipf("%s is not set; make compat builds the version before this one, and sets it", compatVariable)
	}
	before, now = programs{name: "old", dir: dir}, built
	for _, path := range []string{before.server(), before.operator(), before.agent()} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s: %v", compatVariable, err)
		}
	}
	return before, now
}

// setProgram makes all servers of the rig run a fairlead-server from their next start on.
func (r *rig) setProgram(p programs) {
	for _, s := range r.replicas {
		s.program = p.server()
	}
}

// startServersOf starts servers of one version.
func startServersOf(t *testing.T, p programs, databaseURL string, servers int) *rig {
	t.Helper()
	r := newRig(t, databaseURL, servers)
	r.setProgram(p)
	r.start()
	return r
}

// machine is a user's machine: a HOME in which `fairlead config add-authtoken` has stored server,
// fingerprint and authtoken of a rig.
type machine struct {
	r    *rig
	home string
	p    programs
}

func (r *rig) newMachine(p programs) *machine {
	r.t.Helper()
	m := &machine{r: r, home: r.t.TempDir(), p: p}
	m.run("config", "add-authtoken", r.authtoken, "--server", "https://"+r.balancer.addrs[frontService],
		"--ca-sha256", r.fingerprint)
	return m
}

func (m *machine) env() []string {
	return []string{"HOME=" + m.home, "PATH=" + os.Getenv("PATH"), "FAIRLEAD_API_KEY=" + m.r.apiKey}
}

// try runs a command of the CLI and returns its output, both streams together, and its exit code.
func (m *machine) try(args ...string) (string, int) {
	m.r.t.Helper()
	cmd := exec.Command(m.p.agent(), args...)
	cmd.Env = m.env()
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		m.r.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// run is try for a command that succeeds.
func (m *machine) run(args ...string) string {
	m.r.t.Helper()
	out, code := m.try(args...)
	if code != 0 {
		m.r.t.Fatalf("%s fairlead %s: exit code %d: %s", m.p.name, strings.Join(args, " "), code, out)
	}
	return out
}

// create runs a create command and returns the new object's id.
func (m *machine) create(args ...string) string {
	m.r.t.Helper()
	var made struct{ ID string }
	out := m.run(append(append([]string{"api"}, args...), "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.ID == "" {
		m.r.t.Fatalf("%s: %v: %s", args, err, out)
	}
	return made.ID
}

// agentProcess is a running `fairlead start --all`.
type agentProcess struct {
	*process

	m *machine
}

// agentEvent is a line that an agent prints, in part.
type agentEvent struct {
	Event      string
	URL        string
	Labels     string
	EndpointID string `json:"endpoint_id"`
	SessionID  string `json:"session_id"`
	Cause      string
}

// names names the endpoint or the tunnel of the event.
func (e agentEvent) name() string { return e.URL + e.Labels }

// serve starts an agent with endpoints of the config file, and waits until all are online.
func (m *machine) serve(endpoints string, count int) *agentProcess {
	m.r.t.Helper()
	path := filepath.Join(m.home, ".config", "fairlead", "config.yaml")
	settings, err := os.ReadFile(path)
	must.Succeed(m.r.t, err)
	if before, _, found := bytes.Cut(settings, []byte("endpoints:")); found {
		settings = before
	}
	must.Succeed(m.r.t, os.WriteFile(path, append(settings, endpoints...), 0o600))
	a := &agentProcess{m: m, process: startProgram(m.r.t, m.p.agent(), m.p.name+" agent", m.env(), "start", "--all",
		"--log-format", "json", "--log-level", "debug")}
	wait.Until(m.r.t, "endpoints of the agent to be online", func() bool {
		if !a.isRunning() {
			m.r.t.Fatalf("the agent has ended with code %d", a.exitCode())
		}
		return len(a.ids()) == count
	})
	return a
}

// events returns what the agent has reported.
func (a *agentProcess) events(kinds ...string) (events []agentEvent) {
	for line := range strings.Lines(a.log.String()) {
		var e agentEvent
		if json.Unmarshal([]byte(line), &e) == nil && slices.Contains(kinds, e.Event) {
			events = append(events, e)
		}
	}
	return events
}

// ids returns the ids of the endpoints and tunnels that are or were online, the last of each, by
// URL or labels.
func (a *agentProcess) ids() map[string]string {
	ids := map[string]string{}
	for _, e := range a.events("online") {
		ids[e.name()] = e.EndpointID
	}
	return ids
}

// endpointsYAML returns the entries of the config file for the endpoints of a chain, and a labelled
// tunnel.
func endpointsYAML(cluster, upstream string) string {
	return fmt.Sprintf(`endpoints:
- {name: web, url: %q, binding: kubernetes, upstream: %[2]q}
- {name: public, url: %[3]q, binding: public, upstream: %[2]q}
- {name: safe, url: %[4]q, binding: public, upstream: %[2]q}
tunnels:
- {name: pool, labels: {app: api}, upstream: %[2]q}
`, cluster, upstream, httpURL, httpsURL)
}
