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
	"github.com/fairlead-dev/fairlead/test/support/must"
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
	_, err := sealed.ReadHint(t.Context(), st)
	must.Succeed(t, err)
	_, err = owner.Trust().Connect(t.Context(), st,
		sealed.Header{URL: account.EndpointURL{Scheme: "tcp", Host: "web.demo", Port: 80}})
	var refused *sealed.RefusedError
	if !errors.As(err, &refused) || refused.Code != sealed.CodeWrongURL {
		t.Errorf("a call of another endpoint: %v", err)
	}
	if len(dialled) != 0 {
		t.Error("the upstream was dialled")
	}
}

// TestSet_SealedServesNoPlainStream holds that an endpoint which is to be sealed serves no plain stream
// from then on, although the service refuses the change and goes on sending them.
func TestSet_SealedServesNoPlainStream(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	r, all := b.keeps(t, nil, "a")
	s := receive(t, b.svc.bound, "bind")
	next[agent.Online](r)
	b.refuse("a.demo", tunnel.CodeInvalid)
	plain := all[0]
	all[0].Seal = sealtest.NewOwner(t, "ac-1").Identity(all[0].URL)
	r.agent.Set(all)
	wantRefused(t, s, headerFor("a"), tunnel.RefusedSealed)
	if e := next[agent.BindRefused](r); !e.StillBound {
		t.Errorf("%+v", e)
	}
	wantRefused(t, s, headerFor("a"), tunnel.RefusedSealed)
	r.agent.Set([]agent.Endpoint{plain})
	if got := upstreamOf(t, s, headerFor("a")); got != "a" {
		t.Errorf("plain again: %q", got)
	}
}
