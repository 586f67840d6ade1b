// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
)

// TestServe_SealedWhateverTheServiceSays holds that the streams of a service that drops the seal, asks
// for one that there is not, or leads another endpoint's call to this agent reach no upstream.
func TestServe_SealedWhateverTheServiceSays(t *testing.T) {
	t.Parallel()
	owner := sealtest.NewOwner(t, "ac-1")
	all := owner.Identity(account.EndpointURL{Scheme: "tcp", Host: "*.demo", Port: 80})
	dialled := make(chan string, 10)
	start := func(seal *sealed.Identity) *tunnel.Session {
		svc := newService(t).start()
		run(t, svc, "8080", func(o *agent.Options) {
			asTCP(o) // no early look at the upstream
			o.Endpoints[0].Seal = seal
			o.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
				dialled <- addr
				return nil, errors.New("must not be dialled")
			}
		})
		return receive(t, svc.bound, "bind")
	}
	s, h := start(all), header()
	wantRefused(t, s, h, tunnel.RefusedSealed)
	h.Sealed = true
	wantRefused(t, start(nil), h, tunnel.RefusedNotSealed)
	st := open(t, s, h)
	_, err := owner.Trust().Connect(t.Context(), st,
		sealed.Header{URL: account.EndpointURL{Scheme: "tcp", Host: "web.demo", Port: 80}})
	var refused *sealed.RefusedError
	if !errors.As(err, &refused) || refused.Code != sealed.CodeWrongURL {
		t.Errorf("a call of another endpoint: %v", err)
	}
	if len(dialled) != 0 {
		t.Error("the upstream was dialled")
	}
}
