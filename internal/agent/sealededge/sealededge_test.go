// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealededge

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServer_BelievesPodsOfProvenCallers holds that a policy knows the pod of a caller that has proven
// itself, and no other.
func TestServer_BelievesPodsOfProvenCallers(t *testing.T) {
	t.Parallel()
	x := New(slog.New(slog.DiscardHandler))
	defer x.Close()
	s := x.Server(&agent.Endpoint{URL: account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432},
		Binding: account.BindingKubernetes, TrafficPolicy: `{"on_tcp_connect": [{"expressions":
			["!(conn.pod.namespace == 'shop' && conn.cluster == 'one')"], "actions": [{"type": "deny"}]}]}`})
	for _, c := range []struct {
		caller, namespace string
		admitted          bool
	}{{"one", "shop", true}, {"two", "shop", false}, {"one", "other", false}, {"", "shop", false}} {
		in := &sealed.Incoming{Caller: c.caller, Header: sealed.Header{ClientAddr: "10.1.2.3:4",
			Pod: &tunnel.PodIdentity{Namespace: c.namespace, Name: "web"}}}
		if got := s.Admits(t.Context(), in); got != c.admitted {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestClient_WritesNothingBesideTheSeal holds that the edge does not find the method of a stream by which it
// writes the last of an answer.
func TestClient_WritesNothingBesideTheSeal(t *testing.T) {
	t.Parallel()
	var c edge.Client = &client{HalfCloser: new(sealed.Conn)}
	if _, ok := c.(interface{ WriteLater(p []byte) (int, error) }); ok {
		t.Error("WriteLater is the stream's, below the seal")
	}
}
