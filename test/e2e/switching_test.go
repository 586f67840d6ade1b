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

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestProjection_SwitchLosesNoRequest changes the projection of a running release to EndpointSlices
// and back, and rolls the forwarders in between. A foreign Service stays as it is. It runs alone: a
// call that waits too long is a failure.
func TestProjection_SwitchLosesNoRequest(t *testing.T) {
	f := newTraffic(t)
	foreign := &corev1.Service{}
	foreign.Namespace, foreign.Name = f.ns, "theirs"
	foreign.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.invalid"}
	must.Succeed(t, f.c.Client.Create(t.Context(), foreign))
	f.agents = append(f.agents, f.service.Agent(t, "http", "1", "http://theirs."+f.ns))
	long := f.holdConn(t, "echo", 0)
	f.startLoads(t)

	address := f.loadRememberedAddress(t)
	f.switchProjection(t, v1alpha1.ProjectionEndpointSlice)
	f.checkHandedOver(t, address)
	f.restartDeployment(t, f.release.Name+"-forwarder")
	f.waitOldPodsGone(t)
	f.checkNoFailures(t, "rolling the forwarders")
	f.waitReset(t, long) // at the end of the drain, and not before
	address = f.loadRememberedAddress(t)
	f.switchProjection(t, v1alpha1.ProjectionExternalName)
	f.checkHandedOver(t, address)

	asked, failed := f.stopLoads(t)
	if failed > 0 {
		t.Errorf("%d of %d calls failed", failed, asked)
	}
	after := &corev1.Service{}
	if err := f.c.Client.Get(t.Context(), client.ObjectKeyFromObject(foreign), after); err != nil ||
		after.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("their Service changed: %v, %+v", err, after)
	}
	f.checkNotRestarted(t)
}

// loadRememberedAddress lets the pod call the ClusterIP that a hostname leads to now, as a client
// does that remembers the DNS answer.
func (f *traffic) loadRememberedAddress(t *testing.T) (address string) {
	t.Helper()
	bep := f.release.BoundEndpoint(t, "web-0."+f.ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	upstream, _ := f.release.Services(t, bep)
	address = upstream.Spec.ClusterIP
	f.loads["the address "+address] = f.c.startLoad(t, f.pod, "-rate", "20", "http://"+address)
	return address
}

// checkHandedOver checks that a Service beside the forwarders has the address that the hostname led
// to before, and not the hostname itself.
func (f *traffic) checkHandedOver(t *testing.T, address string) {
	t.Helper()
	var list corev1.ServiceList
	must.Succeed(t, f.c.Client.List(t.Context(), &list))
	for _, s := range list.Items {
		if s.Spec.ClusterIP != address {
			continue
		}
		if s.Namespace != f.release.Namespace {
			t.Errorf("%s is the address of Service %s/%s", address, s.Namespace, s.Name)
		}
		return
	}
	t.Errorf("no Service has %s", address)
}

// switchProjection upgrades the release, and waits until all hostnames but the foreign one and those
// of the namespace with a label have the projection and DNS answers of before are forgotten.
func (f *traffic) switchProjection(t *testing.T, mode v1alpha1.Projection) {
	t.Helper()
	began := time.Now()
	f.release.Upgrade(t, append([]string{"--set", "manager.resources.requests.cpu=10m",
		"--set", "forwarder.resources.requests.cpu=10m", "--set", "binding.projection=" + string(mode)},
		f.values...)...)
	f.c.Eventually(t, 2*time.Minute, "all hostnames by "+string(mode), func(ctx context.Context) error {
		var list v1alpha1.BoundEndpointList
		if err := f.c.Client.List(ctx, &list, client.InNamespace(f.release.Namespace)); err != nil {
			return err
		}
		for _, b := range list.Items {
			want := mode
			if b.Spec.Namespace == f.sliced {
				want = v1alpha1.ProjectionEndpointSlice
			}
			if b.Spec.Service != "theirs" && b.Status.Projection != want {
				return fmt.Errorf("%s is projected by %q", b.Name, b.Status.Projection)
			}
		}
		return nil
	})
	t.Logf("switching to %s: %v", mode, time.Since(began).Round(time.Second))
	_ = pause(t.Context(), 10*time.Second)
	f.checkNoFailures(t, "switching to "+string(mode))
}
