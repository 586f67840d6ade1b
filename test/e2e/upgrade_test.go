// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	// oldChart is the chart as it was first installed by people, packaged.
	oldChart = "testdata/fairlead-operator-95e5f3f.tgz"
	// imageNext is the same program under another name, so that an upgrade replaces every pod.
	imageNext = "fairlead.test/fairlead-operator:next"
)

// TestUpgrade checks that an upgrade, a rollback and the upgrade once more keep every Service with
// its ClusterIP, every anchor and every target port, and that calls succeed. The arguments of the
// older charts are given to today's program. It runs alone, as it exchanges the CRDs, which every
// release of the cluster shares.
func TestUpgrade(t *testing.T) {
	c := Shared(t)
	if c.context != "" {
		t.Skip("the CRDs of a cluster that is not ours stay")
	}
	t.Run("from the first chart", func(t *testing.T) { upgrade(t, c, oldChart) })
	t.Run("from the previous chart", func(t *testing.T) { upgrade(t, c, previousChart(t)) })
}

// previousChart unpacks the chart as it was before the last commit that changed it, or skips where
// the checkout has no history.
func previousChart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script :=
		`set -eo pipefail; cd ../..; before=$(git rev-parse "$(git log -1 --format=%H -- charts/fairlead-operator)~1")
git archive "$before" charts/fairlead-operator | tar x -C "$0"; git log -1 --oneline "$before"`
	out, err := exec.CommandContext(t.Context(), "bash", "-c", script, dir).CombinedOutput()
	if err != nil {
		t.Skipf("a checkout without history has no previous commit; the first chart was tested: %v: %s", err, out)
	}
	t.Logf("the chart as of %s", out)
	return filepath.Join(dir, "charts", "fairlead-operator")
}

func upgrade(t *testing.T, c *Cluster, from string) {
	c.Kubectl(t, "delete", "crd", "--ignore-not-found", "agentendpoints.bindings.fairlead.dev",
		"boundendpoints.bindings.fairlead.dev", "cloudendpoints.bindings.fairlead.dev",
		"kubernetesoperators.bindings.fairlead.dev")
	s := c.StartService(t)
	ns := c.Namespace(t, "up")
	r := s.InstallChart(t, from, "--set", "crds.keep=false", "--set", "forwarder.drainTimeout=5s")
	t.Cleanup(func() { _, _ = c.Exec(t.Context(), "helm", "uninstall", r.Name, "--namespace", r.Namespace) })
	c.Load(t, imageNext+"="+binary(t, "fairlead-operator"))
	c.StartUpstream(t, "hello", "serve", "127.0.0.1:8411")
	s.Agent(t, "http", "8411", "http://web."+ns)
	s.Agent(t, "tcp", "8411", "tcp://web."+ns+":5432")
	s.Agent(t, "http", "8411", "http://api."+ns+":8080")
	pod := c.CurlPod(t, ns)
	check := func(what string) string {
		t.Helper()
		for _, url := range []string{"http://web." + ns, "http://web." + ns + ":5432", "http://api." + ns + ":8080"} {
			c.CurlUntil(t, 30*time.Second, pod, url, 200)
		}
		for _, host := range []string{"web.", "api."} {
			if r.Chart == chartPath {
				r.BoundEndpoint(t, host+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
			} else { // today's program has the older rights, and says Unknown of what it may not see
				r.BoundEndpoint(t, host+ns, v1alpha1.ConditionServicesReady, "True", v1alpha1.ReasonProjected)
			}
		}
		t.Logf("%s: %d objects, calls answered", what, strings.Count(r.identities(t, ns), "\n"))
		return r.identities(t, ns)
	}
	before := check("installed " + filepath.Base(from))
	step := func(what string, do func()) {
		t.Helper()
		start := time.Now()
		do()
		t.Logf("%s took %v", what, time.Since(start).Round(time.Millisecond))
		if after := check(what); after != before {
			t.Errorf("after %s:\n%s\nbefore:\n%s", what, after, before)
		}
	}
	_, tag, _ := strings.Cut(imageNext, ":")
	forward := func() {
		r.Chart = chartPath
		r.Upgrade(t, "--set", "crds.keep=false", "--set", "forwarder.drainTimeout=5s", "--set", "image.tag="+tag)
	}
	step("helm upgrade", forward)
	step("helm rollback", func() {
		r.Chart = from
		c.Helm(t, "rollback", r.Name, "1", "--namespace", r.Namespace, "--wait", "--timeout", "120s")
	})
	step("helm upgrade, again", forward)
	step("an upgrade with a selector that cannot be", func() {
		upgrade := r.args("upgrade", "--set", "crds.keep=false", "--set", "image.tag="+tag, "--set-string",
			"binding.endpointSelector=ep.colour == 'red'", "--timeout", "20s")
		if out, err := c.Exec(t.Context(), append([]string{"helm"}, upgrade...)...); err == nil {
			t.Errorf("helm says that all is well: %s", out)
		}
	})
}

// identities returns the UIDs of the anchors and of the BoundEndpoints with their target ports, and
// UID and ClusterIP of every Service, one a line.
func (r *Release) identities(t *testing.T, target string) string {
	t.Helper()
	var lines strings.Builder
	get := func(namespace, name string, o client.Object) {
		t.Helper()
		must.Succeed(t, r.c.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o))
		fmt.Fprintf(&lines, "%T %s %s\n", o, name, o.GetUID())
	}
	get("", r.Namespace+"."+r.Name+"-anchor", &rbacv1.ClusterRole{})
	get(r.Namespace, r.Name+"-anchor", &rbacv1.Role{})
	get(r.Namespace, r.Name, &v1alpha1.KubernetesOperator{})
	for _, name := range []string{"api." + target, "web." + target} {
		bep := &v1alpha1.BoundEndpoint{}
		get(r.Namespace, name, bep)
		fmt.Fprintf(&lines, "  %+v\n", bep.Spec.Ports)
		upstream, service := r.Services(t, bep)
		for _, svc := range []*corev1.Service{upstream, service} {
			fmt.Fprintf(&lines, "  %s %s %s %s\n", svc.Name, svc.UID, svc.Spec.ClusterIP, svc.Spec.ExternalName)
		}
	}
	return lines.String()
}
