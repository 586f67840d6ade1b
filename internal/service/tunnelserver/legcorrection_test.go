// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// OwnLegs names the history that the test wants.
func (p *pausingLegs) OwnLegs(ctx context.Context) (account.OwnLegs, error) {
	own, err := p.SessionLegs.OwnLegs(ctx)
	own.History += p.historyOf()
	return own, err
}

// failOver gives the database another history.
func (p *pausingLegs) failOver(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history = to
}

func (p *pausingLegs) historyOf() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.history
}

// hasLeg reports whether the store has a leg of the session with the server.
func (r *replicas) hasLeg(server int, id string) bool {
	r.t.Helper()
	own, err := r.servers[server].store.OwnLegs(r.t.Context())
	storetest.Must(r.t, err)
	return slices.Contains(own.SessionIDs, id)
}

func (r *replicas) compare(server int) {
	r.t.Helper()
	storetest.Must(r.t, r.servers[server].Compare(r.t.Context()))
}

// TestCompare_CorrectsLegs holds that a leg that the store lacks is written again, and that one of a
// session without a connection is removed, when two comparisons have found it; after a failover what
// is missing is written by the first, and what is too much is left.
func TestCompare_CorrectsLegs(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 3)
	a, other := r.agent(0, 1), r.agent(1)
	a.bind(tunnel.Bind{URL: "http://web.demo"})
	lose := func() {
		storetest.Must(t, r.servers[0].store.CorrectLegs(t.Context(), []string{other.ID()}, []string{a.ID()}))
		if r.hasLeg(0, a.ID()) || !r.hasLeg(0, other.ID()) {
			t.Fatal("the legs are not as they should be")
		}
	}
	r.compare(0)
	for _, failover := range []bool{false, true} {
		lose()
		if failover {
			r.legs[0].failOver(" another")
		}
		r.compare(0)
		storetest.Equal(t, "the missing leg is added at once", r.hasLeg(0, a.ID()), failover)
		storetest.Equal(t, "the stray leg", r.hasLeg(0, other.ID()), true)
		r.compare(0)
		storetest.Equal(t, "the missing leg", r.hasLeg(0, a.ID()), true)
		storetest.Equal(t, "the stray leg", r.hasLeg(0, other.ID()), false)
	}
	storetest.Equal(t, "leg at the other server", r.hasLeg(1, a.ID()) && r.hasLeg(1, other.ID()), true)
}

// TestCompare_EndsSessionsToRebind holds that a session begins anew when another history
// of the database lacks what it has bound, and keeps what it has where it was unbound.
func TestCompare_EndsSessionsToRebind(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]tunnel.Bind{
		"endpoint": {URL: "http://web.demo"},
		"labels":   {Labels: map[string]string{"app": "web"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t, 1)
			r.compare(0)
			a := r.agent(0)
			kept := a.bind(tunnel.Bind{URL: "http://kept.demo"})
			lose := func(id string) {
				st := r.servers[0].store
				storetest.Must(t, st.Unbind(t.Context(), r.accountID, id, a.ID()))
				storetest.Must(t, st.EndTunnel(t.Context(), r.accountID, id, a.ID()))
			}
			unbound := a.bind(b)
			lose(unbound.EndpointID)
			r.compare(0)
			r.expectNone(unbound.EndpointID)
			r.expect(kept.EndpointID, a, 0)

			lost := a.bind(b)
			r.legs[0].failOver(" another")
			lose(lost.EndpointID)
			r.compare(0)
			wait.Receive(t, "end of the session", a.Done())
			var told *tunnel.Error
			if err := a.Err(); !errors.As(err, &told) || told.Code != tunnel.CodeUnavailable {
				t.Errorf("the session has ended with %v, want %s", err, tunnel.CodeUnavailable)
			}
		})
	}
}
