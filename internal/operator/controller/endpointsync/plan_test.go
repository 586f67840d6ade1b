// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// TestPlanner_HoldsEndpoints checks that endpoints whose removal is held stay in the object, so
// that forwarders continue to reach them.
func TestPlanner_HoldsEndpoints(t *testing.T) {
	t.Parallel()
	for hostname, ref := range map[string]v1alpha1.EndpointRef{
		"hello.demo":   {ID: "ep-1", URL: "tcp://hello.demo:42"},
		"hello.demo.a": {ID: "ep-1", URL: "tcp://hello.demo.a:42"},
	} {
		current := &v1alpha1.BoundEndpointSpec{ProjectionID: "ep-1", Endpoints: []v1alpha1.EndpointRef{ref},
			Ports: []v1alpha1.BoundPort{{Port: 42, Scheme: "tcp", TargetPort: 20042, State: v1alpha1.StateBound}}}
		next, _ := planner{now: time.Now(), ports: NewPorts(PortRange{20000, 20099}, time.Minute, clock.RealClock{}),
			hostname: hostname, desired: Desired{}}.plan(current)
		if next == nil {
			t.Fatalf("%s: the object goes", hostname)
		}
		if d := cmp.Diff(current.Endpoints, next.Endpoints); d != "" {
			t.Errorf("%s: %s", hostname, d)
		}
	}
}
