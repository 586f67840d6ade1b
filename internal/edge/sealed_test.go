// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// sealedMember is an Agent that counts its uses.
type sealedMember struct {
	Agent

	endpoint account.Endpoint
	uses     int
}

func (m *sealedMember) Endpoint() *account.Endpoint { return &m.endpoint }
func (m *sealedMember) Release()                    { m.uses-- }

// sealedPool are Agents of one URL.
type sealedPool []*sealedMember

func (p sealedPool) ChooseAgent(
	_ context.Context, _ *account.Endpoint, _ time.Duration, _ bool, tried []Agent,
) (Agent, error) {
	for _, m := range p {
		if !slices.Contains(tried, Agent(m)) {
			m.uses++
			return m, nil
		}
	}
	return nil, &account.Error{Code: account.CodeEndpointOffline}
}

func (p sealedPool) ChooseTunnel(context.Context, string, map[string]string, []Agent) (Agent, error) {
	return nil, &account.Error{Code: account.CodeEndpointOffline}
}

// TestResolveSealed_FindsWhatMayServe holds that a sealed connection gets an agent that seals and was
// not tried, and none that the pool's policy denies; and that no use of an agent is left.
func TestResolveSealed_FindsWhatMayServe(t *testing.T) {
	t.Parallel()
	of := func(id, sealKey, policy string) *sealedMember {
		ep := account.Endpoint{ID: id, Type: account.TypeAgent, Scheme: "tcp", TrafficPolicy: policy,
			Bindings: []string{account.BindingKubernetes}}
		ep.URL, ep.SealKey = "tcp://db.demo:5432", sealKey
		return &sealedMember{endpoint: ep}
	}
	const denies = `{"on_tcp_connect": [{"actions": [{"type": "deny"}]}]}`
	const forwards = `{"on_tcp_connect": [{"actions": [{"type": "forward-internal",
		"config": {"url": "tcp://other.internal:5432"}}]}]}`
	for name, tt := range map[string]struct {
		agents sealedPool
		tried  string
		want   string
		code   account.Code
	}{
		"sealed among plain": {agents: sealedPool{of("a", "", ""), of("b", "k", "")}, want: "b"},
		"plain only":         {agents: sealedPool{of("a", "", ""), of("b", "", "")}, code: account.CodeNotSealed},
		"next one":           {agents: sealedPool{of("a", "k", ""), of("b", "k", "")}, tried: "x,a", want: "b"},
		"all tried": {agents: sealedPool{of("a", "k", ""), of("b", "k", "")}, tried: "b,a",
			code: account.CodeEndpointOffline},
		"denied":    {agents: sealedPool{of("a", "k", denies)}, code: account.CodeDenied},
		"forwarded": {agents: sealedPool{of("a", "k", forwards)}, code: account.CodeNotSealed},
		"offline, with a policy": {agents: sealedPool{of("a", "k", denies)}, tried: "a",
			code: account.CodeEndpointOffline},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := &router{agents: tt.agents, endpoints: &endpointCache{},
				policies: newPolicies(slog.New(slog.DiscardHandler), nil)}
			r, err := rt.resolveSealed(t.Context(), &tt.agents[0].endpoint, &ClientInfo{Sealed: true, Tried: tt.tried})
			got := ""
			if r.preselected != nil {
				got = r.preselected.Endpoint().ID
				r.preselected.Release()
			}
			if got != tt.want || account.CodeOf(err) != tt.code || name == "forwarded" && errors.Unwrap(err) != nil {
				t.Errorf("agent %q, %v", got, err)
			}
			for _, m := range tt.agents {
				if m.uses != 0 {
					t.Errorf("%s is left with %d uses", m.endpoint.ID, m.uses)
				}
			}
		})
	}
}
