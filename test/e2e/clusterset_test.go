// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestClusterSet_BetweenClusters exports Services by ServiceExports between two clusters with the
// same addresses; answers name their cluster. It runs alone on the machine: it measures times, and
// two clusters are heavy.
func TestClusterSet_BetweenClusters(t *testing.T) {
	f := newClusterSetRig(t)
	f.both(func(c *member) { c.addKinds(t) }) // beside releases that run
	t.Run("a Service of one cluster", f.exportOne)
	t.Run("two clusters that claim one id", f.claimedID)
	t.Run("a Service of two clusters", f.exportBoth)
	t.Run("a cluster without ready endpoints is left out", f.failover)
	t.Run("single pods of a headless Service", f.exportPods)
	t.Run("calls survive what runs and ends", f.disrupt)
	f.restartService(t) // which runs to the end of the test
	t.Run("a namespace that is deleted and made again", f.deleteNamespace)
	t.Run("time from a ServiceExport to the first answer", f.measure)
	t.Run("what is not exported any more is gone at once", f.unexport)
}

// exportOne exports a Service of cluster a, and calls it in both.
func (f *clusterSetRig) exportOne(t *testing.T) {
	f.deploy(t, f.a, "")
	// A pod of the same labels, and perhaps the same address, which must not answer.
	f.deploy(t, f.b, ", {name: admin, port: 9090, targetPort: 8080}")
	f.mustExport(t, f.a, "hello")
	began := time.Now()
	f.waitExport(t, f.a, "Valid", "True", "Valid")
	f.waitExport(t, f.a, "Ready", "True", "Exported")
	f.both(func(c *member) {
		f.waitImport(t, c, "http:8080", "a")
		f.waitAnsweredBy(t, c, 8080, "cluster-a")
	})
	t.Logf("kinds made, ServiceExport made, called in both clusters: %v", time.Since(began).Round(time.Millisecond))
	f.both(func(c *member) { c.checkNotRestarted(t) })
}

// checkNotRestarted checks that no container of the release has ended.
func (c *member) checkNotRestarted(t *testing.T) {
	t.Helper()
	pods, err := c.release.pods(t.Context())
	must.Succeed(t, err)
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("%s: %s was started again %d times", c.name, p.Name, s.RestartCount)
			}
		}
	}
}

// claimedID exports from cluster b, which was told the id of a, and then tells it another one.
func (f *clusterSetRig) claimedID(t *testing.T) {
	f.mustExport(t, f.b, "hello")
	var holder corev1.Namespace
	must.Succeed(t, f.a.Client.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &holder))
	refused := f.waitExport(t, f.b, "Ready", "False", "Failed")
	if !strings.Contains(refused.Message, string(holder.UID)) {
		t.Errorf("the message does not name the cluster that has the id, %s: %q", holder.UID, refused.Message)
	}
	f.both(func(c *member) { f.waitImport(t, c, "http:8080", "a") })
	f.b.id = "b"
	f.b.release.Upgrade(t, f.b.values()...)
	f.waitExport(t, f.b, "Ready", "True", "Exported")
}

// exportPods exports a StatefulSet of cluster a, and calls its pods in both by names of their own: by
// each the very pod answers. The name of the Service has the addresses of all.
func (f *clusterSetRig) exportPods(t *testing.T) {
	f.a.Apply(t, fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: %[1]s}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: http, port: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: %[1]s}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: nettool, image: %[2]q, imagePullPolicy: IfNotPresent, args: [serve, ":8080"]}]
`, f.ns, ImageNettool))
	f.mustExport(t, f.a, "db")
	f.both(func(c *member) {
		var pods []string
		for _, pod := range []string{"db-0", "db-1"} {
			c.Eventually(t, time.Minute, "answers of "+pod+" in "+c.name, func(ctx context.Context) error {
				count, err := c.answers(ctx, f.url(pod+".a.db", 8080), 16)
				if err == nil && count[pod] != 16 {
					err = fmt.Errorf("answers %v", count)
				}
				return err
			})
			pods = append(pods, c.lookup(t, f.host(pod+".a.db"))...)
		}
		slices.Sort(pods)
		if got := c.lookup(t, f.host("db")); len(got) != 4 || !slices.Equal(got, pods) { // two of each family
			t.Errorf("%s: the Service's name is at %v, its pods' are at %v", c.name, got, pods)
		}
		count, err := c.answers(t.Context(), f.url("db", 8080), 16) // a resolver may take the same address each time
		if must.Succeed(t, err); count["db-0"]+count["db-1"] != 16 {
			t.Errorf("%s: answers %v", c.name, count)
		}
	})
	must.Succeed(t, f.a.Client.Delete(t.Context(), &mcsv1beta1.ServiceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "db"}}))
	f.both(func(c *member) {
		c.Eventually(t, 20*time.Second, "no pod's Service in "+c.name, func(ctx context.Context) error {
			var left corev1.ServiceList
			err := c.Client.List(ctx, &left, client.InNamespace(f.ns), client.HasLabels{"bindings.fairlead.dev/pod"})
			if err == nil && len(left.Items) > 0 {
				err = fmt.Errorf("%d are left", len(left.Items))
			}
			return err
		})
	})
}

// exportBoth has one Service in both clusters: their ports are united, and both answer.
func (f *clusterSetRig) exportBoth(t *testing.T) {
	f.both(func(c *member) {
		f.waitExport(t, c, "Conflict", "True", "PortConflict")
		f.waitImport(t, c, "admin:9090 http:8080", "a", "b")
	})
	f.both(func(c *member) {
		f.waitAnsweredBy(t, c, 9090, "cluster-b")
		f.waitAnsweredBy(t, c, 8080, "cluster-a", "cluster-b")
	})
	f.b.Apply(t, f.serviceYAML("hello", ""))
	f.both(func(c *member) {
		f.waitExport(t, c, "Conflict", "False", "NoConflicts")
		f.waitImport(t, c, "http:8080", "a", "b")
	})
}

// failover takes the pod out of the Service of cluster a, and puts it in again.
func (f *clusterSetRig) failover(t *testing.T) {
	label := func(value string) time.Time {
		f.a.Kubectl(t, "--namespace", f.ns, "label", "--overwrite", "pod", "cluster-a", "app="+value)
		return time.Now()
	}
	loads := map[*member]*load{}
	f.both(func(c *member) { loads[c] = c.startLoad(t, c.nettool, "-rate", callRate, f.url("hello", 8080)) })
	began := label("none")
	f.both(func(c *member) { f.waitAnsweredBy(t, c, 8080, "cluster-b") })
	label("hello")
	f.both(func(c *member) { f.waitAnsweredBy(t, c, 8080, "cluster-a", "cluster-b") })
	for c, l := range loads {
		sum := l.stop(t)
		var last time.Duration
		for _, s := range l.samples() {
			last = max(last, s.at.Add(-s.took).Sub(began))
		}
		t.Logf("%s: %d of %d calls failed, none that began %v after the last endpoint went: %v", c.name, sum.Failed,
			sum.OK+sum.Failed, last.Round(time.Millisecond), reasons(l.samples()))
		if last > 5*time.Second {
			t.Errorf("%s: a call failed %v after the cluster had no endpoint", c.name, last)
		}
	}
}

// deleteNamespace deletes the namespace in cluster b, with what it exports, and makes it again.
func (f *clusterSetRig) deleteNamespace(t *testing.T) {
	f.b.Kubectl(t, "delete", "namespace", f.ns)
	f.waitImport(t, f.a, "http:8080", "a")
	f.b.NamespaceOf(t, f.ns)
	f.waitImport(t, f.b, "http:8080", "a")
	f.both(func(c *member) { f.waitAnsweredBy(t, c, 8080, "cluster-a") })
}

// measure exports one Service after the other from cluster a, and measures until cluster b has
// their EndpointSlices, and until a pod there gets its first answer.
func (f *clusterSetRig) measure(t *testing.T) {
	rounds := max(1, numberOf(t, variableRounds, 50))
	var manifests strings.Builder
	for i := range rounds + 1 {
		manifests.WriteString(f.serviceYAML(fmt.Sprintf("r%d", i), ""))
	}
	f.a.Apply(t, manifests.String())
	imported, probe := f.watchImported(t), f.b.startProbe(t, f.b.nettool)
	var projected, called []time.Duration
	for i := range rounds + 1 {
		name := fmt.Sprintf("r%d", i)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		answered := probe.first(ctx, f.url(name, 8080))
		began := time.Now()
		must.Succeed(t, f.export(ctx, f.a, name))
		select {
		case at := <-answered:
			called, projected = append(called, at.Sub(began)), append(projected, imported(name).Sub(began))
		case <-ctx.Done():
			t.Fatalf("%s: no answer: %s", name, probe.output())
		}
		cancel()
	}
	allowance := time.Duration(5) // a busy machine measures itself
	if os.Getenv(variableTargets) != "" {
		allowance = 1
	}
	for what, took := range map[string][]time.Duration{"EndpointSlices in the other cluster": projected[1:],
		"first answer there, with CoreDNS and kube-proxy": called[1:]} { // the first one warms up
		took = slices.Sorted(slices.Values(took))
		p99 := took[(len(took)*99+99)/100-1]
		t.Logf(
			"a ServiceExport to %s: median %v, p99 %v, max %v (%d rounds, %d cores, kube-proxy minSyncPeriod 10 ms, "+
				"no DNS cache)", what, median(took).Round(time.Millisecond), p99.Round(time.Millisecond),
			took[len(took)-1].Round(time.Millisecond), rounds, runtime.NumCPU())
		if median(took) > allowance*time.Second || p99 > 2*allowance*time.Second {
			t.Errorf("%s: median %v, at most %v; p99 %v, at most twice that", what, median(took),
				allowance*time.Second, p99)
		}
	}
}

// watchImported returns a function that tells when a Service's first imported EndpointSlice with an
// endpoint that is ready came to cluster b.
func (f *clusterSetRig) watchImported(t *testing.T) (at func(name string) time.Time) {
	t.Helper()
	c, err := client.NewWithWatch(f.b.Config, client.Options{Scheme: scheme()})
	must.Succeed(t, err)
	w, err := c.Watch(t.Context(), &discoveryv1.EndpointSliceList{}, client.InNamespace(f.ns),
		client.HasLabels{labelImportName})
	must.Succeed(t, err)
	var mu sync.Mutex
	first := map[string]time.Time{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			s, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok || len(s.Ports) == 0 || !slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
				return e.Conditions.Ready == nil || *e.Conditions.Ready
			}) {
				continue
			}
			mu.Lock()
			if name := s.Labels[labelImportName]; first[name].IsZero() {
				first[name] = time.Now()
			}
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { w.Stop(); <-done })
	return func(name string) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return first[name]
	}
}

// unexport deletes all ServiceExports: nothing of them is left in either cluster.
func (f *clusterSetRig) unexport(t *testing.T) {
	had := len(f.mustDerived(t, f.b))
	began := time.Now()
	must.Succeed(t, f.a.Client.DeleteAllOf(t.Context(), &mcsv1beta1.ServiceExport{}, client.InNamespace(f.ns)))
	f.both(func(c *member) {
		c.Eventually(t, 20*time.Second, "nothing imported in "+c.name, func(ctx context.Context) error {
			left, err := f.derived(ctx, c)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("left are %v", left)
			}
			return err
		})
	})
	t.Logf("%d imported objects were gone from both clusters %v after the ServiceExports", had,
		time.Since(began).Round(time.Millisecond))
	var services corev1.ServiceList
	if err := f.a.Client.List(t.Context(), &services, client.InNamespace(f.ns)); err != nil ||
		len(services.Items) == 0 {
		t.Errorf("the Services that were exported: %d, %v", len(services.Items), err)
	}
}
