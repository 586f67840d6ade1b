// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestReplicas_DeletionsAreTrueEverywhere deletes through one server what all serve: when the
// answer comes, none does any more.
func TestReplicas_DeletionsAreTrueEverywhere(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	for server := range r.replicas {
		r.deleteEndpoint(t, server)
		r.deleteAuthtoken(t, server)
		r.stopSession(t, server)
	}
}

// deleteEndpoint creates a public cloud endpoint and deletes it through a server.
func (r *rig) deleteEndpoint(t *testing.T, server int) {
	t.Helper()
	host := fmt.Sprintf("cloud-%d.%s", server, domain)
	raw, err := r.replicas[0].api.CreateObject(t.Context(), "/endpoints", map[string]any{
		"url": "http://" + host, "bindings": []string{"public"}, "traffic_policy": answerPolicy})
	must.Succeed(t, err)
	targets := r.targetsAtEach(host)
	for _, g := range targets {
		wait.Until(t, "cloud endpoint to be served", func() bool { return g.request(t.Context()) == nil })
	}
	id := idOf(t, raw)
	must.Succeed(t, r.replicas[server].api.DeleteObject(t.Context(), "/endpoints/"+id))
	requireGone(t, "a deleted endpoint", targets)
	for i, s := range r.replicas {
		if _, err := s.api.Endpoint(t.Context(), id); account.CodeOf(err) != account.CodeNotFound {
			t.Errorf("server %d: a deleted endpoint: %v", i, err)
		}
	}
}

// targetsAtEach returns a target with fresh connections at each server's public listener.
func (r *rig) targetsAtEach(host string) (all []*target) {
	for _, s := range r.replicas {
		all = append(all, &target{name: s.name, addr: s.http, host: host})
	}
	return all
}

// requireGone holds that none of the targets serves.
func requireGone(t *testing.T, what string, targets []*target) {
	t.Helper()
	for _, g := range targets {
		if err := g.request(t.Context()); err == nil {
			t.Errorf("%s is served by %s after the answer", what, g.name)
		}
	}
}

func idOf(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var object struct{ ID, Token string }
	if err := json.Unmarshal(raw, &object); err != nil || object.ID == "" {
		t.Fatalf("%v: %s", err, raw)
	}
	return object.ID
}

// deleteAuthtoken deletes the authtoken of an agent through a server.
func (r *rig) deleteAuthtoken(t *testing.T, server int) {
	t.Helper()
	raw, err := r.replicas[server].api.CreateObject(t.Context(), "/credentials",
		map[string]any{"acl": []string{"bind:*"}})
	must.Succeed(t, err)
	var made struct{ ID, Token string }
	must.Succeed(t, json.Unmarshal(raw, &made))
	host := fmt.Sprintf("token-%d.%s", server, domain)
	a, _ := r.startAgentWith(-1, made.Token,
		endpoint{url: "http://" + host, binding: "public", upstream: startUpstream(t)})
	r.waitLegs(a)
	targets := r.targetsAtEach(host)
	for _, g := range targets {
		wait.Until(t, "agent to be served", func() bool { return g.request(t.Context()) == nil })
	}
	must.Succeed(t, r.replicas[server].api.DeleteObject(t.Context(), "/credentials/"+made.ID))
	requireGone(t, "the agent of a deleted authtoken", targets)
	if err := wait.Receive(t, "end of the agent", a.ended); err == nil {
		t.Error("the agent of a deleted authtoken has ended without an error")
	}
}

// stopSession stops an agent's session through a server.
func (r *rig) stopSession(t *testing.T, server int) {
	t.Helper()
	host := fmt.Sprintf("session-%d.%s", server, domain)
	a, ids := r.startAgentWith(-1, r.authtoken,
		endpoint{url: "http://" + host, binding: "public", upstream: startUpstream(t)})
	r.waitLegs(a)
	e, err := r.replicas[server].api.Endpoint(t.Context(), ids["http://"+host])
	if err != nil || e.TunnelSession == nil {
		t.Fatalf("%+v, %v", e, err)
	}
	targets := r.targetsAtEach(host)
	for _, g := range targets {
		wait.Until(t, "agent to be served", func() bool { return g.request(t.Context()) == nil })
	}
	stop := "/tunnel_sessions/" + e.TunnelSession.ID + "/stop"
	must.Succeed(t, r.replicas[server].api.PostAction(t.Context(), stop))
	requireGone(t, "the agent of a stopped session", targets)
	if err := wait.Receive(t, "end of the agent", a.ended); err == nil {
		t.Error("the agent of a stopped session has ended without an error")
	}
}
