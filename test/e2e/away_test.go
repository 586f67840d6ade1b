// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestManager_AbsenceKeepsTraffic takes the managers away, starts one while the service is down,
// and deletes its API key: traffic flows whenever the service is there, nothing is removed, and the
// manager catches up.
func TestManager_AbsenceKeepsTraffic(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	direct := c.StartService(t)
	web, echo := c.startUpstreams(t)
	key := direct.operatorKey(t)
	own := *direct
	own.APIKey = key.Secret
	g := newRig(t, &own, web, echo)
	pod := c.NettoolPod(t, g.ns)
	c.waitAnswers(t, pod, g.web, g.echo)
	session := openSession(t, c, direct)
	before, err := g.objects(t.Context())
	must.Succeed(t, err)
	checkUnchanged := func(when string) {
		t.Helper()
		if err := g.checkUnchanged(t.Context(), before); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}

	long := c.holdConn(t, g.ns, g.echo, 0)
	long.waitOpen(t)
	g.scaleManager(t, 0)
	if _, err := bindPlain(t.Context(), session, "http://while-none."+g.ns); err != nil {
		t.Fatal(err)
	}
	c.waitAnswers(t, pod, g.web, g.echo)
	checkUnchanged("without a manager")

	must.Succeed(t, g.proxy.set(gone, pass))
	g.proxy.cut(apiConn)
	g.scaleManager(t, 1)
	g.waitCondition(t, v1alpha1.ConditionAPIReachable, "False", v1alpha1.ReasonUnreachable)
	c.waitAnswers(t, pod, g.web, g.echo)
	checkUnchanged("with a manager that started while the service was down")
	must.Succeed(t, g.proxy.set(pass, pass))
	g.release.BoundEndpoint(t, "while-none."+g.ns, v1alpha1.ConditionServicesReady, "True", v1alpha1.ReasonProjected)
	g.waitCondition(t, v1alpha1.ConditionAPIReachable, "True", v1alpha1.ReasonOnline)

	direct.deleteKey(t, key)
	g.waitCondition(t, v1alpha1.ConditionRegistered, "False", v1alpha1.ReasonUnauthorized)
	c.waitAnswers(t, pod, g.web, g.echo)
	checkUnchanged("with a key that was deleted")
	if _, err := long.echoedLines(t.Context()); err != nil {
		t.Errorf("through all of this: %v", err)
	}
	if err := g.checkNotRestarted(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAPIServer_AbsenceKeepsTraffic stops the API server: running forwarders serve, and a manager
// that starts then catches up. It runs alone in the cluster, as nothing else works meanwhile.
func TestAPIServer_AbsenceKeepsTraffic(t *testing.T) {
	c := Shared(t)
	if c.context != "" {
		t.Skip("stops the API server, which only a cluster of the suite's own allows")
	}
	direct := c.StartService(t)
	web, echo := c.startUpstreams(t)
	g := newRig(t, direct, web, echo)
	address := func(hostname string) string {
		upstream, _ := g.release.Services(t, g.release.BoundEndpoint(t, hostname, v1alpha1.ConditionReady, "True",
			v1alpha1.ReasonReady))
		return upstream.Spec.ClusterIP
	}
	session := openSession(t, c, direct)
	const away = 20 * time.Second
	// Its own pod with its own end: kubectl needs the API server.
	calls := c.createPod(t, Pod{Namespace: g.ns, Image: ImageNettool,
		Args: []string{"load", "-rate", "20", "-for", (away + 20*time.Second).String(),
			"http://" + address("web."+g.ns), "tcp://" + address("echo."+g.sliced) + ":7000"}})
	long := c.holdConn(t, g.ns, g.echo, 0)
	long.waitOpen(t)
	c.waitLog(t, calls, "loading")
	managers := func() []string {
		return c.processes(t, "fairlead-operator", " manager ", "--namespace="+g.release.Namespace)
	}
	manager := managers()
	if len(manager) != 1 {
		t.Fatalf("processes of the manager: %v", manager)
	}
	resume := c.stopAPIServer(t)
	stopped := time.Now()
	c.signal(t, "KILL", manager[0]) // the kubelet starts it again, without the API server
	if _, err := bindPlain(t.Context(), session, "http://meanwhile."+g.ns); err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, away, "the manager's process again", func(context.Context) error {
		if now := managers(); len(now) != 1 || now[0] == manager[0] {
			return fmt.Errorf("processes %v", now)
		}
		return nil
	})
	must.Succeed(t, pause(t.Context(), time.Until(stopped.Add(away))))
	resume()
	back := time.Now()
	g.release.BoundEndpoint(t, "meanwhile."+g.ns, v1alpha1.ConditionServicesReady, "True", v1alpha1.ReasonProjected)
	t.Logf("the API server was away for %v; the manager that started meanwhile projected what it had missed %v later",
		away, time.Since(back).Round(100*time.Millisecond))
	g.checkForwardersNotRestarted(t)
	if out := c.waitLog(t, calls, `"failed":`); !strings.Contains(out, `"failed":0`) {
		t.Errorf("calls failed while the API server was away: %s", out)
	}
	if _, err := long.echoedLines(t.Context()); err != nil {
		t.Error(err)
	}
}

// stopAPIServer freezes the process until resume is called, or the test ends.
func (c *Cluster) stopAPIServer(t *testing.T) (resume func()) {
	t.Helper()
	pids := c.processes(t, "kube-apiserver")
	if len(pids) != 1 {
		t.Fatalf("processes of the API server: %v", pids)
	}
	c.signal(t, "STOP", pids[0])
	resume = sync.OnceFunc(func() {
		if _, err := c.Exec(context.WithoutCancel(t.Context()), "sh", "-c", "kill -CONT "+pids[0]); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(resume)
	return resume
}

// checkForwardersNotRestarted fails the test if a forwarder was restarted.
func (g *rig) checkForwardersNotRestarted(t *testing.T) {
	t.Helper()
	pods, err := g.release.pods(t.Context(), "fairlead-forwarder")
	must.Succeed(t, err)
	for _, p := range pods {
		if n := p.Status.ContainerStatuses[0].RestartCount; n > 0 {
			t.Errorf("forwarder %s was started again %d times", p.Name, n)
		}
	}
}

// waitLog waits until a pod's log contains the text, and returns the log.
func (c *Cluster) waitLog(t *testing.T, pod *corev1.Pod, text string) (out string) {
	t.Helper()
	c.Eventually(t, podTimeout, fmt.Sprintf("%q of %s", text, pod.Name), func(ctx context.Context) (err error) {
		out, err = c.Exec(ctx, "kubectl", "--namespace", pod.Namespace, "logs", pod.Name)
		if err == nil && !strings.Contains(out, text) {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	return out
}

// waitCondition waits until the KubernetesOperator has the condition.
func (g *rig) waitCondition(t *testing.T, condition, status, reason string) {
	t.Helper()
	op := &v1alpha1.KubernetesOperator{}
	g.c.Eventually(t, 90*time.Second, fmt.Sprintf("%s=%s (%s)", condition, status, reason),
		func(ctx context.Context) error {
			if err := g.c.Client.Get(ctx, client.ObjectKey{Namespace: g.release.Namespace, Name: g.release.Name},
				op); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(op.Status.Conditions, condition); c == nil || string(c.Status) != status ||
				c.Reason != reason {
				return fmt.Errorf("conditions are %+v", op.Status.Conditions)
			}
			return nil
		})
}

// scaleManager changes the number of managers and waits for it.
func (g *rig) scaleManager(t *testing.T, replicas int) {
	t.Helper()
	deployment := "deployment/" + g.release.Name + "-manager"
	g.c.Kubectl(t, "--namespace", g.release.Namespace, "scale", deployment, fmt.Sprintf("--replicas=%d", replicas))
	g.c.Eventually(t, podTimeout, fmt.Sprintf("%d managers", replicas), func(ctx context.Context) error {
		pods, err := g.release.pods(ctx, "fairlead-manager")
		if err == nil && len(pods) != replicas {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
}

// apiKey is a key as fairlead-server prints it.
type apiKey struct{ ID, Secret string }

// operatorKey makes an API key for one operator.
func (s *Service) operatorKey(t *testing.T) apiKey {
	t.Helper()
	out, err := s.c.Exec(t.Context(), binary(t, "fairlead-server"), "api-key", "create", "--scope", "operator", "-o",
		"json", "--data-dir", filepath.Join(s.dir, "data"))
	var key apiKey
	if err == nil {
		err = json.Unmarshal([]byte(out), &key)
	}
	must.Succeed(t, err)
	return key
}

// deleteKey deletes it for good.
func (s *Service) deleteKey(t *testing.T, key apiKey) {
	t.Helper()
	if out, err := s.c.Exec(t.Context(), binary(t, "fairlead-server"), "api-key", "delete", key.ID, "--data-dir",
		filepath.Join(s.dir, "data")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// processes are the numbers of the node's processes whose command lines contain all of these words.
func (c *Cluster) processes(t *testing.T, words ...string) (pids []string) {
	t.Helper()
	out := c.mustRun(t, "sh", "-c",
		`for d in /proc/[0-9]*; do echo "${d#/proc/} $(tr '\0' ' ' < $d/cmdline)"; done 2>/dev/null`)
	for line := range strings.Lines(out) {
		pid, command, _ := strings.Cut(line, " ")
		program, _, _ := strings.Cut(command, " ")
		if path.Base(strings.TrimSpace(program)) == words[0] && !slices.ContainsFunc(words[1:], func(w string) bool {
			return !strings.Contains(command, w)
		}) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// signal sends one of the node's processes a signal.
func (c *Cluster) signal(t *testing.T, name, pid string) {
	t.Helper()
	c.mustRun(t, "sh", "-c", "kill -"+name+" "+pid)
}
