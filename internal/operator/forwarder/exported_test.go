// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"io"
	"testing"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestRelay_NamesExportingCluster checks that each target port of a Service that several clusters
// export reaches its own cluster.
func TestRelay_NamesExportingCluster(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		_ = st.Accept()
		_, _ = io.WriteString(st, st.Header().EndpointID)
		_ = st.CloseWrite()
		_, _ = io.Copy(io.Discard, st)
		_ = st.Close()
	})
	r := start(t, e, shortTiming())
	objects := testObjects()
	objects.BoundEndpoints = []*v1alpha1.BoundEndpoint{
		exportedBy(bep("hello", "demo", "tcp", 42, 10001, "ep-a"), "a"),
		exportedBy(bep("hello", "demo", "tcp", 42, 10002, "ep-b"), "b"),
		exportedBy(bep("hello", "demo", "tcp", 42, 10003, ""), "c"),
	}
	r.source.update(objects)
	wait.Receive(t, "a session", r.edge.connectedOnce)
	for port, cluster := range map[int]string{10001: "a", 10002: "b"} {
		if b, err := io.ReadAll(r.dial(port)); string(b) != "ep-"+cluster || err != nil {
			t.Errorf("port %d: got %q, %v", port, b, err)
		}
		h := wait.Receive(t, "a stream", e.streams)
		if h.Scheme != "tcp" || h.Host != "hello.demo."+cluster || h.Port != 42 {
			t.Errorf("port %d: header %+v", port, h)
		}
	}
	wantRefused(r, 10003)
	for _, l := range r.status().Listeners {
		if l.Hostname != "hello.demo.a" && l.Hostname != "hello.demo.b" && l.Hostname != "hello.demo.c" {
			t.Errorf("the status names %q, which is no BoundEndpoint", l.Hostname)
		}
	}
}
