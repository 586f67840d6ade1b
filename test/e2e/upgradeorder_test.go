// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	// variableCompat names a folder with the programs and charts of the version before this one.
	// The test that upgrades from it is skipped without it.
	variableCompat = "FAIRLEAD_COMPAT_BIN"
	// imageBefore is the operator of that version.
	imageBefore = "fairlead.test/fairlead-operator:before"
)

// upgradeRig is a whole Fairlead of the version before: a server, an operator, two agents for
// each of two URLs, and a pod that calls them.
type upgradeRig struct {
	c       *Cluster
	before  string // folder of the version before
	service *Service
	release *Release
	ns      string
	port    string // of the upstream
	urls    []string
	agents  []*Process
	calls   *load
	kept    []string // paths of resources that must stay
}

// TestUpgrade_InEveryOrder upgrades server, operator and agents from the version before in every
// order, and rolls back in the reverse one, while a pod calls: no call fails, and no ClusterIP, no
// BoundEndpoint and no row of the account is another. It runs alone, as TestUpgrade does.
func TestUpgrade_InEveryOrder(t *testing.T) {
	before := os.Getenv(variableCompat)
	if before == "" {
		t.Skipf("%s is not set; make upgrade builds the version before this one, and sets it", variableCompat)
	}
	c := Shared(t)
	if c.context != "" {
		t.Skip("the CRDs of a cluster that is not ours stay")
	}
	c.Load(t, imageBefore+"="+filepath.Join(before, "fairlead-operator"))
	for _, order := range [][]string{
		{"server", "operator", "agents"}, {"server", "agents", "operator"}, {"operator", "server", "agents"},
		{"operator", "agents", "server"}, {"agents", "server", "operator"}, {"agents", "operator", "server"},
	} {
		t.Run(strings.Join(order, "-"), func(t *testing.T) { upgradeInOrder(t, c, before, order) })
	}
}

func upgradeInOrder(t *testing.T, c *Cluster, before string, order []string) {
	i := install(t, c, before)
	identities := i.release.identities(t, i.ns)
	i.calls = c.startLoad(t, c.NettoolPod(t, i.ns), append([]string{"-rate", "50", "-keep"}, i.urls...)...)
	fresh := c.startLoad(t, c.NettoolPod(t, i.ns), append([]string{"-rate", "50"}, i.urls...)...)
	step := func(part, programs string) {
		t.Helper()
		began := time.Now()
		map[string]func(*testing.T, string){"server": i.changeServer, "operator": i.changeOperator,
			"agents": i.changeAgents}[part](t, programs)
		i.check(t, part, identities)
		t.Logf("%s of %s: %v", part, filepath.Base(programs), time.Since(began).Round(100*time.Millisecond))
	}
	for _, part := range order {
		step(part, "")
	}
	slices.Reverse(order)
	for _, part := range order {
		step(part, before)
	}
	for name, l := range map[string]*load{"kept connections": i.calls, "a connection per request": fresh} {
		sum := l.stop(t)
		t.Logf("%s: %+v", name, sum)
		if sum.Failed > 0 {
			t.Errorf("%s: %d calls failed: %v", name, sum.Failed, reasons(l.samples()))
		}
	}
}

// install starts and installs everything of the version before.
func install(t *testing.T, c *Cluster, before string) *upgradeRig {
	t.Helper()
	c.Kubectl(t, "delete", "crd", "--ignore-not-found", "agentendpoints.bindings.fairlead.dev",
		"boundendpoints.bindings.fairlead.dev", "cloudendpoints.bindings.fairlead.dev",
		"endpointaccesses.bindings.fairlead.dev", "endpointtrusts.bindings.fairlead.dev",
		"kubernetesoperators.bindings.fairlead.dev")
	i := &upgradeRig{c: c, before: before, ns: c.Namespace(t, "order"), port: freePort()}
	i.service = c.startServiceOf(t, before, NodeIP)
	i.release = i.service.InstallChart(t, filepath.Join(before, "charts", "fairlead-operator"), i.values("before")...)
	t.Cleanup(func() {
		_, _ = c.Exec(t.Context(), "helm", "uninstall", i.release.Name, "--namespace", i.release.Namespace)
	})
	c.StartUpstream(t, "web", "serve", "127.0.0.1:"+i.port)
	for _, host := range []string{"api.", "web."} {
		url := "http://" + host + i.ns
		i.urls = append(i.urls, url)
		for _, name := range []string{"first", "second"} {
			i.agents = append(i.agents, i.startAgent(t, url, name))
		}
	}
	for range 3 {
		id := i.service.createResource(t, "/api_keys", map[string]any{"description": "kept"})
		i.kept = append(i.kept, "/api_keys/"+id)
	}
	i.kept = append(i.kept, "/backends/tunnel_group/"+i.service.createResource(t, "/backends/tunnel_group",
		map[string]any{"labels": map[string]string{"app": "kept"}}))
	for _, host := range []string{"api.", "web."} {
		i.release.BoundEndpoint(t, host+i.ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	}
	c.waitAnswers(t, c.NettoolPod(t, i.ns), i.urls...)
	return i
}

func (i *upgradeRig) values(tag string) []string {
	return []string{"--set", "crds.keep=false", "--set", "forwarder.drainTimeout=5s", "--set", "image.tag=" + tag}
}

func (i *upgradeRig) startAgent(t *testing.T, url, name string) *Process {
	t.Helper()
	return i.service.Agent(t, "http", i.port, url, "--pooling-enabled", "--name", name)
}

// changeServer restarts the server with the programs of a folder ("" is this version's).
func (i *upgradeRig) changeServer(t *testing.T, programs string) {
	t.Helper()
	must.Succeed(t, i.service.Process.Signal(syscall.SIGTERM))
	<-i.service.Process.Ended()
	agents := i.service.programs
	i.service.programs = programs
	i.service.Start(t)
	i.service.programs = agents
}

// changeAgents replaces the agents one after the other.
func (i *upgradeRig) changeAgents(t *testing.T, programs string) {
	t.Helper()
	i.service.programs = programs
	for n, old := range i.agents {
		url, name := i.urls[n/2], fmt.Sprintf("%s-%d", filepath.Base(programs), n)
		next := i.startAgent(t, url, name)
		old.Stop()
		i.agents[n] = next
	}
}

// changeOperator upgrades the release, or rolls it back.
func (i *upgradeRig) changeOperator(t *testing.T, programs string) {
	t.Helper()
	if programs == "" {
		i.release.Chart = chartPath
		_, tag, _ := strings.Cut(imageOperator, ":")
		i.release.Upgrade(t, i.values(tag)...)
		return
	}
	i.c.Helm(t, "rollback", i.release.Name, "1", "--namespace", i.release.Namespace, "--wait", "--timeout", "120s")
}

// check waits until every endpoint is projected, and holds what must not change.
func (i *upgradeRig) check(t *testing.T, after, identities string) {
	t.Helper()
	for _, host := range []string{"api.", "web."} {
		i.release.BoundEndpoint(t, host+i.ns, v1alpha1.ConditionServicesReady, "True", v1alpha1.ReasonProjected)
	}
	if got := i.release.identities(t, i.ns); got != identities {
		t.Errorf("after %s:\n%s\nbefore:\n%s", after, got, identities)
	}
	for _, path := range i.kept {
		var row struct{ ID string }
		if i.service.API(t, path, &row); !strings.HasSuffix(path, "/"+row.ID) || row.ID == "" {
			t.Errorf("after %s: %s is %q", after, path, row.ID)
		}
	}
}
