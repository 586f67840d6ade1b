// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/x509"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// fakeTrust are rules that tests replace.
type fakeTrust struct {
	current atomic.Pointer[endpointtrust.Rules]
	changed chan struct{}
}

func (r *fakeTrust) Snapshot() *endpointtrust.Rules { return r.current.Load() }
func (r *fakeTrust) Changed() <-chan struct{}       { return r.changed }

func (r *fakeTrust) set(d endpointtrust.Default, listed endpointaccess.Listed, all ...endpointtrust.Policy) {
	r.current.Store(endpointtrust.Compile(all, d, listed))
	r.changed <- struct{}{}
}

var allListed = endpointaccess.Listed{"": true}

// TestSealing_WaitsForRulesAndSeals holds that no connection is opened before it is known whom the
// endpoint's owner trusts, and that it is then sealed.
func TestSealing_WaitsForRulesAndSeals(t *testing.T) {
	t.Parallel()
	u := account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
	owner := sealtest.NewOwner(t, "ac-1")
	identity := owner.Identity(u)
	e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
		_ = st.Accept()
		in, err := identity.Accept(ctx, st, "ep-1")
		if err != nil {
			t.Errorf("the agent did not accept: %v", err)
			return
		}
		c, err := in.Open()
		if err != nil {
			t.Errorf("the agent did not open: %v", err)
			return
		}
		_, _ = io.WriteString(c, "sealed from "+in.Header.ClientAddr)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	})
	byDefault := endpointtrust.Default{Mode: sealed.Require, Account: "ac-1",
		Authorities: []*x509.Certificate{owner.Root}}
	rules := &fakeTrust{changed: make(chan struct{}, 10)}
	rules.set(byDefault, endpointaccess.Listed{})
	r := start(t, e, shortTiming(), func(o *Options) { o.Trust = rules })
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	c := r.dial(15432)
	rules.set(byDefault, allListed)
	if got, err := io.ReadAll(c); err != nil || string(got) != "sealed from "+c.LocalAddr().String() {
		t.Errorf("%q, %v", got, err)
	}
	if h := wait.Receive(t, "a stream", e.streams); !h.Sealed {
		t.Errorf("%+v", h)
	}
	rules.set(byDefault, allListed, endpointtrust.Policy{Namespace: "demo", Name: "typo", Spec: endpointtrust.Spec{
		Endpoints: []string{"db"}, Keys: []string{"sha256/typo"}}})
	c = r.dial(15432)
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a connection was served whose trust cannot be read")
	}
	wait.Until(t, "a failure that names the object", func() bool {
		f := r.listeners.byPort[15432].status().LastFailure
		return f != nil && strings.Contains(f.Message, "EndpointTrust demo/typo")
	})
}
