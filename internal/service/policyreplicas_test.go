// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// answerPolicy returns a traffic policy that answers with the text.
func answerPolicy(text string) string {
	return fmt.Sprintf(`{"on_http_request":[{"actions":[{"type":"custom-response","config":{"body":%q}}]}]}`, text)
}

// policyBind binds http://hello.demo with answerPolicy(text).
func policyBind(text, resume string) tunnel.Bind {
	return tunnel.Bind{URL: "http://hello.demo", Binding: "kubernetes", UpstreamURL: "http://localhost:1",
		UpstreamProtocol: "http1", TrafficPolicy: answerPolicy(text), ResumeSecret: resume}
}

// TestReplicas_NewPolicyCountsEverywhere gives an endpoint one traffic policy after the other, by
// binds of its session and by an agent that begins anew. When a bind is answered, each replica judges
// by its policy, whether it has a connection with the agent, relays or has no agent at all.
func TestReplicas_NewPolicyCountsEverywhere(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	all := []*servicetest.Server{g.start(), g.start(), g.start()}
	awaitPeers(2, all...)
	serve := func(_ context.Context, st *tunnel.Stream) { _ = st.Refuse(tunnel.RefusedUpstream) }
	agent := all[0].StartAgentWith(all[0].Authtoken, policyBind("first", ""), serve)
	bound := servicetest.Receive(t, agent.Bound, "bind")
	var forwarders []*servicetest.Forwarder
	for _, r := range all {
		forwarders = append(forwarders, r.StartForwarder())
	}
	requireAll := func(want string) {
		t.Helper()
		for i, f := range forwarders {
			if status, body := f.Get(bound); body != want {
				t.Errorf("replica %d answers %d %q, want %q", i, status, strings.TrimSpace(body), want)
			}
		}
	}
	requireAll("first")
	for i := range 20 {
		s, err := agent.Wait(servicetest.Context(t))
		must.Succeed(t, err)
		want := fmt.Sprint("rebound ", i)
		bound, err = s.Bind(servicetest.Context(t), policyBind(want, bound.ResumeSecret))
		must.Succeed(t, err)
		requireAll(want)
	}
	for i := range 10 {
		agent.Stop()
		servicetest.Eventually(t, "the endpoint to be offline", func() bool {
			var ep struct{ Status string }
			status := all[0].CallAPI("GET", "/endpoints/"+bound.EndpointID, nil, &ep)
			return status == http.StatusOK && ep.Status != "online"
		})
		for _, f := range forwarders { // so that each has read the endpoint and its old policy just now
			f.Get(bound)
		}
		want := fmt.Sprint("anew ", i)
		agent = all[0].StartAgentWith(all[0].Authtoken, policyBind(want, bound.ResumeSecret), serve)
		bound = servicetest.Receive(t, agent.Bound, "bind")
		requireAll(want)
	}
}
