// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
)

// apiURL is the URL of bep("api", "demo", "http", 80, …).
var apiURL = account.EndpointURL{Scheme: "http", Host: "api.demo", Port: 80}

// assignPortsTest is what a forwarder reads and the ports that it must listen on.
type assignPortsTest struct {
	objects []*v1alpha1.BoundEndpoint
	want    map[int]portAssignment
}

func checkAssignPorts(t *testing.T, tests map[string]assignPortsTest) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, assignPorts(tt.objects), cmp.AllowUnexported(portAssignment{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func createdAt(b *v1alpha1.BoundEndpoint, seconds int64) *v1alpha1.BoundEndpoint {
	b.CreationTimestamp = metav1.Unix(seconds, 0)
	return b
}

func released(b *v1alpha1.BoundEndpoint) *v1alpha1.BoundEndpoint {
	b.Spec.State = v1alpha1.StateReleased
	return b
}

func TestAssignPorts(t *testing.T) {
	t.Parallel()
	twoPorts := bep("db", "prod", "http", 80, 10001, "ep-http")
	twoPorts.Spec.Ports = append(twoPorts.Spec.Ports, v1alpha1.BoundPort{Port: 5432, Scheme: "tcp", TargetPort: 10002})
	twoPorts.Spec.Endpoints = append(twoPorts.Spec.Endpoints,
		v1alpha1.EndpointRef{ID: "ep-tcp", URL: "tcp://db.prod:5432"})
	onePortReleased := twoPorts.DeepCopy()
	onePortReleased.Spec.Ports[0].State = v1alpha1.StateReleased
	pool := bep("api", "demo", "http", 80, 10001, "ep-1")
	pool.Spec.Endpoints = append(pool.Spec.Endpoints, v1alpha1.EndpointRef{ID: "ep-2", URL: "http://api.demo"})
	otherURLs := bep("api", "demo", "http", 80, 10001, "")
	otherURLs.Spec.Endpoints = []v1alpha1.EndpointRef{
		{ID: "ep-junk", URL: "::junk"}, {ID: "ep-other-port", URL: "http://api.demo:81"},
		{ID: "ep-other-scheme", URL: "tcp://api.demo:80"}, {ID: "ep-good", URL: "http://API.demo"},
	}

	otherCluster := exportedBy(bep("hello", "demo", "tcp", 42, 10001, "ep-a"), "a")
	otherCluster.Spec.Cluster = "b"

	checkAssignPorts(t, map[string]assignPortsTest{
		"nothing": {nil, map[int]portAssignment{}},
		"one": {[]*v1alpha1.BoundEndpoint{bep("api", "demo", "http", 80, 10001, "ep-1")},
			map[int]portAssignment{10001: {apiURL, "ep-1"}}},
		"released": {
			[]*v1alpha1.BoundEndpoint{released(bep("api", "demo", "http", 80, 10001, "ep-1"))},
			map[int]portAssignment{}},
		"without endpoint, within removalDelay": {[]*v1alpha1.BoundEndpoint{bep("api", "demo", "http", 80, 10001, "")},
			map[int]portAssignment{10001: {apiURL, ""}}},
		"two ports of one hostname": {[]*v1alpha1.BoundEndpoint{twoPorts}, map[int]portAssignment{
			10001: {account.EndpointURL{Scheme: "http", Host: "db.prod", Port: 80}, "ep-http"},
			10002: {account.EndpointURL{Scheme: "tcp", Host: "db.prod", Port: 5432}, "ep-tcp"}}},
		"one of two ports released": {[]*v1alpha1.BoundEndpoint{onePortReleased},
			map[int]portAssignment{10002: {account.EndpointURL{Scheme: "tcp", Host: "db.prod", Port: 5432}, "ep-tcp"}}},
		"a pool is named by its first": {[]*v1alpha1.BoundEndpoint{pool},
			map[int]portAssignment{10001: {apiURL, "ep-1"}}},
		"an exported Service, in one of its clusters": {[]*v1alpha1.BoundEndpoint{
			exportedBy(bep("hello", "demo", "tcp", 42, 10001, "ep-a"), "a"),
			exportedBy(bep("hello", "demo", "tcp", 42, 10002, "ep-b"), "b"),
			bep("hello", "demo", "tcp", 42, 10003, "ep-1")},
			map[int]portAssignment{
				10001: {account.EndpointURL{Scheme: "tcp", Host: "hello.demo.a", Port: 42}, "ep-a"},
				10002: {account.EndpointURL{Scheme: "tcp", Host: "hello.demo.b", Port: 42}, "ep-b"},
				10003: {account.EndpointURL{Scheme: "tcp", Host: "hello.demo", Port: 42}, "ep-1"}}},
		"endpoints of other clusters are skipped": {[]*v1alpha1.BoundEndpoint{otherCluster},
			map[int]portAssignment{10001: {account.EndpointURL{Scheme: "tcp", Host: "hello.demo.b", Port: 42}, ""}}},
		"endpoints of other URLs are skipped": {[]*v1alpha1.BoundEndpoint{otherURLs},
			map[int]portAssignment{10001: {apiURL, "ep-good"}}},
	})
}

func TestAssignPorts_OnePortOfTwoObjects(t *testing.T) {
	t.Parallel()
	checkAssignPorts(t, map[string]assignPortsTest{
		"the older has it": {[]*v1alpha1.BoundEndpoint{
			createdAt(bep("new", "demo", "http", 80, 10001, "ep-new"), 2000),
			createdAt(bep("api", "demo", "http", 80, 10001, "ep-old"), 1000)},
			map[int]portAssignment{10001: {apiURL, "ep-old"}}},
		"of one second: by name": {[]*v1alpha1.BoundEndpoint{
			bep("zoo", "demo", "http", 80, 10001, "ep-z"), bep("api", "demo", "http", 80, 10001, "ep-a")},
			map[int]portAssignment{10001: {apiURL, "ep-a"}}},
		"a released port is not assigned anew": {[]*v1alpha1.BoundEndpoint{
			createdAt(bep("new", "demo", "http", 80, 10001, "ep-new"), 2000),
			released(createdAt(bep("api", "demo", "http", 80, 10001, ""), 1000))},
			map[int]portAssignment{}},
	})
}
