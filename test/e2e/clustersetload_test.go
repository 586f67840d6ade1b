// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// killWindow is how long calls may fail after a process that carries traffic was killed: what was
// under way is lost, and addresses of a pod that is gone stay until Kubernetes has told all.
const killWindow = 5 * time.Second

// callRate is how many calls a second a pod makes in each cluster. Many more leave two cores no time
// beside two clusters, and then a stream may take longer to open than the forwarder waits.
const callRate = "20"

// setLoad is pods of both clusters that call Service hello, with a connection for each call: those
// that are kept are reset after the drain, whether or not something is under way, as they are tcp.
type setLoad struct {
	loads map[string]*load
	seen  map[string]int // failures that were judged, by load
}

func (f *clusterSetRig) startLoads(t *testing.T) *setLoad {
	t.Helper()
	l := &setLoad{loads: map[string]*load{}, seen: map[string]int{}}
	url := f.url("hello", 8080)
	f.both(func(c *member) { l.loads[c.name] = c.startLoad(t, c.nettool, "-rate", callRate, url) })
	return l
}

// failed returns the failures since the last time that it was asked.
func (l *setLoad) failed() []sample {
	var fresh []sample
	for name, one := range l.loads {
		all := one.samples()
		fresh = append(fresh, all[l.seen[name]:]...)
		l.seen[name] = len(all)
	}
	return fresh
}

// stop ends the load.
func (l *setLoad) stop(t *testing.T) {
	t.Helper()
	for name, one := range l.loads {
		t.Logf("%s: %+v", name, one.stop(t))
	}
}

// disrupt ends one part after the other while pods of both clusters call: no call fails when a part
// is rolled, and only for a moment when one that carries traffic is killed.
func (f *clusterSetRig) disrupt(t *testing.T) {
	before := map[*member]map[string]string{f.a: f.mustDerived(t, f.a), f.b: f.mustDerived(t, f.b)}
	l := f.startLoads(t)
	for _, stage := range []struct {
		name   string
		do     func(*testing.T)
		within time.Duration // how long after the first failure calls may begin that fail
	}{
		{"rolling the exporters", func(t *testing.T) { f.a.roll(t, "exporter") }, 0},
		{"rolling the forwarders", func(t *testing.T) { f.b.roll(t, "forwarder") }, 0},
		{"killing the managers", func(t *testing.T) { f.a.kill(t, "manager"); f.b.kill(t, "manager") }, 0},
		{"killing an exporter", func(t *testing.T) { f.a.kill(t, "exporter") }, killWindow},
		{"killing a forwarder", func(t *testing.T) { f.b.kill(t, "forwarder") }, killWindow},
	} {
		began := time.Now()
		stage.do(t)
		took := time.Since(began)
		failed := l.failed()
		t.Logf("%s: %v, %d calls failed: %v", stage.name, took.Round(time.Second), len(failed), reasons(failed))
		first := time.Now() // the kubelet of a busy node takes seconds until it kills
		for _, s := range failed {
			if s.at.Before(first) {
				first = s.at
			}
		}
		for _, s := range failed {
			if at := s.at.Add(-s.took).Sub(first); stage.within == 0 || at > stage.within {
				t.Errorf("%s: a call failed that began %v after the first failure: %s", stage.name,
					at.Round(time.Millisecond), s.reason)
			}
		}
		for c, had := range before {
			f.wantSame(t, c, had, stage.name)
		}
	}
	l.stop(t)
}

// roll restarts the pods of a Deployment and waits until the old ones are gone.
func (c *member) roll(t *testing.T, component string) {
	t.Helper()
	c.Kubectl(t, "--namespace", c.release.Namespace, "rollout", "restart",
		"deployment/"+c.release.Name+"-"+component)
	c.waitRolledOut(t, component)
}

// kill ends one pod of a Deployment at once, and waits for the next one.
func (c *member) kill(t *testing.T, component string) {
	t.Helper()
	pods, err := c.release.pods(t.Context(), "fairlead-"+component)
	if err != nil || len(pods) == 0 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	c.Kubectl(t, "--namespace", c.release.Namespace, "delete", "pod", pods[0].Name, "--grace-period=0", "--force")
	c.waitRolledOut(t, component)
}

func (c *member) waitRolledOut(t *testing.T, component string) {
	t.Helper()
	c.Kubectl(t, "--namespace", c.release.Namespace, "rollout", "status",
		"deployment/"+c.release.Name+"-"+component, "--timeout=120s")
	c.Eventually(t, 2*time.Minute, "the old pods gone", func(ctx context.Context) error {
		var list corev1.PodList
		err := c.Client.List(ctx, &list, client.InNamespace(c.release.Namespace),
			client.MatchingLabels{"app.kubernetes.io/name": "fairlead-" + component})
		for _, p := range list.Items {
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("%s still stops", p.Name)
			}
		}
		return err
	})
}

// restartService kills the service and starts it again: calls fail meanwhile, and the imports stay
// as they are.
func (f *clusterSetRig) restartService(t *testing.T) {
	before := map[*member]map[string]string{f.a: f.mustDerived(t, f.a), f.b: f.mustDerived(t, f.b)}
	began := time.Now()
	f.service.Kill(t)
	f.service.Start(t)
	f.both(func(c *member) { f.waitAnsweredBy(t, c, 8080, "cluster-a", "cluster-b") })
	t.Logf("killed, started again, answers of both clusters in both: %v", time.Since(began).Round(time.Millisecond))
	f.both(func(c *member) {
		f.wantSame(t, c, before[c], "restarting the service")
		f.waitExport(t, c, "Ready", "True", "Exported")
	})
}
