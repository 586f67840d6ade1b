// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		if err != nil {
			c.t.Fatal(err)
		}
		return out
	}
	uid := func() string {
		c.t.Helper()
		var pvc corev1.PersistentVolumeClaim
		if err := c.Get(context.Background(), claim, &pvc); err != nil {
			c.t.Fatal(err)
		}
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

// checkServerPodAdmission makes the pods of the Deployment and of the test where the restricted
// standard is enforced.
func (c *cluster) checkServerPodAdmission(ns string) {
	c.t.Helper()
	ctx := context.Background()
	var namespace corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: ns}, &namespace); err != nil {
		c.t.Fatal(err)
	}
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	if err := c.Update(ctx, &namespace); err != nil {
		c.t.Fatal(err)
	}
	all := renderServer(c.t, values{}.set("tls.existingSecret", "certificate"))
	test := get[corev1.Pod](c.t, all, "Pod", serverRelease+"-test")
	for name, spec := range map[string]corev1.PodSpec{"server": server(c.t, all).Spec.Template.Spec,
		"test": test.Spec} {
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
