// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// checkServerInstall checks that the volume claim outlives the release, that helm reports this,
// that the next release of the name adopts it, and that it is deleted on request.
func (c *cluster) checkServerInstall() {
	c.t.Helper()
	const ns = "service"
	claim := client.ObjectKey{Namespace: ns, Name: serverRelease + "-data"}
	helmServer := func(verb string, args ...string) string {
		c.t.Helper()
		out, err := helm(c.t, c.kubeconfig, nil, append([]string{verb, serverRelease, "--namespace", ns}, args...)...)
		must.Succeed(c.t, err)
		return out
	}
	uid := func() string {
		c.t.Helper()
		var pvc corev1.PersistentVolumeClaim
		must.Succeed(c.t, c.Get(context.Background(), claim, &pvc))
		return string(pvc.UID)
	}
	helmServer("install", serverDir, "--create-namespace")
	before := uid()
	c.checkServerPodAdmission(ns)
	if out := helmServer("uninstall"); !strings.Contains(out, "[PersistentVolumeClaim] "+claim.Name) {
		c.t.Errorf("helm does not say that the claim stays: %s", out)
	}
	notes := helmServer("install", serverDir)
	if after := uid(); after != before || !strings.Contains(notes, "delete persistentvolumeclaim "+claim.Name) {
		c.t.Errorf("the claim was %s and is %s; the notes say %s", before, after, notes)
	}
	helmServer("upgrade", serverDir, "--set", "persistence.keep=false")
	helmServer("uninstall")
	var pvc corev1.PersistentVolumeClaim
	if err := c.Get(context.Background(), claim, &pvc); !apierrors.IsNotFound(err) && pvc.DeletionTimestamp == nil {
		c.t.Errorf("the claim stayed: %v", err)
	}
}

// checkServerReplicas checks the way from a server with a volume to replicas and that the way back
// is refused. New pods start beside the old ones only where these are replicas, too.
func (c *cluster) checkServerReplicas() {
	c.t.Helper()
	const ns = "replicas"
	upgrade := func(v values) (strategy appsv1.DeploymentStrategyType, notes string, err error) {
		c.t.Helper()
		notes, err = helm(c.t, c.kubeconfig, v, "upgrade", "--install", serverRelease, serverDir, "--namespace", ns,
			"--create-namespace")
		var d appsv1.Deployment
		must.Succeed(c.t, c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: serverRelease},
			&d))
		return d.Spec.Strategy.Type, notes, err
	}
	must := func(v values, want appsv1.DeploymentStrategyType, note string) {
		c.t.Helper()
		if got, notes, err := upgrade(v); err != nil || got != want || !strings.Contains(notes, note) {
			c.t.Errorf("%v: strategy %s, want %s; %v; notes %s, want %q", v, got, want, err, notes, note)
		}
	}
	refuse := func(v values, want string) {
		c.t.Helper()
		if _, _, err := upgrade(v); err == nil || !strings.Contains(err.Error(), want) {
			c.t.Errorf("%v: %v; want %q", v, err, want)
		}
	}
	replicas := replicaValues().set("replicas", 3)
	must(values{}, appsv1.RecreateDeploymentStrategyType, "")
	refuse(replicas, "the server of this release has its store in SQLite: upgrade it first")
	must(replicaValues().set("persistence.enabled", true), appsv1.RecreateDeploymentStrategyType, "")
	must(replicas, appsv1.RecreateDeploymentStrategyType, "delete persistentvolumeclaim "+serverRelease+"-data")
	must(replicas, appsv1.RollingUpdateDeploymentStrategyType, "")
	moved := replicas.set("baseURL", "https://fairlead.example.com")
	must(moved, appsv1.RecreateDeploymentStrategyType, "")
	must(moved.set("replicas", 1), appsv1.RollingUpdateDeploymentStrategyType, "")
	refuse(replicaValues(), "replicas is empty, and the servers of this release share their database")
	c.scaleServer(ns, 0)
	must(replicaValues(), appsv1.RecreateDeploymentStrategyType, "")
	var pvc corev1.PersistentVolumeClaim
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: serverRelease + "-data"},
		&pvc); err != nil || pvc.DeletionTimestamp != nil {
		c.t.Errorf("the claim is gone: %v", err)
	}
}

// scaleServer sets how many pods the release's Deployment has.
func (c *cluster) scaleServer(ns string, pods int32) {
	c.t.Helper()
	var d appsv1.Deployment
	must.Succeed(c.t, c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: serverRelease}, &d))
	d.Spec.Replicas = &pods
	must.Succeed(c.t, c.Update(context.Background(), &d))
}

// checkServerPodAdmission makes the pods of the Deployment and of the test where the restricted
// standard is enforced.
func (c *cluster) checkServerPodAdmission(ns string) {
	c.t.Helper()
	ctx := context.Background()
	var namespace corev1.Namespace
	must.Succeed(c.t, c.Get(ctx, client.ObjectKey{Name: ns}, &namespace))
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	must.Succeed(c.t, c.Update(ctx, &namespace))
	all := renderServer(c.t, values{}.set("tls.existingSecret", "certificate"))
	replica := server(c.t, renderServer(c.t, replicaValues().set("replicas", 3))).Spec.Template.Spec
	test := get[corev1.Pod](c.t, all, "Pod", serverRelease+"-test")
	for name, spec := range map[string]corev1.PodSpec{"server": server(c.t, all).Spec.Template.Spec,
		"replica": replica, "test": test.Spec} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec}
		if err := c.Create(ctx, pod.DeepCopy(), client.DryRunAll); err != nil {
			c.t.Errorf("the pod %s is refused: %v", name, err)
		}
		pod.Spec.Containers[0].SecurityContext.Capabilities.Drop = nil
		if err := c.Create(ctx, pod, client.DryRunAll); !apierrors.IsForbidden(err) {
			c.t.Errorf("a pod that is not restricted got %v, so this test proves nothing", err)
		}
	}
}
