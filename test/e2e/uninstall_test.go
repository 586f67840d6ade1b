// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Names of removals that take another course than the others.
const (
	bindingDisabled  = "binding.enabled=false"
	namespaceDeleted = "kubectl delete namespace"
)

// removal is a way to remove an installation, or a state in which it is removed.
type removal struct {
	name   string
	remove func(t *testing.T, r *Release, targets ...string)
}

// values returns what the chart gets for the removal, and how long the removal may take. Where the
// pods of a deleted namespace are not gone within about 5 s, as on a busy node, Kubernetes waits for
// half of their grace period before it goes on: eight minutes by default, 160 s with these values,
// and once more if they are not gone then.
func (w *removal) values() (values []string, timeout time.Duration) {
	if strings.HasPrefix(w.name, namespaceDeleted) {
		return []string{"--set", "forwarder.drainTimeout=5s"}, 6 * time.Minute
	}
	return nil, collectionTimeout
}

// TestUninstall_LeavesNothing checks promise 8: whatever way an installation is removed, in
// whatever state, nothing stays but the CRDs, and nothing hangs. The cluster reaches no registry
// and nothing else outside.
func TestUninstall_LeavesNothing(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	uninstall := func(t *testing.T, r *Release, _ ...string) {
		c.Helm(t, "uninstall", r.Name, "--namespace", r.Namespace)
	}
	for _, w := range []removal{
		{"helm uninstall", uninstall},
		{"helm uninstall --no-hooks", func(t *testing.T, r *Release, _ ...string) {
			c.Helm(t, "uninstall", r.Name, "--namespace", r.Namespace, "--no-hooks")
		}},
		{namespaceDeleted, func(t *testing.T, r *Release, _ ...string) {
			c.Kubectl(t, "delete", "namespace", r.Namespace, "--wait=false")
		}},
		{bindingDisabled, func(t *testing.T, r *Release, _ ...string) { r.Upgrade(t, "--set", bindingDisabled) }},
		{"helm uninstall while the manager crash-loops", func(t *testing.T, r *Release, _ ...string) {
			r.crashManager(t)
			uninstall(t, r)
		}},
		{namespaceDeleted + " while the manager crash-loops", func(t *testing.T, r *Release, _ ...string) {
			r.crashManager(t)
			c.Kubectl(t, "delete", "namespace", r.Namespace, "--wait=false")
		}},
		{"helm uninstall while the target namespaces are terminating",
			func(t *testing.T, r *Release, targets ...string) {
				for _, ns := range targets {
					c.blockNamespaceDeletion(t, ns)
				}
				uninstall(t, r)
			}},
		{"fairlead-operator cleanup, then helm uninstall", func(t *testing.T, r *Release, _ ...string) {
			r.runCleanup(t)
			uninstall(t, r)
		}},
		{"helm uninstall while the service is down", func(t *testing.T, r *Release, _ ...string) {
			s.Process.Kill()
			uninstall(t, r)
		}},
	} {
		t.Run(w.name, func(t *testing.T) { testLeavesNothing(t, s, w) })
	}
}

// collectionTimeout is how long the garbage collector may take. It deletes 20 objects a second of
// the whole cluster, and a test beside this one leaves it a thousand.
const collectionTimeout = 3 * time.Minute

func testLeavesNothing(t *testing.T, s *Service, w removal) {
	c, ns := s.c, s.c.Namespace(t, "gone")
	sliced := c.ProjectedNamespace(t, "gone", v1alpha1.ProjectionEndpointSlice)
	values, timeout := w.values()
	r := s.Install(t, append(values, "--set-string", "binding.endpointSelector="+inNamespaces(ns, sliced))...)
	s.Agent(t, "http", "8401", "http://web."+ns)
	s.Agent(t, "tcp", "8402", "tcp://web."+ns+":5432")
	s.Agent(t, "http", "8401", "http://web."+sliced)
	var services []*corev1.Service
	for _, hostname := range []string{"web." + ns, "web." + sliced} {
		upstream, target := r.Services(t,
			r.BoundEndpoint(t, hostname, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady))
		services = append(services, target, upstream)
	}
	if names := r.objectsWithFinalizers(t); len(names) > 0 {
		t.Errorf("objects with finalizers: %v", names)
	}
	start := time.Now()
	w.remove(t, r, ns, sliced)
	returned := time.Now()
	for _, service := range services {
		c.Gone(t, timeout, service.Namespace, service.Name, &corev1.Service{})
	}
	servicesGone := time.Since(start)
	if w.name == bindingDisabled { // the release is still there, and ports rest for a minute
		for _, hostname := range []string{"web." + ns, "web." + sliced} {
			c.Gone(t, 2*time.Minute, r.Namespace, hostname, &v1alpha1.BoundEndpoint{})
		}
		t.Logf("no Service of ours in the cluster %v after %s began", servicesGone.Round(time.Millisecond), w.name)
		return
	}
	r.waitNothingLeft(t, timeout)
	t.Logf("%s: the command took %v; no Service of ours after %v, nothing of ours at all, pods included, after %v",
		w.name, returned.Sub(start).Round(time.Millisecond), servicesGone.Round(time.Millisecond),
		time.Since(start).Round(time.Millisecond))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "boundendpoints.bindings.fairlead.dev"},
		crd); err != nil {
		t.Errorf("crds.keep is true: %v", err)
	}
}

// runCleanup ends the managers and deletes what they made. While one of them works the command
// refuses.
func (r *Release) runCleanup(t *testing.T) {
	t.Helper()
	cleanup := []string{binary(t, "fairlead-operator"), "cleanup", "--namespace", r.Namespace, "--release", r.Name}
	if _, err := r.c.Exec(t.Context(), cleanup...); err == nil || !strings.Contains(err.Error(), "still runs") {
		t.Errorf("cleanup beside a manager that works: %v", err)
	}
	r.c.Kubectl(t, "--namespace", r.Namespace, "scale", "deployment", r.Name+"-manager", "--replicas=0")
	r.c.Eventually(t, time.Minute, "cleanup", func(ctx context.Context) error {
		out, err := r.c.Exec(ctx, cleanup...)
		if err == nil {
			t.Logf("cleanup says: %s", out)
			err = r.countServices(ctx, 0)
		}
		return err
	})
}

// crashManager makes every manager end at its start, and waits until none runs.
func (r *Release) crashManager(t *testing.T) {
	t.Helper()
	patch := `{"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}, "template": {"spec": {
		"containers": [{"name": "manager", "args": ["manager", "--no-such-flag"]}]}}}}`
	r.c.Kubectl(t, "--namespace", r.Namespace, "patch", "deployment", r.Name+"-manager", "--patch", patch)
	r.c.Eventually(t, podTimeout, "managers crash-loop", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := r.c.Client.List(ctx, pods, client.InNamespace(r.Namespace),
			client.MatchingLabels{"app.kubernetes.io/name": "fairlead-manager"})
		if err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return fmt.Errorf("no pods")
		}
		for _, p := range pods.Items {
			if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 {
				return fmt.Errorf("pod %s has not crashed yet", p.Name)
			}
		}
		return nil
	})
}

// blockNamespaceDeletion deletes a namespace that does not go: something in it has a finalizer,
// until the test ends.
func (c *Cluster) blockNamespaceDeletion(t *testing.T, name string) {
	t.Helper()
	blocker := &corev1.ConfigMap{}
	blocker.Namespace, blocker.Name = name, "held"
	controllerutil.AddFinalizer(blocker, "fairlead.test/held")
	must.Succeed(t, c.Client.Create(t.Context(), blocker))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(blocker), blocker); err != nil {
			t.Errorf("the namespace did not wait: %v", err)
			return
		}
		controllerutil.RemoveFinalizer(blocker, "fairlead.test/held")
		if err := c.Client.Update(ctx, blocker); err != nil {
			t.Error(err)
		}
	})
	c.Kubectl(t, "delete", "namespace", name, "--wait=false")
}

// TestUninstall_ManyEndpoints holds promise 8 to its time. The garbage collector of a cluster with
// the usual settings deletes 20 objects a second, and an endpoint is four of them; the cleanup
// command does not wait for it.
func TestUninstall_ManyEndpoints(t *testing.T) {
	t.Parallel()
	const (
		endpoints = 250
		limit     = 30 * time.Second
	)
	c := Shared(t)
	s := c.StartService(t)
	ns := c.Namespace(t, "many")
	bindMany(t, openSession(t, c, s), ns, endpoints)
	r := s.Install(t, "--set-string", "binding.endpointSelector=ep.namespace == '"+ns+"'")
	c.Eventually(t, 2*time.Minute, "all Services", func(ctx context.Context) error {
		return r.countServices(ctx, 2*endpoints)
	})
	start := time.Now()
	r.runCleanup(t)
	services := time.Since(start)
	c.Helm(t, "uninstall", r.Name, "--namespace", r.Namespace)
	r.waitNothingLeft(t, 5*time.Minute)
	t.Logf("cleanup, then helm uninstall, with %d endpoints: no Service of ours after %v, nothing at all after %v",
		endpoints, services.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	if services > limit {
		t.Errorf("the Services took %v to go; want %v", services, limit)
	}
}

// TestUninstall_WithCRDs checks that with crds.keep=false the CRDs are removed too. It runs alone,
// as every release of the cluster shares the CRDs.
func TestUninstall_WithCRDs(t *testing.T) {
	c := Shared(t)
	if c.context != "" {
		t.Skip("the CRDs of a cluster that is not ours stay")
	}
	s := c.StartService(t)
	ns := c.Namespace(t, "gone")
	crds := []string{"agentendpoints.bindings.fairlead.dev", "boundendpoints.bindings.fairlead.dev",
		"cloudendpoints.bindings.fairlead.dev", "kubernetesoperators.bindings.fairlead.dev"}
	c.Kubectl(t, append([]string{"delete", "crd", "--ignore-not-found"}, crds...)...) // an earlier release's
	r := s.Install(t, "--set", "crds.keep=false")
	s.Agent(t, "http", "8401", "http://web."+ns)
	r.BoundEndpoint(t, "web."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	start := time.Now()
	out := c.Helm(t, "uninstall", r.Name, "--namespace", r.Namespace)
	if strings.Contains(out, "kept") {
		t.Errorf("helm keeps something: %s", out)
	}
	for _, name := range crds {
		c.Gone(t, time.Minute, "", name, &apiextensionsv1.CustomResourceDefinition{})
	}
	r.waitNothingLeft(t, collectionTimeout)
	t.Logf("nothing of ours and no CRD %v after helm uninstall began", time.Since(start).Round(time.Millisecond))
}
