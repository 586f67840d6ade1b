// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// drainTimeout of the forwarders in these tests: short, so that its end is seen.
const drainTimeout = 20 * time.Second

// oldPodTimeout is how long an old forwarder may take: with many endpoints Kubernetes is busy with
// EndpointSlices for that long.
const oldPodTimeout = forwarder.DeregistrationTimeout + drainTimeout + time.Minute

// traffic is an installation with ten endpoints, and a pod that calls them. Half of the endpoints are
// in a namespace with projection by EndpointSlices; two are sealed, and a tcp endpoint beside them.
type traffic struct {
	c          *Cluster
	service    *Service
	release    *Release
	values     []string // flags of helm for the release
	ns, sliced string
	pod        *corev1.Pod
	urls       []string
	agents     []*Process
	loads      map[string]*load
}

func newTraffic(t *testing.T, serverFlags ...string) *traffic {
	t.Helper()
	c := Shared(t)
	f := &traffic{c: c, service: c.StartService(t, serverFlags...), ns: c.Namespace(t, "calls"),
		sliced: c.ProjectedNamespace(t, "calls", v1alpha1.ProjectionEndpointSlice)}
	owner := newSealOwner(t, f.service)
	f.values = []string{"--set", "forwarder.drainTimeout=" + drainTimeout.String(),
		"--set", "binding.sealAccount=" + owner.account, "--set-file", "binding.sealAuthority=" + owner.authorities}
	f.release = f.service.Install(t, append([]string{"--set", "manager.resources.requests.cpu=10m",
		"--set", "forwarder.resources.requests.cpu=10m"}, f.values...)...)
	owner.requireSeal(t, f.ns, "web-0", "vault")
	owner.requireSeal(t, f.sliced, "web-1")
	f.pod = c.NettoolPod(t, f.ns)
	web, echo := c.startUpstreams(t)
	for i := range 10 {
		url := fmt.Sprintf("http://web-%d.%s", i, []string{f.ns, f.sliced}[i%2])
		var more []string
		if i < 2 {
			more = []string{"--sealed", owner.agent(t, url)}
		}
		f.agents = append(f.agents, f.service.Agent(t, "http", web, url, more...))
		f.urls = append(f.urls, url)
	}
	plain, sealed := "tcp://echo."+f.ns+":7000", "tcp://vault."+f.ns+":7000"
	f.agents = append(f.agents, f.service.Agent(t, "tcp", echo, plain),
		f.service.Agent(t, "tcp", echo, sealed, "--sealed", owner.agent(t, sealed)))
	for _, name := range []string{"echo.", "vault."} {
		f.release.BoundEndpoint(t, name+f.ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	}
	f.waitAnswers(t)
	return f
}

// waitAnswers waits until every endpoint answers.
func (f *traffic) waitAnswers(t *testing.T) {
	t.Helper()
	f.c.waitAnswers(t, f.pod, append([]string{"tcp://echo." + f.ns + ":7000", "tcp://vault." + f.ns + ":7000"},
		f.urls...)...)
}

// startLoads lets the pod call: half over connections that are kept, half over one for each
// request.
func (f *traffic) startLoads(t *testing.T) {
	t.Helper()
	args := append([]string{"-rate", strconv.Itoa(numberOf(t, variableCalls, 50) / 2)}, f.urls...)
	f.loads = map[string]*load{
		"kept connections":         f.c.startLoad(t, f.pod, append([]string{"-keep"}, args...)...),
		"a connection per request": f.c.startLoad(t, f.pod, args...),
	}
}

// stopLoads stops the calls and returns how many were made and how many failed.
func (f *traffic) stopLoads(t *testing.T) (asked, failed int) {
	t.Helper()
	for name, l := range f.loads {
		sum := l.stop(t)
		t.Logf("%s: %+v", name, sum)
		asked, failed = asked+sum.OK+sum.Failed, failed+sum.Failed
	}
	return asked, failed
}

// failures are the calls that have failed so far.
func (f *traffic) failures() (all []sample) {
	for _, l := range f.loads {
		all = append(all, l.samples()...)
	}
	return all
}

// checkNoFailures fails the test when a call failed since the stage began.
func (f *traffic) checkNoFailures(t *testing.T, stage string) {
	t.Helper()
	for i, s := range f.failures() {
		if i == 10 {
			break
		}
		t.Errorf("%s: a call failed at %s after %v: %s: %s", stage, s.at.Format(time.StampMilli), s.took, s.url,
			s.reason)
	}
}

// holdConn opens a long connection to the endpoint echo, or vault, which is sealed.
func (f *traffic) holdConn(t *testing.T, endpoint string, forTime time.Duration) *heldConn {
	t.Helper()
	h := f.c.holdConn(t, f.ns, "tcp://"+endpoint+"."+f.ns+":7000", forTime)
	h.waitOpen(t)
	return h
}

// waitReset waits for the end of a long connection and returns when it was. It must have been a
// reset, for an abort must not look like an end.
func (f *traffic) waitReset(t *testing.T, h *heldConn) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), oldPodTimeout)
	defer cancel()
	at, last, err := h.waitEnd(ctx)
	must.Succeed(t, err)
	if !strings.Contains(last, "reset") {
		t.Errorf("the long connection ended with %q, want a reset", last)
	}
	return at
}

// TestRollout_LosesNoRequest restarts forwarders, the release and managers: no request is lost, and
// a long connection lives to the end of the drain. It runs alone: a call that waits too long is a
// failure.
func TestRollout_LosesNoRequest(t *testing.T) {
	rollouts := numberOf(t, variableRollouts, 2)
	f := newTraffic(t)
	further := numberOf(t, variableEndpoints, len(f.urls)) - len(f.urls)
	many := further > 100
	if further > 0 {
		f.urls = append(f.urls, f.bindFurther(t, further, numberOf(t, variableChurn, 0))...)
		f.waitAnswers(t)
	}
	deployment := f.release.Name + "-"
	whole, long := f.holdConn(t, "echo", drainTimeout), f.holdConn(t, "vault", 0)
	f.startLoads(t)

	began := time.Now()
	for range rollouts {
		f.restartDeployment(t, deployment+"forwarder")
		if many {
			// Kubernetes writes 20 EndpointSlices a second: rollouts on top of each other would
			// measure its queue
			f.waitOldPodsGone(t)
		}
		f.checkNoFailures(t, "rolling the forwarders")
	}
	t.Logf("%d rollouts of 2 forwarders: %v", rollouts, time.Since(began).Round(time.Second))
	if _, last, err := whole.waitEnd(t.Context()); err != nil || !strings.HasPrefix(last, "whole") {
		t.Errorf("a connection that ended before the drain did: %q, %v", last, err)
	}
	if lived := f.waitReset(t, long).Sub(began); lived < drainTimeout-time.Second { // Kubernetes tells whole seconds
		t.Errorf("the long connection lived for %v after the rollout began, promised the drain's %v", lived,
			drainTimeout)
	} else {
		t.Logf("the long connection was reset %v after the rollout began, with a drain of %v", lived.Round(time.Second),
			drainTimeout)
	}
	f.waitOldPodsGone(t)
	f.checkNoFailures(t, "the end of the old forwarders")

	began = time.Now()
	f.release.Upgrade(t, append([]string{"--set", "forwarder.resources.requests.cpu=20m",
		"--set", "manager.resources.requests.cpu=20m"}, f.values...)...)
	t.Logf("helm upgrade --wait: %v", time.Since(began).Round(time.Second))
	f.checkNoFailures(t, "helm upgrade")

	f.restartManagers(t, deployment+"manager")
	f.waitOldPodsGone(t)
	asked, failed := f.stopLoads(t)
	if failed > 0 {
		t.Errorf("%d of %d calls failed", failed, asked)
	}
	f.checkNotRestarted(t)
}

// restartManagers restarts the managers and makes an endpoint meanwhile.
func (f *traffic) restartManagers(t *testing.T, deployment string) {
	t.Helper()
	began := time.Now()
	rolled := make(chan struct{})
	go func() {
		defer close(rolled)
		if out, err := f.c.Exec(t.Context(), "kubectl", "--namespace", f.release.Namespace, "rollout", "restart",
			"deployment/"+deployment); err != nil {
			t.Errorf("rolling the managers: %v: %s", err, out)
		}
	}()
	during := "during." + f.ns
	f.service.Agent(t, "http", "1", "http://"+during)
	online := time.Now()
	f.release.BoundEndpoint(t, during, v1alpha1.ConditionServicesReady, "True", v1alpha1.ReasonProjected)
	t.Logf("an endpoint made while the managers are rolled was projected in %v",
		time.Since(online).Round(time.Millisecond))
	<-rolled
	f.waitRollout(t, deployment)
	t.Logf("rolling 2 managers: %v", time.Since(began).Round(time.Second))
	f.checkNoFailures(t, "rolling the managers")
}

// restartDeployment restarts a Deployment and waits until its new pods are ready.
func (f *traffic) restartDeployment(t *testing.T, deployment string) {
	t.Helper()
	f.c.Kubectl(t, "--namespace", f.release.Namespace, "rollout", "restart", "deployment/"+deployment)
	f.waitRollout(t, deployment)
}

func (f *traffic) waitRollout(t *testing.T, deployment string) {
	t.Helper()
	f.c.Kubectl(t, "--namespace", f.release.Namespace, "rollout", "status", "deployment/"+deployment, "--timeout=120s")
}

// waitOldPodsGone waits until the pods that are terminating are gone, and logs the time that the
// last one took.
func (f *traffic) waitOldPodsGone(t *testing.T) {
	t.Helper()
	began := time.Now()
	f.c.Eventually(t, oldPodTimeout, "the old forwarders gone", func(ctx context.Context) error {
		var list corev1.PodList
		if err := f.c.Client.List(ctx, &list, client.InNamespace(f.release.Namespace)); err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("%s still stops", p.Name)
			}
		}
		return nil
	})
	t.Logf("the last old pod was gone %v later", time.Since(began).Round(time.Second))
}

// checkNotRestarted fails the test if a process of an agent or of the server has ended, or a pod
// was restarted.
func (f *traffic) checkNotRestarted(t *testing.T) {
	t.Helper()
	for _, p := range append(f.agents, f.service.Process) {
		select {
		case <-p.Ended():
			t.Errorf("%s ended: %s", p.name, p.Output())
		default:
		}
	}
	pods, err := f.release.pods(t.Context())
	must.Succeed(t, err)
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("pod %s was started again %d times", p.Name, s.RestartCount)
			}
		}
	}
}

// TestServer_RestartKeepsTraffic restarts the service: live connections end only after its drain;
// new ones wait meanwhile, and are refused after 3 s. It runs alone: it holds calls to seconds.
func TestServer_RestartKeepsTraffic(t *testing.T) {
	const drain = 8 * time.Second
	f := newTraffic(t, "--drain-timeout", drain.String())

	// Without long connections the drain is short, and so is the restart: what comes meanwhile is
	// held. On a busy machine agents may need more than the rest of the 3 s to come back, but not
	// each time.
	const attempts = 3
	for attempt := 1; ; attempt++ {
		f.startLoads(t)
		down := f.restartService(t)
		f.waitAnswers(t)
		asked, failed := f.stopLoads(t)
		t.Logf("a restart of %v: %d of %d calls failed: %v", down.Round(time.Millisecond), failed, asked,
			reasons(f.failures()))
		if failed == 0 || down >= 2*time.Second {
			break
		}
		if attempt == attempts {
			t.Errorf("each of %d restarts cost calls, promised none", attempts)
			break
		}
	}

	// With one the drain takes its time, and so does the outage.
	long := f.holdConn(t, "vault", 0)
	f.startLoads(t)
	began := time.Now()
	down := f.restartService(t)
	if lived := f.waitReset(t, long).Sub(began); lived < drain-time.Second { // Kubernetes tells whole seconds
		t.Errorf("the long connection lived for %v, promised the drain's %v", lived, drain)
	}
	f.waitAnswers(t)
	asked, failed := f.stopLoads(t)
	t.Logf("a restart of %v: %d of %d calls failed: %v", down.Round(time.Millisecond), failed, asked,
		reasons(f.failures()))
	for _, s := range f.failures() {
		if s.took > answerWithin+slack || !strings.Contains(s.reason, "503") {
			t.Errorf("%s failed after %v: %s", s.url, s.took, s.reason)
		}
	}
}

// restartService stops the service and starts it again at once; it returns how long it was away.
func (f *traffic) restartService(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	must.Succeed(t, f.service.Process.Signal(syscall.SIGTERM))
	<-f.service.Process.Ended()
	f.service.Start(t)
	return time.Since(began)
}

// reasons counts failures by their text, without addresses.
func reasons(failed []sample) map[string]int {
	count := map[string]int{}
	for _, s := range failed {
		r := s.reason
		if i := strings.LastIndex(r, ": "); i >= 0 {
			r = r[i+2:]
		}
		count[r]++
	}
	return count
}
