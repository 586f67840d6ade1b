// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestOpenMember_CountsForChoose opens streams to a member of a pool for another server: the next
// connections of this one go to the other member until both have as many.
func TestOpenMember_CountsForChoose(t *testing.T) {
	t.Parallel()
	l := newTestService(t, "bind:*")
	bound := make(map[string]tunnel.Bound)
	for _, name := range []string{"busy", "free"} {
		b, err := l.agent().Bind(t.Context(), tunnel.Bind{URL: "http://web.demo", Name: name, PoolingEnabled: true,
			UpstreamURL: "http://localhost:1"})
		must.Succeed(t, err)
		bound[name] = b
	}
	busy, free := bound["busy"].EndpointID, bound["free"].EndpointID
	var releases []func()
	for range 3 {
		st, release, err := l.OpenMember(t.Context(), l.accountID, busy, tunnel.OpenHeader{EndpointID: busy})
		must.Succeed(t, err)
		t.Cleanup(func() { _ = st.Close() })
		releases = append(releases, release)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.OpenMember(ended, l.accountID, busy, tunnel.OpenHeader{EndpointID: busy}); err == nil {
		t.Error("a stream was opened though its context has ended")
	}
	choose := func() string {
		t.Helper()
		h, err := l.ChooseNow(URLOf(&account.Endpoint{AccountID: l.accountID,
			Bindings: []string{account.BindingKubernetes}, Scheme: "http", Host: "web.demo", Port: 80}))
		must.Succeed(t, err)
		return h.Endpoint().ID
	}
	for i := range 3 {
		if got := choose(); got != free {
			t.Errorf("connection %d went to the member that is busy for another server", i)
		}
	}
	for _, release := range releases {
		release()
	}
	for i := range 3 {
		if got := choose(); got != busy {
			t.Errorf("connection %d went to the member with the most connections, after the release", i)
		}
	}
}
