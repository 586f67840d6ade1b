// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"net/netip"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// fakePods knows one pod, or none, of loopback.
type fakePods struct {
	pod     atomic.Pointer[caller.Pod]
	lookups atomic.Int32
	changed chan struct{}
}

func newFakePods() *fakePods { return &fakePods{changed: make(chan struct{}, 1)} }

func (p *fakePods) Lookup(_ context.Context, ip netip.Addr) *caller.Pod {
	p.lookups.Add(1)
	return p.Current(ip)
}

func (p *fakePods) Current(ip netip.Addr) *caller.Pod {
	if ip != netip.MustParseAddr("127.0.0.1") {
		return nil
	}
	return p.pod.Load()
}

func (p *fakePods) LabelsChanged() <-chan struct{} { return p.changed }

// set replaces the pod, as a change of labels does.
func (p *fakePods) set(pod *caller.Pod) {
	p.pod.Store(pod)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func TestIdentifyPod_HeaderNamesPod(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := start(t, e, shortTiming())
	pods := newFakePods()
	r.options.Pods = pods
	r.source.update(testObjects())
	call := func() *tunnel.PodIdentity {
		t.Helper()
		c := r.dial(10080)
		if res, _ := get(t, c, "/"); res.StatusCode != 200 {
			t.Error(res.Status)
		}
		return wait.Receive(t, "a stream", e.streams).Pod
	}
	if pod := call(); pod != nil {
		t.Errorf("pod %+v, though it is unknown", pod)
	}
	want := tunnel.PodIdentity{Namespace: "demo", Name: "caller", ServiceAccount: "default",
		Annotations: map[string]string{"team": "red"}}
	pods.set(&caller.Pod{PodIdentity: want})
	if pod := call(); pod == nil || !reflect.DeepEqual(*pod, want) {
		t.Errorf("pod %+v", pod)
	}
}

// TestIdentifyPod_NotForOfflineEndpoint checks that a call of an offline endpoint does not wait for
// the pod's identity.
func TestIdentifyPod_NotForOfflineEndpoint(t *testing.T) {
	t.Parallel()
	r := start(t, startEdge(t, respond), shortTiming())
	pods := newFakePods()
	r.options.Pods = pods
	gone := testObjects()
	gone.BoundEndpoints[0].Spec.Endpoints, gone.BoundEndpoints[1].Spec.Endpoints = nil, nil
	r.source.update(gone)
	wantErrorPage(t, r.dial(10080), 503, "ERR_FL_3001")
	wantRefused(r, 15432)
	if n := pods.lookups.Load(); n != 0 {
		t.Errorf("the pod was asked for %d times", n)
	}
}
