// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// airgapped is what the bundle of `make airgap` installs: a server and an operator, in a namespace.
type airgapped struct {
	c         *Cluster
	bundle    string // the unpacked folder
	version   string
	namespace string
	serverURL string
	caFile    string
}

// TestAirgap_InstallsWithoutNetwork installs server and operator from the bundle by its script, in
// the node, which has no route to anywhere; an agent of the bundle's image then makes an endpoint,
// and a pod calls it.
func TestAirgap_InstallsWithoutNetwork(t *testing.T) {
	c := Shared(t)
	if c.context != "" {
		t.Skip("the script loads images into the container runtime of the machine that it runs on")
	}
	c.checkNoRoute(t)
	a := &airgapped{c: c, namespace: c.Namespace(t, "airgap"), caFile: filepath.Join(t.TempDir(), "ca.crt")}
	a.unpack(t)
	a.serverURL = "https://fairlead-server." + a.namespace + ".svc:8443"
	a.install(t, "images")

	c.volume(t, a.namespace, "fairlead-server-data")
	a.install(t, "server", "--set-string", "persistence.storageClass=-", "--set", "resources.requests.cpu=10m")
	apiKey, authtoken, forwarderToken := a.credentials(t)
	product.install.Lock() // the CRDs
	a.install(t, "operator", "--set", "api.url="+a.serverURL, "--set-file", "api.caBundle="+a.caFile,
		"--set", "credentials.apiKey="+apiKey, "--set", "credentials.authtoken="+forwarderToken)
	product.install.Unlock()
	if out := c.Helm(t, "test", "fairlead-operator", "--namespace", a.namespace, "--timeout", "90s"); !regexp.
		MustCompile(`Phase: +Succeeded`).MatchString(out) {
		t.Errorf("helm test says %s", out)
	}

	callers := c.Namespace(t, "calls")
	pod := c.CurlPod(t, callers)
	a.startAgent(t, "http://hello."+callers, authtoken)
	if body := c.CurlUntil(t, time.Minute, pod, "http://hello."+callers, 200); !strings.Contains(body, "hello from") {
		t.Errorf("the answer is %q", body)
	}
}

// checkNoRoute checks that the node has no default route: otherwise the test proves nothing.
func (c *Cluster) checkNoRoute(t *testing.T) {
	t.Helper()
	routes, err := c.Exec(t.Context(), "cat", "/proc/net/route")
	must.Succeed(t, err)
	for line := range strings.Lines(routes) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "00000000" {
			t.Fatalf("the node has a default route:\n%s", routes)
		}
	}
}

// unpack unpacks the bundle that `make airgap` wrote.
func (a *airgapped) unpack(t *testing.T) {
	t.Helper()
	found, err := filepath.Glob("../../dist/fairlead_*_airgap_linux_" + runtime.GOARCH + ".tar.gz")
	if err != nil || len(found) != 1 {
		t.Fatalf("%d bundles in dist (%q, %v), want one: run `make airgap`", len(found), found, err)
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", found[0], "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	name := strings.TrimSuffix(filepath.Base(found[0]), ".tar.gz")
	a.bundle, a.version = filepath.Join(dir, name), strings.Split(name, "_")[1]
}

// install runs the bundle's script in the node.
func (a *airgapped) install(t *testing.T, task string, more ...string) {
	t.Helper()
	args := []string{filepath.Join(a.bundle, "install.sh"), task}
	if task != "images" {
		args = append(append(args, "--", "--namespace", a.namespace, "--wait", "--timeout", "120s"), more...)
	}
	out := a.c.mustRun(t, args...)
	t.Logf("install.sh %s:\n%s", task, out)
}

// credentials reads the server's authority and its first credentials, as its notes say, and makes an
// authtoken of forwarders.
func (a *airgapped) credentials(t *testing.T) (apiKey, authtoken, forwarderToken string) {
	t.Helper()
	exec := func(command ...string) string {
		return a.c.Kubectl(t, append([]string{"--namespace", a.namespace, "exec", "deployment/fairlead-server", "--",
			"/fairlead-server"}, command...)...)
	}
	must.Succeed(t, os.WriteFile(a.caFile, []byte(exec("ca")), 0o600))
	secrets := exec("bootstrap", "--remove")
	return regexp.MustCompile(`flk_[\w-]+`).FindString(secrets), regexp.MustCompile(`flt_[\w-]+`).FindString(secrets),
		strings.TrimSpace(exec("authtoken", "create", "--connect", "*"))
}

// startAgent runs the bundle's agent in a pod, for an upstream in the node.
func (a *airgapped) startAgent(t *testing.T, url, authtoken string) {
	t.Helper()
	port := freePort()
	a.c.StartUpstream(t, "upstream", "serve", NodeIP+":"+port)
	a.c.Kubectl(t, "--namespace", a.namespace, "create", "configmap", "ca", "--from-file=ca.crt="+a.caFile)
	a.c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: %s}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: agent
    image: ghcr.io/fairlead-dev/fairlead-agent:%s
    imagePullPolicy: Never
    args: [http, "%s:%s", --url, "%s", --binding, kubernetes]
    env:
    - {name: FAIRLEAD_SERVER_URL, value: "%s"}
    - {name: FAIRLEAD_AUTHTOKEN, value: "%s"}
    - {name: FAIRLEAD_CA_FILE, value: /etc/fairlead/ca.crt}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: ca, mountPath: /etc/fairlead}]
  volumes: [{name: ca, configMap: {name: ca}}]
`, a.namespace, a.version, NodeIP, port, url, a.serverURL, authtoken))
}
