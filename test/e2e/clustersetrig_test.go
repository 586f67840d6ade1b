// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// mcsCRDs are the CRDs of the Multi-Cluster Services API.
const mcsCRDs = "../../internal/clusterset/testdata/mcs-api-v0.5.2"

// clustersetBlock is what docs/use/clusterset.md adds to CoreDNS' Corefile.
const clustersetBlock = `
clusterset.local:53 {
    errors
    kubernetes clusterset.local {
        multicluster clusterset.local
    }
}
`

// Labels of imported EndpointSlices.
const (
	labelImportName    = "multicluster.kubernetes.io/service-name"
	labelSourceCluster = "multicluster.kubernetes.io/source-cluster"
)

// clusterSetRig is two clusters with the same addresses that export Services of one namespace to
// each other. Neither knows the kinds of the Multi-Cluster Services API at first.
type clusterSetRig struct {
	a, b    *member
	service *Service
	ns      string // of the Services
}

// member is a cluster of the set.
type member struct {
	*Cluster
	id      string // also that of another cluster: what the chart is told
	key     string // of the exporter
	release *Release
	curl    *corev1.Pod
	nettool *corev1.Pod
}

func newClusterSetRig(t *testing.T) *clusterSetRig {
	t.Helper()
	a := Shared(t)
	f := &clusterSetRig{a: &member{Cluster: a, id: "a"}, b: &member{Cluster: a.Second(t), id: "a"}}
	f.service, f.ns = a.StartService(t), a.Namespace(t, "shop")
	f.b.NamespaceOf(t, f.ns)
	for c, seen := range map[*member]*Service{f.a: f.service, f.b: f.service.SeenFrom(t, f.b.Cluster)} {
		calls := c.Namespace(t, "calls")
		c.nettool, c.curl = c.NettoolPod(t, calls), c.CurlPod(t, calls)
		c.key = f.service.exporterKey(t)
		c.release = seen.Install(t, c.values()...)
	}
	return f
}

// both calls a function for each cluster.
func (f *clusterSetRig) both(do func(*member)) {
	do(f.a)
	do(f.b)
}

// values are those of the chart.
func (c *member) values() []string {
	return []string{"--set", "clusterset.enabled=true", "--set", "manager.replicas=1",
		"--set", "forwarder.drainTimeout=5s", "--set", "export.enabled=true", "--set", "export.services=true",
		"--set", "export.clusterID=" + c.id, "--set", "export.drainTimeout=5s",
		"--set", "credentials.exporterApiKey=" + c.key}
}

// addKinds installs the CRDs, and lets cluster DNS answer for them, until the end of the test.
func (c *member) addKinds(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(mcsCRDs, "*.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%d CRDs in %s, %v", len(files), mcsCRDs, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		c.Apply(t, string(text))
	}
	var role rbacv1.ClusterRole
	c.change(t, &role, client.ObjectKey{Name: "system:coredns"}, func() {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{mcsv1beta1.GroupName},
			Resources: []string{"serviceimports"}, Verbs: []string{"list", "watch"}})
	})
	var config corev1.ConfigMap
	key := client.ObjectKey{Namespace: "kube-system", Name: "coredns"}
	c.change(t, &config, key, func() { config.Data["Corefile"] += clustersetBlock })
	t.Cleanup(func() {
		config.Data["Corefile"] = strings.TrimSuffix(config.Data["Corefile"], clustersetBlock)
		role.Rules = role.Rules[:len(role.Rules)-1]
		ctx := context.WithoutCancel(t.Context())
		_, err := c.Exec(ctx, "kubectl", "delete", "--ignore-not-found", "crd", "serviceexports."+mcsv1beta1.GroupName,
			"serviceimports."+mcsv1beta1.GroupName)
		for _, err := range []error{err, c.Client.Update(ctx, &config), c.Client.Update(ctx, &role),
			c.restartDNS(ctx)} {
			if err != nil {
				t.Errorf("taking the kinds away: %v", err)
			}
		}
	})
	must.Succeed(t, c.restartDNS(t.Context()))
}

// change reads an object, lets a function change it, and writes it.
func (c *Cluster) change(t testing.TB, o client.Object, key client.ObjectKey, do func()) {
	t.Helper()
	c.Eventually(t, 10*time.Second, fmt.Sprintf("changing %T %s", o, key), func(ctx context.Context) error {
		if err := c.Client.Get(ctx, key, o); err != nil {
			return err
		}
		do()
		return c.Client.Update(ctx, o)
	})
}

// restartDNS starts CoreDNS anew, which otherwise reads its configuration a minute later.
func (c *Cluster) restartDNS(ctx context.Context) error {
	for _, verb := range []string{"restart", "status"} {
		if _, err := c.Exec(ctx, "kubectl", "--namespace", "kube-system", "rollout", verb,
			"deployment/coredns"); err != nil {
			return err
		}
	}
	return nil
}

// deploy makes Service hello, with further ports, and its pod, which names the cluster in answers.
func (f *clusterSetRig) deploy(t *testing.T, c *member, morePorts string) {
	t.Helper()
	c.Apply(t, f.serviceYAML("hello", morePorts))
	name := "cluster-a"
	if c == f.b {
		name = "cluster-b"
	}
	c.StartPod(t, Pod{Namespace: f.ns, Name: name, Labels: map[string]string{"app": "hello"}, Image: ImageNettool,
		Args: []string{"serve", ":8080"}})
}

func (f *clusterSetRig) serviceYAML(name, morePorts string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec: {selector: {app: hello}, ports: [{name: http, port: 8080}%s]}
`, name, f.ns, morePorts)
}

// export makes a ServiceExport.
func (f *clusterSetRig) export(ctx context.Context, c *member, name string) error {
	return c.Client.Create(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name}})
}

func (f *clusterSetRig) mustExport(t *testing.T, c *member, name string) {
	t.Helper()
	must.Succeed(t, f.export(t.Context(), c, name))
}

// waitExport waits until the ServiceExport hello has the condition with this status and reason.
func (f *clusterSetRig) waitExport(t *testing.T, c *member, condition, status, reason string) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	what := fmt.Sprintf("ServiceExport of %s %s=%s (%s)", c.name, condition, status, reason)
	c.Eventually(t, 20*time.Second, what, func(ctx context.Context) error {
		var o mcsv1beta1.ServiceExport
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: f.ns, Name: "hello"}, &o); err != nil {
			return err
		}
		got := meta.FindStatusCondition(o.Status.Conditions, condition)
		if got == nil || string(got.Status) != status || got.Reason != reason {
			return fmt.Errorf("conditions are %+v", o.Status.Conditions)
		}
		found = *got
		return nil
	})
	return found
}

// waitImport waits until the cluster has ServiceImport hello with an address and these ports, from
// these clusters, and returns it.
func (f *clusterSetRig) waitImport(t *testing.T, c *member, ports string, from ...string) *mcsv1beta1.ServiceImport {
	t.Helper()
	var o mcsv1beta1.ServiceImport
	c.Eventually(t, 20*time.Second, "ServiceImport in "+c.name, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: f.ns, Name: "hello"}, &o); err != nil {
			return err
		}
		var names, clusters []string
		for _, p := range o.Spec.Ports {
			names = append(names, fmt.Sprintf("%s:%d", p.Name, p.Port))
		}
		for _, s := range o.Status.Clusters {
			clusters = append(clusters, s.Cluster)
		}
		slices.Sort(names)
		slices.Sort(clusters)
		if len(o.Spec.IPs) == 0 || strings.Join(names, " ") != ports || !slices.Equal(clusters, from) {
			return fmt.Errorf("addresses %v, ports %v, clusters %v", o.Spec.IPs, names, clusters)
		}
		return nil
	})
	return &o
}

// derived returns what belongs to the ServiceImports of the namespace, by kind and name, with its
// UID: they themselves, derived Services, imported EndpointSlices.
func (f *clusterSetRig) derived(ctx context.Context, c *member) (map[string]string, error) {
	found := map[string]string{}
	var imports mcsv1beta1.ServiceImportList
	var services corev1.ServiceList
	var imported discoveryv1.EndpointSliceList
	in := client.InNamespace(f.ns)
	for _, err := range []error{c.Client.List(ctx, &imports, in), c.Client.List(ctx, &services, in),
		c.Client.List(ctx, &imported, in, client.HasLabels{labelImportName})} {
		if err != nil {
			return nil, err
		}
	}
	for _, o := range imports.Items {
		found["ServiceImport "+o.Name] = string(o.UID)
	}
	for _, o := range services.Items {
		if strings.HasPrefix(o.Name, "derived-") {
			found["Service "+o.Name] = string(o.UID) + " " + o.Spec.ClusterIP
		}
	}
	for _, o := range imported.Items {
		found["EndpointSlice "+o.Name] = string(o.UID) + " of " + o.Labels[labelSourceCluster]
	}
	return found, nil
}

// mustDerived is derived.
func (f *clusterSetRig) mustDerived(t *testing.T, c *member) map[string]string {
	t.Helper()
	found, err := f.derived(t.Context(), c)
	must.Succeed(t, err)
	return found
}

// wantSame checks that the derived objects are the same as before.
func (f *clusterSetRig) wantSame(t *testing.T, c *member, before map[string]string, stage string) {
	t.Helper()
	if now := f.mustDerived(t, c); !maps.Equal(before, now) {
		t.Errorf("%s: cluster %s had %v and has %v", stage, c.name, before, now)
	}
}

// url is where pods call a port of a Service of the set.
func (f *clusterSetRig) url(name string, port int) string {
	return fmt.Sprintf("http://%s:%d", f.host(name), port)
}

func (f *clusterSetRig) host(name string) string { return name + "." + f.ns + ".svc.clusterset.local" }

// lookup returns the sorted addresses that cluster DNS has for a host.
func (c *member) lookup(t *testing.T, host string) []string {
	t.Helper()
	out, err := c.PodExec(t.Context(), c.nettool, "/nettool", "lookup", host)
	must.Succeed(t, err)
	_, list, _ := strings.Cut(out, "[")
	list, _, _ = strings.Cut(list, "]")
	return slices.Sorted(strings.FieldsSeq(list))
}

// answers asks a URL some times from a pod of the cluster and counts who answered: cluster-a,
// cluster-b, or a text about none.
func (c *member) answers(ctx context.Context, url string, times int) (map[string]int, error) {
	out, err := c.PodExec(ctx, c.curl, "bash", "-c",
		fmt.Sprintf(`for i in {1..%d}; do curl -sS -m 5 %s 2>&1; echo; done`, times, url))
	count := map[string]int{}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if host, ok := strings.CutPrefix(line, "hello from "); ok {
			host, _, _ = strings.Cut(host, ",")
			count[host]++
		} else if strings.HasPrefix(line, "curl:") {
			count[line]++
		}
	}
	return count, err
}

// waitAnsweredBy waits until 16 calls in a row from the cluster are answered by all of these pods,
// and by no other.
func (f *clusterSetRig) waitAnsweredBy(t *testing.T, c *member, port int, pods ...string) {
	t.Helper()
	c.Eventually(t, 30*time.Second, fmt.Sprintf("answers of %v in %s", pods, c.name), func(ctx context.Context) error {
		count, err := c.answers(ctx, f.url("hello", port), 16)
		if got := slices.Sorted(maps.Keys(count)); err == nil && !slices.Equal(got, pods) {
			err = fmt.Errorf("answers %v", count)
		}
		return err
	})
}
