// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// A labelled tunnel has no scheme of its own: its agent learns from each stream how it was called,
// and whether requests are reported.
func TestEdge_TellsLabelledTunnelItsHost(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f, a := r.startForwarder(), r.tenant()
	schemes := make(chan string, 8)
	to := relayTo(namedServer(t, "up").Listener.Addr().String())
	tunnelled := r.startAgentWith(r.authtoken,
		tunnel.Bind{Labels: map[string]string{"app": "api"}, UpstreamProtocol: "http1"},
		func(ctx context.Context, st *tunnel.Stream) { schemes <- st.Header().Scheme; to(ctx, st) })
	bound := receive(t, tunnelled.bound, "tunnel")
	b := a.cloud(account.BindingKubernetes, "http://cloud.demo", "", a.group(map[string]string{"app": "api"}))
	if status, body := f.get(b); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if got := receive(t, schemes, "stream"); got != "http" {
		t.Errorf("scheme %q", got)
	}
	if line := receive(t, tunnelled.lines, "request line"); line.EndpointID != bound.EndpointID || line.Status != 200 {
		t.Errorf("%+v", line)
	}
}
