// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"context"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_TellsLabelledTunnelItsHost checks that the agent of a labelled tunnel, which has no
// scheme of its own, learns from each stream how it was called, and whether requests are reported.
func TestEdge_TellsLabelledTunnelItsHost(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	schemes := make(chan string, 8)
	to := servicetest.RelayTo(namedServer(t, "up").Listener.Addr().String())
	tunnelled := r.StartAgentWith(r.Authtoken,
		tunnel.Bind{Labels: map[string]string{"app": "api"}, UpstreamProtocol: "http1"},
		func(ctx context.Context, st *tunnel.Stream) { schemes <- st.Header().Scheme; to(ctx, st) })
	bound := servicetest.Receive(t, tunnelled.Bound, "tunnel")
	b := a.Cloud(account.BindingKubernetes, "http://cloud.demo", "", a.Group(map[string]string{"app": "api"}))
	if status, body := f.Get(b); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if got := servicetest.Receive(t, schemes, "stream"); got != "http" {
		t.Errorf("scheme %q", got)
	}
	if line := servicetest.Receive(t, tunnelled.Lines, "request line"); line.EndpointID != bound.EndpointID ||
		line.Status != 200 {
		t.Errorf("%+v", line)
	}
}
