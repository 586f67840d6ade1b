// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// variableTargets holds the promised times, on a quiet machine.
const variableTargets = "FAIRLEAD_E2E_TARGETS"

// exportRig is a cluster that exports Services, and a second one that calls them. Both have the
// same addresses, and a namespace of the same name.
type exportRig struct {
	a, b               *Cluster
	service            *Service
	exporting, calling *Release // in a, in b
	ns                 string
	pod                *corev1.Pod // of b, with nettool
	curl               *corev1.Pod // of b, with curl
}

func newExportRig(t *testing.T) *exportRig {
	t.Helper()
	f := &exportRig{a: Shared(t)}
	f.b = f.a.Second(t)
	f.service = f.a.StartService(t)
	f.ns = f.a.Namespace(t, "shop")
	f.b.NamespaceOf(t, f.ns)
	f.startUpstream(t)
	f.exporting = f.service.Install(t, "--set", "binding.enabled=false", "--set", "manager.replicas=1",
		"--set", "export.enabled=true", "--set", "export.drainTimeout=10s",
		"--set", "credentials.exporterApiKey="+f.service.exporterKey(t))
	f.calling = f.service.SeenFrom(t, f.b).Install(t, "--set", "manager.replicas=1", "--set", "binding.removalDelay=5s")
	f.pod, f.curl = f.b.NettoolPod(t, f.ns), f.b.CurlPod(t, f.ns)
	return f
}

// exporterKey makes an API key of the scope exporter.
func (s *Service) exporterKey(t testing.TB, more ...string) string {
	t.Helper()
	out, err := s.c.Exec(t.Context(), append([]string{binary(t, "fairlead-server"), "api-key", "create", "--scope",
		"exporter", "--data-dir", filepath.Join(s.dir, "data")}, more...)...)
	must.Succeed(t, err)
	return strings.TrimSpace(out)
}

// startUpstream starts the pod behind Service api of the exporting cluster. Its name is in every
// answer.
func (f *exportRig) startUpstream(t testing.TB) *corev1.Pod {
	t.Helper()
	f.a.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: api, namespace: %s}
spec: {selector: {app: api}, ports: [{port: 8080}]}
`, f.ns))
	return f.a.StartPod(t, Pod{Namespace: f.ns, Name: "cluster-a", Labels: map[string]string{"app": "api"},
		Image: ImageNettool, Args: []string{"serve", ":8080"}})
}

// export applies an AgentEndpoint to the exporting cluster.
func (f *exportRig) export(t testing.TB, namespace, name, url, upstream string) {
	t.Helper()
	f.a.Apply(t, fmt.Sprintf(`
apiVersion: bindings.fairlead.dev/v1alpha1
kind: AgentEndpoint
metadata: {name: %s, namespace: %s}
spec: {url: "%s", upstream: {url: "%s"}}
`, name, namespace, url, upstream))
}

// waitCondition waits until the AgentEndpoint has the condition with this status and reason.
func (f *exportRig) waitCondition(t testing.TB, namespace, name, condition, status, reason string) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	f.a.Eventually(t, 30*time.Second, fmt.Sprintf("AgentEndpoint %s %s=%s (%s)", name, condition, status, reason),
		func(ctx context.Context) error {
			var o v1alpha1.AgentEndpoint
			if err := f.a.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &o); err != nil {
				return err
			}
			c := meta.FindStatusCondition(o.Status.Conditions, condition)
			if c == nil || string(c.Status) != status || c.Reason != reason || c.ObservedGeneration != o.Generation {
				return fmt.Errorf("conditions are %+v", o.Status.Conditions)
			}
			found = *c
			return nil
		})
	return found
}

// TestExport_BetweenClusters exports a Service of one cluster to another one with the same
// addresses. It runs alone on the machine: it measures times, and two clusters are heavy.
func TestExport_BetweenClusters(t *testing.T) {
	f := newExportRig(t)
	url := "http://api." + f.ns
	f.export(t, f.ns, "api", url, "http://api:8080")
	f.waitCondition(t, f.ns, "api", v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	// A pod of the same address and labels in the calling cluster must not answer.
	f.b.StartPod(t, Pod{Namespace: f.ns, Name: "cluster-b", Labels: map[string]string{"app": "api"},
		Image: ImageNettool, Args: []string{"serve", ":8080"}})
	if body := f.b.CurlUntil(t, 30*time.Second, f.curl, url, 200); !strings.Contains(body, "hello from cluster-a") {
		t.Fatalf("the answer is not that of the exporting cluster: %q", body)
	}
	t.Run("helm test", func(t *testing.T) {
		f.a.Helm(t, "test", f.exporting.Name, "--namespace", f.exporting.Namespace)
	})
	t.Run("time from an object to the first answer", f.measure)
	t.Run("rolling and deleting exporters loses no request", func(t *testing.T) { f.roll(t, url) })
	t.Run("a namespace exports what is its own", f.boundary)
	t.Run("users of the namespace", f.users)
	t.Run("doctor names the hop that is broken in either cluster", func(t *testing.T) { f.diagnose(t, url) })
	t.Run("a deleted object is gone in the other cluster", func(t *testing.T) { f.remove(t, url) })
	t.Run("a key that is deleted", f.deleteKey)
}

// measure exports one URL after the other, and measures until a pod of the other cluster gets its
// first answer. The objects stay, for the tests after it.
func (f *exportRig) measure(t *testing.T) {
	rounds := max(1, numberOf(t, variableRounds, 50))
	probe := f.b.startProbe(t, f.pod)
	var took []time.Duration
	for i := range rounds + 1 {
		name := fmt.Sprintf("r%d", i)
		o := &v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name},
			Spec: v1alpha1.AgentEndpointSpec{URL: "http://" + name + "." + f.ns,
				Upstream: v1alpha1.Upstream{URL: "http://api:8080"}}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		answered := probe.first(ctx, o.Spec.URL)
		began := time.Now()
		must.Succeed(t, f.a.Client.Create(ctx, o))
		select {
		case at := <-answered:
			took = append(took, at.Sub(began))
		case <-ctx.Done():
			t.Fatalf("%s: no answer: %s", name, probe.output())
		}
		cancel()
	}
	took = slices.Sorted(slices.Values(took[1:])) // the first one warms up
	p99 := took[(len(took)*99+99)/100-1]
	t.Logf("an AgentEndpoint to the first answer in the other cluster: median %v, p99 %v, max %v (%d rounds, %d "+
		"cores, kube-proxy minSyncPeriod 10 ms, no DNS cache)", median(took).Round(time.Millisecond),
		p99.Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), rounds, runtime.NumCPU())
	allowance := time.Duration(5) // a busy machine measures itself
	if os.Getenv(variableTargets) != "" {
		allowance = 1
	}
	if got, most := median(took), allowance*300*time.Millisecond; got > most {
		t.Errorf("median %v, at most %v", got, most)
	}
	if most := allowance * time.Second; p99 > most {
		t.Errorf("p99 %v, at most %v", p99, most)
	}
}

// roll restarts the exporters and deletes one of them while pods of the other cluster call.
func (f *exportRig) roll(t *testing.T, url string) {
	loads := map[string]*load{
		"kept connections":         f.b.startLoad(t, f.pod, "-rate", "100", "-keep", url),
		"a connection per request": f.b.startLoad(t, f.pod, "-rate", "100", url),
	}
	deployment := "deployment/" + f.exporting.Name + "-exporter"
	began := time.Now()
	f.a.Kubectl(t, "--namespace", f.exporting.Namespace, "rollout", "restart", deployment)
	f.waitExporters(t)
	t.Logf("rolling 2 exporters: %v", time.Since(began).Round(time.Second))
	pods, err := f.exporting.pods(t.Context(), "fairlead-exporter")
	if err != nil || len(pods) != 2 {
		t.Fatalf("%d exporters, %v", len(pods), err)
	}
	f.a.Kubectl(t, "--namespace", f.exporting.Namespace, "delete", "pod", pods[0].Name)
	f.waitExporters(t)
	for name, l := range loads {
		sum := l.stop(t)
		t.Logf("%s: %+v", name, sum)
		if sum.Failed > 0 {
			t.Errorf("%s: %d of %d calls failed: %v", name, sum.Failed, sum.OK+sum.Failed, reasons(l.samples()))
		}
	}
}

// waitExporters waits until the Deployment is rolled out and its old pods are gone.
func (f *exportRig) waitExporters(t *testing.T) {
	t.Helper()
	f.a.Kubectl(t, "--namespace", f.exporting.Namespace, "rollout", "status",
		"deployment/"+f.exporting.Name+"-exporter", "--timeout=120s")
	f.a.Eventually(t, time.Minute, "the old exporters gone", func(ctx context.Context) error {
		var list corev1.PodList
		err := f.a.Client.List(ctx, &list, client.InNamespace(f.exporting.Namespace),
			client.MatchingLabels{"app.kubernetes.io/name": "fairlead-exporter"})
		for _, p := range list.Items {
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("%s still stops", p.Name)
			}
		}
		return err
	})
}

// boundary tries to export what belongs to another namespace.
func (f *exportRig) boundary(t *testing.T) {
	other := f.a.Namespace(t, "other")
	f.export(t, other, "url", "http://stolen."+f.ns, "http://api:8080")
	f.export(t, other, "upstream", "http://stolen."+other, "http://api."+f.ns+".svc:8080")
	f.export(t, f.ns, "taken", "http://api."+f.ns, "http://api:8080")
	f.waitCondition(t, other, "url", v1alpha1.ConditionAccepted, "False", v1alpha1.ReasonURLNotAllowed)
	f.waitCondition(t, other, "upstream", v1alpha1.ConditionAccepted, "False", v1alpha1.ReasonUpstreamNotAllowed)
	c := f.waitCondition(t, f.ns, "taken", v1alpha1.ConditionBound, "False", v1alpha1.ReasonURLTaken)
	if owner := "AgentEndpoint " + f.ns + "/api"; !strings.Contains(c.Message, owner) {
		t.Errorf("the message does not name %s: %q", owner, c.Message)
	}
	f.a.Kubectl(t, "--namespace", f.ns, "delete", "agentendpoint", "taken")
	var endpoints struct{ Endpoints []struct{ URL string } }
	f.service.API(t, "/endpoints", &endpoints)
	for _, e := range endpoints.Endpoints {
		if strings.Contains(e.URL, "stolen") {
			t.Errorf("the account has %s", e.URL)
		}
	}
}

// users checks what the cluster's roles edit and view may do with AgentEndpoints.
func (f *exportRig) users(t *testing.T) {
	for _, role := range []string{"edit", "view"} {
		f.a.Kubectl(t, "--namespace", f.ns, "create", "rolebinding", role, "--clusterrole="+role, "--user="+role)
	}
	for _, tt := range []struct {
		user, verb, resource, subresource string
		want                              bool
	}{
		{"edit", "create", "agentendpoints", "", true},
		{"edit", "delete", "cloudendpoints", "", true},
		{"edit", "update", "agentendpoints", "status", false},
		{"view", "list", "agentendpoints", "", true},
		{"view", "create", "agentendpoints", "", false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: tt.user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: f.ns, Verb: tt.verb,
				Group: v1alpha1.GroupVersion.Group, Resource: tt.resource, Subresource: tt.subresource}}}
		f.a.Eventually(t, 20*time.Second, fmt.Sprintf("%+v", tt), func(ctx context.Context) error {
			answer := review.DeepCopy()
			err := f.a.Client.Create(ctx, answer)
			if err == nil && answer.Status.Allowed != tt.want {
				err = fmt.Errorf("allowed is %v", answer.Status.Allowed)
			}
			return err
		})
	}
}

// diagnose breaks one hop after the other, and lets doctor name it.
func (f *exportRig) diagnose(t *testing.T, url string) {
	file := f.a.contexts(t, f.b)
	contexts := []string{"--kubeconfig", file, "--context", "b", "--export-context", "a"}
	report, err := f.a.doctor(t.Context(), t, nil, url, contexts...)
	if err != nil || !report.OK || len(report.Hops) != 17 {
		t.Errorf("broken is %q, %d hops, %v: %+v", report.Broken, len(report.Hops), err, report.Hops)
	}
	f.a.Kubectl(t, "--namespace", f.ns, "delete", "pod", "cluster-a")
	f.waitCondition(t, f.ns, "api", v1alpha1.ConditionUpstreamReady, "False", v1alpha1.ReasonNoReadyEndpoints)
	f.a.waitBrokenHop(t, path.HopExportService, url, contexts...)
	f.b.CurlUntil(t, 10*time.Second, f.curl, url, 502)
	f.startUpstream(t)
	f.b.CurlUntil(t, 10*time.Second, f.curl, url, 200)

	before := f.calling.BoundEndpoint(t, "api."+f.ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	f.scaleExporters(t, "0")
	f.b.CurlUntil(t, 30*time.Second, f.curl, url, 503)
	f.a.waitBrokenHop(t, path.HopExporter, url, contexts...)
	f.a.waitBrokenHop(t, path.HopExporter, "agentendpoint/"+f.ns+"/api", "--kubeconfig", file, "--context", "a")
	f.scaleExporters(t, "2")
	f.b.CurlUntil(t, 30*time.Second, f.curl, url, 200)
	after := f.calling.BoundEndpoint(t, "api."+f.ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	if after.Status.ClusterIP != before.Status.ClusterIP || after.UID != before.UID {
		t.Errorf("the calling cluster's Service was %s and is %s", before.Status.ClusterIP, after.Status.ClusterIP)
	}
}

// remove deletes two objects: calls of the other cluster are refused at once, and the Service goes
// with the endpoint.
func (f *exportRig) remove(t *testing.T, url string) {
	const short = "short"
	shortURL := "http://" + short + "." + f.ns
	f.export(t, f.ns, short, shortURL, "http://api:8080")
	f.b.CurlUntil(t, 30*time.Second, f.curl, shortURL, 200)
	f.a.Kubectl(t, "--namespace", f.ns, "delete", "agentendpoint", "api", short)
	f.b.CurlUntil(t, 10*time.Second, f.curl, url, 503)
	f.b.Gone(t, 30*time.Second, f.ns, short, &corev1.Service{})
}

// deleteKey takes the exporters' key away: object and doctor say so.
func (f *exportRig) deleteKey(t *testing.T) {
	const name, url = "late", "http://api:8080"
	f.export(t, f.ns, name, "http://"+name+"."+f.ns, url)
	f.waitCondition(t, f.ns, name, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	var keys struct {
		Keys []struct {
			ID     string
			Scopes []string
		}
	}
	f.service.API(t, "/api_keys", &keys)
	for _, key := range keys.Keys {
		if slices.Contains(key.Scopes, "exporter") {
			if _, err := f.a.Exec(t.Context(), binary(t, "fairlead-server"), "api-key", "delete", key.ID, "--data-dir",
				filepath.Join(f.service.dir, "data")); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := f.waitCondition(t, f.ns, name, v1alpha1.ConditionBound, "False", v1alpha1.ReasonUnreachable)
	h := f.a.waitBrokenHop(t, path.HopExporter, "agentendpoint/"+f.ns+"/"+name)
	if !strings.Contains(c.Message, "API key") || !strings.Contains(h.Detail, c.Message) {
		t.Errorf("the key is not named: the condition says %q, doctor %q", c.Message, h.Detail)
	}
}

func (f *exportRig) scaleExporters(t *testing.T, replicas string) {
	t.Helper()
	f.a.Kubectl(t, "--namespace", f.exporting.Namespace, "scale", "deployment", f.exporting.Name+"-exporter",
		"--replicas="+replicas)
	f.waitExporters(t)
}
