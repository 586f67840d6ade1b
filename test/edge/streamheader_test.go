// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestEdge_RefusesMismatchedStreams(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(http.ResponseWriter, *http.Request) { t.Error("a request came through") })
	right := servicetest.OpenHeader(t, p.Bound)
	for name, c := range map[string]struct {
		change func(*tunnel.OpenHeader)
		want   tunnel.RefuseCode
	}{
		"another host": {func(h *tunnel.OpenHeader) { h.Host = "other.demo" }, tunnel.RefusedMismatch},
		"another port": {func(h *tunnel.OpenHeader) { h.Port = 8080 }, tunnel.RefusedMismatch},
		"unknown id": {func(h *tunnel.OpenHeader) {
			h.EndpointID = account.NewID("ep", time.Now())
		}, tunnel.RefusedUnknownEndpoint},
		"invalid id": {func(h *tunnel.OpenHeader) { h.EndpointID = "' OR 1=1 --" }, tunnel.RefusedUnknownEndpoint},
	} {
		h := right
		c.change(&h)
		if got := p.Forwarder.OpenRefused(h); got != c.want {
			t.Errorf("%s: refused with %v, want %v", name, got, c.want)
		}
	}
	p.Agent.Stop() // and the endpoint is offline: only the store has it
	h := right
	h.Port = 8080
	if got := p.Forwarder.OpenRefused(h); got != tunnel.RefusedMismatch {
		t.Errorf("offline, another port: %v", got)
	}
}

func TestEdge_HidesOtherAccountsEndpoints(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(http.ResponseWriter, *http.Request) { t.Error("a request came through") })
	other := p.CreateAccount()
	op, _, err := p.OpenStore().UpsertOperator(servicetest.Context(t),
		account.Operator{AccountID: other.AccountID, Description: "other"})
	must.Succeed(t, err)
	f := p.StartForwarderAs(other.Authtoken, op.ID)
	if got := f.OpenRefused(servicetest.OpenHeader(t, p.Bound)); got != tunnel.RefusedUnknownEndpoint {
		t.Errorf("another account's live endpoint: %v", got)
	}
}
