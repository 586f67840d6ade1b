// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

const bindingDisabled = "binding.enabled=false"

// Promise 8: whatever way an installation goes, it leaves nothing behind but the CRDs, and nothing hangs.
func TestUninstallLeavesNothing(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	uninstall := func(t *testing.T, r *Release) { c.Helm(t, "uninstall", r.Name, "--namespace", r.Namespace) }
	ways := []struct {
		name   string
		remove func(t *testing.T, r *Release)
	}{
		{"helm uninstall", uninstall},
		{"kubectl delete namespace", func(t *testing.T, r *Release) { c.Kubectl(t, "delete", "namespace", r.Namespace, "--timeout=60s") }},
		{bindingDisabled, func(t *testing.T, r *Release) { r.Upgrade(t, "--set", "binding.enabled=false") }},
		{"helm uninstall while the service is down", func(t *testing.T, r *Release) {
			s.Process.Kill()
			uninstall(t, r)
		}},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := s.Install(t)
			ns := c.Namespace(t, "gone")
			s.Agent(t, "http", "8401", "http://web."+ns)
			s.Agent(t, "tcp", "8402", "tcp://web."+ns+":5432")
			bep := r.BoundEndpoint(t, "web."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
			upstream, target := r.Services(t, bep)
			start := time.Now()
			way.remove(t, r)
			c.Gone(t, 60*time.Second, target.Namespace, target.Name, &corev1.Service{})
			c.Gone(t, 30*time.Second, upstream.Namespace, upstream.Name, &corev1.Service{})
			t.Logf("no Service of ours in the cluster %v after %s began", time.Since(start).Round(time.Millisecond), way.name)
			if way.name == bindingDisabled { // the release is still there, and ports rest for a minute
				c.Gone(t, 90*time.Second, r.Namespace, bep.Name, &v1alpha1.BoundEndpoint{})
				return
			}
			c.Gone(t, 30*time.Second, r.Namespace, bep.Name, &v1alpha1.BoundEndpoint{})
			c.Eventually(t, 30*time.Second, "the ClusterRoles go", func(ctx context.Context) error { return noClusterRoles(ctx, c, r) })
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "boundendpoints.bindings.fairlead.dev"}, crd); err != nil {
				t.Errorf("crds.keep is true: %v", err)
			}
		})
	}
}

// noClusterRoles checks what the namespace's end alone would leave: `kubectl delete namespace` takes the anchor, which owns what we made; the chart's own
// ClusterRoles without subjects are Helm's to remove.
func noClusterRoles(ctx context.Context, c *Cluster, r *Release) error {
	anchor := &rbacv1.ClusterRole{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: r.Namespace + "." + r.Name + "-anchor"}, anchor)
	if err == nil {
		return fmt.Errorf("ClusterRole %s is still there", anchor.Name)
	}
	return client.IgnoreNotFound(err)
}
