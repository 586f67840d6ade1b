// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"net/netip"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testenv/wait"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestIdentifyPod_HeaderNamesPod(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := start(t, e, shortTiming())
	var known atomic.Pointer[tunnel.PodIdentity]
	r.options.Identify = func(_ context.Context, client netip.Addr) *tunnel.PodIdentity {
		if client != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("asked for %s", client)
		}
		return known.Load()
	}
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
	known.Store(&want)
	if pod := call(); pod == nil || !reflect.DeepEqual(*pod, want) {
		t.Errorf("pod %+v", pod)
	}
}

// TestIdentifyPod_NotForOfflineEndpoint checks that a call of an offline endpoint does not wait for
// the pod's identity.
func TestIdentifyPod_NotForOfflineEndpoint(t *testing.T) {
	t.Parallel()
	r := start(t, startEdge(t, respond), shortTiming())
	r.options.Identify = func(context.Context, netip.Addr) *tunnel.PodIdentity {
		t.Error("the pod was asked for")
		return nil
	}
	gone := testObjects()
	gone.BoundEndpoints[0].Spec.Endpoints, gone.BoundEndpoints[1].Spec.Endpoints = nil, nil
	r.source.update(gone)
	wantErrorPage(t, r.dial(10080), 503, "ERR_FL_3001")
	wantRefused(r, 15432)
}
