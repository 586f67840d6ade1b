// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// composeService is what is read of a service of docs/start/compose.yaml.
type composeService struct {
	Image       string
	Command     []string
	Environment map[string]string
	Volumes     []string
	HealthCheck struct{ Test []string }
}

// compose has the services of docs/start/compose.yaml. Its volume is a folder of the test.
type compose struct {
	t    *testing.T
	data string
	env  map[string]string // env has what stands in the file .env.
}

// service reads a service of the file, with the variables of env.
func (c *compose) service(name string) composeService {
	c.t.Helper()
	text, err := os.ReadFile("../../docs/start/compose.yaml")
	must.Succeed(c.t, err)
	expanded := os.Expand(string(text), func(variable string) string {
		variable, fallback, _ := strings.Cut(variable, ":-")
		if value := c.env[variable]; value != "" {
			return value
		}
		return fallback
	})
	var file struct{ Services map[string]composeService }
	must.Succeed(c.t, yaml.Unmarshal([]byte(expanded), &file))
	return file.Services[name]
}

// command prepares a command of a service's container: its image's program, with its variables and
// nothing else of this machine.
func (c *compose) command(s composeService, args ...string) *exec.Cmd {
	c.t.Helper()
	image, _, _ := strings.Cut(path.Base(s.Image), ":")
	place := strings.NewReplacer("/var/lib", filepath.Dir(c.data))
	for i := range args {
		args[i] = place.Replace(args[i])
	}
	cmd := exec.CommandContext(c.t.Context(), program(strings.TrimSuffix(image, "-agent")), args...)
	cmd.Env = []string{}
	for name, value := range s.Environment {
		cmd.Env = append(cmd.Env, name+"="+place.Replace(value))
	}
	return cmd
}

// start starts a command until the test ends, and returns its output, which a failed test prints.
func (c *compose) start(cmd *exec.Cmd) *logbuffer.Buffer {
	c.t.Helper()
	output := &logbuffer.Buffer{}
	cmd.Stdout, cmd.Stderr = output, output
	must.Succeed(c.t, cmd.Start())
	c.t.Cleanup(func() {
		_, _ = cmd.Process.Kill(), cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("%v: %s", cmd.Args, output)
		}
	})
	return output
}

// TestCompose_AgentConnectsToServer runs both commands of docs/start/compose.yaml, with their
// variables, the server's check and the steps of docs/start/compose.md, without containers: the
// network of the containers is a proxy that knows the name of the server.
func TestCompose_AgentConnectsToServer(t *testing.T) {
	t.Parallel()
	c := &compose{t: t, data: filepath.Join(t.TempDir(), "fairlead"), env: map[string]string{}}
	address, err := freeaddr.Find()
	must.Succeed(t, err)
	server := c.service("server")
	if len(server.Volumes) != 1 || !strings.HasSuffix(server.Volumes[0], ":/var/lib/fairlead") ||
		server.Environment["XDG_DATA_HOME"] != "/var/lib" { // where commands look for it, unless root runs them
		t.Fatalf("the server has the volumes %q and the variables %v", server.Volumes, server.Environment)
	}
	c.start(c.command(server, append(server.Command, "--addr="+address, "--metrics-addr=")...))
	check := server.HealthCheck.Test
	if len(check) < 2 || check[0] != "CMD" || check[1] != "/fairlead-server" {
		t.Fatalf("the server is checked by %q", check)
	}
	wait.Until(t, "the server is healthy", func() bool {
		return c.command(server, append(slices.Clone(check[2:]), "--connect="+address)...).Run() == nil
	})

	var fingerprint strings.Builder
	ca := c.command(server, "ca", "--data-dir", c.data)
	ca.Stderr = &fingerprint
	must.Succeed(t, ca.Run())
	token, err := c.command(server, "authtoken", "create", "--acl", "bind:http://*.demo", "--data-dir",
		c.data).Output()
	must.Succeed(t, err)
	c.env["FAIRLEAD_CA_SHA256"] = strings.TrimSpace(strings.TrimPrefix(fingerprint.String(), "ca-sha256 "))
	c.env["FAIRLEAD_AUTHTOKEN"] = strings.TrimSpace(string(token))
	agent := c.service("agent")
	run := c.command(agent, agent.Command...)
	run.Env = append(run.Env, "HTTPS_PROXY="+containerNetwork(t, map[string]string{"server:8443": address}))
	output := c.start(run)
	wait.Until(t, "the agent is online", func() bool {
		return strings.Contains(output.String(), "online") && strings.Contains(output.String(), "http://hello.demo")
	})
}

// containerNetwork runs a proxy that leads to the addresses of names, and returns its URL.
func containerNetwork(t *testing.T, names map[string]string) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := net.Dial("tcp", names[r.Host])
		if r.Method != http.MethodConnect || err != nil {
			http.Error(w, "no such name", http.StatusBadGateway)
			return
		}
		defer func() { _ = to.Close() }()
		w.WriteHeader(http.StatusOK)
		from, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = from.Close() }()
		go func() { _, _ = io.Copy(to, buffered) }()
		_, _ = io.Copy(from, to)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}
