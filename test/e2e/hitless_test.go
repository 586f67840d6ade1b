// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
)

// drainTimeout of the forwarders in these tests: short, so that its end is seen.
const drainTimeout = 20 * time.Second

// leaving is how long an old forwarder may take: with many endpoints Kubernetes is busy with
// EndpointSlices for that long.
const leaving = forwarder.DeregistrationTimeout + drainTimeout + time.Minute

// traffic is an installation with ten endpoints, and pods that call them 200 times a second.
type traffic struct {
	c       *Cluster
	service *Service
	release *Release
	ns      string
	pod     *corev1.Pod
	urls    []string
	agents  []*Process
	loads   map[string]*load
}

func newTraffic(t *testing.T, serverFlags ...string) *traffic {
	t.Helper()
	c := Shared(t)
	f := &traffic{c: c, service: c.StartService(t, serverFlags...), ns: c.Namespace(t, "calls")}
	f.release = f.service.Install(t, "--set", "forwarder.drainTimeout="+drainTimeout.String(),
		"--set", "manager.resources.requests.cpu=10m", "--set", "forwarder.resources.requests.cpu=10m")
	f.pod = c.NettoolPod(t, f.ns)
	web, echo := freePort(), freePort()
	c.StartUpstream(t, "web", "serve", "127.0.0.1:"+web)
	c.StartUpstream(t, "echo", "echo", "127.0.0.1:"+echo)
	for i := range 10 {
		url := fmt.Sprintf("http://web-%d.%s", i, f.ns)
		f.agents = append(f.agents, f.service.Agent(t, "http", web, url))
		f.urls = append(f.urls, url)
	}
	f.agents = append(f.agents, f.service.Agent(t, "tcp", echo, "tcp://echo."+f.ns+":7000"))
	f.release.BoundEndpoint(t, "echo."+f.ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	f.answering(t)
	return f
}

// answering waits until every endpoint answers.
func (f *traffic) answering(t *testing.T) {
	t.Helper()
	f.c.answering(t, f.pod, append([]string{"tcp://echo." + f.ns + ":7000"}, f.urls...)...)
}

// begin lets the pod call: half over connections that are kept, half over one for each request.
func (f *traffic) begin(t *testing.T) {
	t.Helper()
	f.loads = map[string]*load{
		"kept connections":         f.c.startLoad(t, f.pod, append([]string{"-rate", "100", "-keep"}, f.urls...)...),
		"a connection per request": f.c.startLoad(t, f.pod, append([]string{"-rate", "100"}, f.urls...)...),
	}
}

// end stops the calls and returns how many were made and how many failed.
func (f *traffic) end(t *testing.T) (asked, failed int) {
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

// unharmed fails the test when a call failed since the stage began.
func (f *traffic) unharmed(t *testing.T, stage string) {
	t.Helper()
	for i, s := range f.failures() {
		if i == 10 {
			break
		}
		t.Errorf("%s: a call failed at %s after %v: %s: %s", stage, s.at.Format(time.StampMilli), s.took, s.url,
			s.reason)
	}
}

// hold opens a long connection.
func (f *traffic) hold(t *testing.T, forTime time.Duration) *held {
	t.Helper()
	h := f.c.hold(t, f.ns, "tcp://echo."+f.ns+":7000", forTime)
	h.standing(t)
	return h
}

// cut waits for the end of a long connection and returns when it was. It must have been a reset,
// for an abort must not look like an end.
func (f *traffic) cut(t *testing.T, h *held) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), leaving)
	defer cancel()
	at, last, err := h.end(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(last, "reset") {
		t.Errorf("the long connection ended with %q, want a reset", last)
	}
	return at
}

// Rolling forwarders, the release or managers loses no request, and a long connection lives to the
// drain's end.
func TestRollout_LosesNoRequest(t *testing.T) {
	t.Parallel()
	rollouts := numberOf(t, variableRollouts, 3)
	f := newTraffic(t)
	crowd := numberOf(t, variableEndpoints, len(f.urls)) - len(f.urls)
	many := crowd > 100
	if crowd > 0 {
		f.urls = append(f.urls, f.crowd(t, crowd, numberOf(t, variableChurn, 0))...)
		f.answering(t)
	}
	deployment := f.release.Name + "-"
	whole, long := f.hold(t, drainTimeout), f.hold(t, 0)
	f.begin(t)

	began := time.Now()
	for range rollouts {
		f.roll(t, deployment+"forwarder")
		if many {
			// Kubernetes writes 20 EndpointSlices a second: rollouts on top of each other would
			// measure its queue
			f.oldGone(t)
		}
		f.unharmed(t, "rolling the forwarders")
	}
	t.Logf("%d rollouts of 2 forwarders: %v", rollouts, time.Since(began).Round(time.Second))
	if _, last, err := whole.end(t.Context()); err != nil || !strings.HasPrefix(last, "whole") {
		t.Errorf("a connection that ended before the drain did: %q, %v", last, err)
	}
	if lived := f.cut(t, long).Sub(began); lived < drainTimeout-time.Second { // Kubernetes tells whole seconds
		t.Errorf("the long connection lived for %v after the rollout began, promised the drain's %v", lived,
			drainTimeout)
	} else {
		t.Logf("the long connection was reset %v after the rollout began, with a drain of %v", lived.Round(time.Second),
			drainTimeout)
	}
	f.oldGone(t)
	f.unharmed(t, "the end of the old forwarders")

	began = time.Now()
	f.release.Upgrade(t, "--set", "forwarder.drainTimeout="+drainTimeout.String(), "--set",
		"forwarder.resources.requests.cpu=20m", "--set", "manager.resources.requests.cpu=20m")
	t.Logf("helm upgrade --wait: %v", time.Since(began).Round(time.Second))
	f.unharmed(t, "helm upgrade")

	f.rollManagers(t, deployment+"manager")
	f.oldGone(t)
	asked, failed := f.end(t)
	if failed > 0 {
		t.Errorf("%d of %d calls failed", failed, asked)
	}
	f.steady(t)
}

// rollManagers restarts the managers and makes an endpoint meanwhile.
func (f *traffic) rollManagers(t *testing.T, deployment string) {
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
	f.rolled(t, deployment)
	t.Logf("rolling 2 managers: %v", time.Since(began).Round(time.Second))
	f.unharmed(t, "rolling the managers")
}

// roll restarts a Deployment and waits until its new pods are ready.
func (f *traffic) roll(t *testing.T, deployment string) {
	t.Helper()
	f.c.Kubectl(t, "--namespace", f.release.Namespace, "rollout", "restart", "deployment/"+deployment)
	f.rolled(t, deployment)
}

func (f *traffic) rolled(t *testing.T, deployment string) {
	t.Helper()
	f.c.Kubectl(t, "--namespace", f.release.Namespace, "rollout", "status", "deployment/"+deployment, "--timeout=120s")
}

// oldGone waits until the pods that are terminating are gone, and logs the time that the last one
// took.
func (f *traffic) oldGone(t *testing.T) {
	t.Helper()
	began := time.Now()
	f.c.Eventually(t, leaving, "the old forwarders gone", func(ctx context.Context) error {
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

// steady fails the test if a process of an agent or of the server has ended, or a pod was
// restarted.
func (f *traffic) steady(t *testing.T) {
	t.Helper()
	for _, p := range append(f.agents, f.service.Process) {
		select {
		case <-p.Ended():
			t.Errorf("%s ended: %s", p.name, p.Output())
		default:
		}
	}
	pods, err := f.release.pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("pod %s was started again %d times", p.Name, s.RestartCount)
			}
		}
	}
}

// A restart of the service ends live connections only after its drain; new ones are held meanwhile,
// and refused after 3 s.
func TestServer_RestartKeepsTraffic(t *testing.T) {
	t.Parallel()
	const drain = 8 * time.Second
	f := newTraffic(t, "--drain-timeout", drain.String())

	// Without long connections the drain is short, and so is the restart: what comes meanwhile is
	// held.
	f.begin(t)
	down := f.restart(t)
	f.answering(t)
	asked, failed := f.end(t)
	t.Logf("a restart of %v: %d of %d calls failed: %v", down.Round(time.Millisecond), failed, asked,
		reasons(f.failures()))
	if failed > 0 && down < 2*time.Second { // agents have the rest of the 3 s to come back
		t.Errorf("a restart of %v cost %d calls, promised none", down, failed)
	}

	// With one the drain takes its time, and so does the outage.
	long := f.hold(t, 0)
	f.begin(t)
	began := time.Now()
	down = f.restart(t)
	if lived := f.cut(t, long).Sub(began); lived < drain-time.Second { // Kubernetes tells whole seconds
		t.Errorf("the long connection lived for %v, promised the drain's %v", lived, drain)
	}
	f.answering(t)
	asked, failed = f.end(t)
	t.Logf("a restart of %v: %d of %d calls failed: %v", down.Round(time.Millisecond), failed, asked,
		reasons(f.failures()))
	for _, s := range f.failures() {
		if s.took > answerWithin+slack || !strings.Contains(s.reason, "503") {
			t.Errorf("%s failed after %v: %s", s.url, s.took, s.reason)
		}
	}
}

// restart stops the service and starts it again at once; it returns how long it was away.
func (f *traffic) restart(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	if err := f.service.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
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
