// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/x509"
	"io"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestSealing_ChangesDropSpares holds that a spare ends, without a word about a caller, as soon as the
// rules of trust change, and when the forwarder begins to stop.
func TestSealing_ChangesDropSpares(t *testing.T) {
	t.Parallel()
	owner := sealtest.NewOwner(t, "ac-1")
	identity := owner.Identity(account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432})
	e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) { serveSealed(ctx, t, st, identity) })
	byDefault := endpointtrust.Default{Mode: sealed.Require, Account: "ac-1",
		Authorities: []*x509.Certificate{owner.Root}}
	rules := &fakeTrust{changed: make(chan struct{}, 10)}
	rules.set(byDefault, allListed)
	r := start(t, e, shortTiming(), func(o *Options) { o.Trust = rules })
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	for _, change := range []func(){func() { rules.set(byDefault, allListed) }, r.stop} {
		made, ended := make(chan struct{}), make(chan error, 1)
		e.spares <- func(st *tunnel.Stream) {
			_ = st.Accept()
			_, _ = st.Write(sealed.Hint("ep-1"))
			in, err := identity.Handshake(t.Context(), st)
			if close(made); err == nil {
				err = in.Receive(t.Context())
			}
			ended <- err
		}
		_, _ = io.ReadAll(r.dial(15432))
		wait.Receive(t, "a spare", made)
		if change(); wait.Receive(t, "the end of the spare", ended) == nil {
			t.Error("it sent a header")
		}
	}
}
