// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// nodeIPv6 is the IPv6 address of the test cluster's node.
const nodeIPv6 = "fd99::2"

// TestIPv6 makes every hop speak IPv6: service and edge at a literal, the agent to it, the pod to
// the Service and the Service to the forwarder.
func TestIPv6(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	var kubernetes corev1.Node
	if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "node"}, &kubernetes); err != nil ||
		!slices.ContainsFunc(kubernetes.Status.Addresses, func(a corev1.NodeAddress) bool {
			return a.Address == nodeIPv6
		}) {
		t.Skipf("the cluster has no IPv6 (%v): start it with `cluster up --dual-stack`", err)
	}
	s := c.StartServiceAt(t, nodeIPv6)
	r := s.Install(t)
	ns := c.Namespace(t, "six")
	c.Start(t, "upstream", "nettool", "serve", "[::1]:18090")
	s.Agent(t, "http", "http://[::1]:18090", "http://api."+ns)
	b := r.BoundEndpoint(t, "api."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	upstreamService, _ := r.Services(t, b)
	if families := upstreamService.Spec.IPFamilies; !slices.Contains(families, corev1.IPv6Protocol) ||
		!slices.Contains(families, corev1.IPv4Protocol) {
		t.Errorf("the upstream Service has %v, want both families", families)
	}
	pod := c.CurlPod(t, ns)
	for _, family := range []string{"-6", "-4"} {
		c.Eventually(t, time.Minute, "a call with curl "+family, func(ctx context.Context) error {
			_, err := c.PodExec(ctx, pod, "curl", "-fsS", "-m", "5", family, "http://api."+ns)
			return err
		})
	}
}
