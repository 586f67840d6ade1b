// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/ngrok/ngrok-api-go/v7"
	"github.com/ngrok/ngrok-api-go/v7/backends/failover"
	"github.com/ngrok/ngrok-api-go/v7/backends/http_response"
	"github.com/ngrok/ngrok-api-go/v7/backends/tunnel_group"
	"github.com/ngrok/ngrok-api-go/v7/credentials"
	"github.com/ngrok/ngrok-api-go/v7/endpoints"
	"github.com/ngrok/ngrok-api-go/v7/tunnel_sessions"
	"github.com/ngrok/ngrok-api-go/v7/tunnels"
)

// forwardTo is a policy that sends everything to the backend.
func forwardTo(backend string) string {
	return "on_http_request:\n- actions:\n  - type: forward-backend\n    config: {backend_id: " + backend + "}\n"
}

// TestClient_Failover is the acceptance of the whole: a failover backend and a cloud endpoint whose
// policy forwards to it, made by the client, serve; and what the client does to the agent's session
// is felt by who calls.
func TestClient_Failover(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	group, agent := a.startGroup()
	sorry, err := http_response.NewClient(a.config).
		Create(a.ctx, &ngrok.HTTPResponseBackendCreate{Body: "resting", StatusCode: status(503)})
	if err != nil {
		t.Fatal(err)
	}
	both, err := failover.NewClient(a.config).
		Create(a.ctx, &ngrok.FailoverBackendCreate{Backends: []string{group, sorry.ID}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.admin(a.ctx, "domain", "grant", a.name, "*."+a.name+".test"); err != nil {
		t.Fatal(err)
	}
	host := "shop." + a.name + ".test"
	at := map[string]string{"public": "http://" + host, "internal": "http://shop.internal",
		"kubernetes": "http://shop.demo"}
	for binding, url := range at {
		made, err := endpoints.NewClient(a.config).
			Create(a.ctx, &ngrok.EndpointCreate{URL: url, Type: "cloud", Bindings: []string{binding},
				TrafficPolicy: forwardTo(both.ID)})
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if made.URL != url || made.PublicURL != url || made.Type != "cloud" || made.Principal == nil ||
			made.TrafficPolicy != forwardTo(both.ID) {
			t.Errorf("%s: made %#v", url, made)
		}
	}
	if got := a.call(host); got != "200 from the agent" {
		t.Errorf("the endpoint answers %q, want its first child", got)
	}
	wantError(t, "delete of a backend that is in use", failover.NewClient(a.config).Delete(a.ctx, both.ID),
		http.StatusConflict)

	sessions := tunnel_sessions.NewClient(a.config)
	if err := sessions.Stop(a.ctx, a.oneSession().ID); err != nil {
		t.Fatalf("stop: %v", err)
	}
	select {
	case <-agent.ended:
		if agent.code != 5 {
			t.Errorf("the agent ended with %d, want 5", agent.code)
		}
	case <-a.ctx.Done():
		t.Fatalf("the agent goes on after stop:\n%s", agent)
	}
	if got := a.call(host); got != "503 resting" {
		t.Errorf("without its first child the endpoint answers %q", got)
	}
}

func TestClient_SessionsAndTunnels(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	sessions, client := tunnel_sessions.NewClient(a.config), tunnels.NewClient(a.config)
	for _, path := range []string{"/tunnel_sessions", "/tunnels"} {
		if empty := a.raw(path)[path[1:]]; !reflect.DeepEqual(empty, []any{}) {
			t.Errorf("%s: the empty list is %v, not []", path, empty)
		}
	}
	group, agent := a.startGroup()
	first := a.oneSession()
	if first.AgentVersion == "" || first.Credential.URI == "" || first.IP != "127.0.0.1" || first.OS == "" ||
		first.StartedAt == "" || first.Transport == "" {
		t.Errorf("session %#v", first)
	}
	if got, err := sessions.Get(a.ctx, first.ID); err != nil || *got != first {
		t.Errorf("get of a session: %#v, %v; listed was %#v", got, err, first)
	}
	online := all(a, client.List(nil))
	if len(online) != 1 || online[0].TunnelSession.ID != first.ID || online[0].Labels["app"] != "api" ||
		online[0].StartedAt == "" || !strings.Contains(online[0].ForwardsTo, "127.0.0.1") {
		t.Fatalf("tunnels %#v", online)
	}
	if got, err := client.Get(a.ctx, online[0].ID); err != nil || !reflect.DeepEqual(*got, online[0]) {
		t.Errorf("get of a tunnel: %#v, %v; listed was %#v", got, err, online[0])
	}
	with, err := tunnel_group.NewClient(a.config).Get(a.ctx, group)
	if want := (ngrok.Ref{ID: online[0].ID, URI: baseURL + "/tunnels/" + online[0].ID}); err != nil ||
		len(with.Tunnels) != 1 || with.Tunnels[0] != want {
		t.Errorf("the group's tunnels are %v, %v; want %v", with.Tunnels, err, want)
	}

	wantNotFound(t, "update of an agent, which the service has not", sessions.Update(a.ctx, first.ID))
	if err := sessions.Restart(a.ctx, first.ID); err != nil {
		t.Fatalf("restart: %v", err)
	}
	if _, err := agent.wait(`"event":"online"`, 2); err != nil {
		t.Fatal(err)
	}
	if second := a.oneSession(); second.ID == first.ID {
		t.Error("after a restart the session is the same")
	}
	for what, err := range map[string]error{"restart": sessions.Restart(a.ctx, first.ID),
		"stop": sessions.Stop(a.ctx, first.ID)} {
		wantNotFound(t, what+" of a session that has ended", err)
	}
	_, err = sessions.Get(a.ctx, first.ID)
	wantNotFound(t, "get of a session that has ended", err)
	_, err = client.Get(a.ctx, online[0].ID)
	wantNotFound(t, "get of its tunnel", err)
}

// startGroup makes a tunnel group and an agent that serves it, with an authtoken of the client's
// making.
func (a *tenant) startGroup() (group string, _ *agent) {
	a.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "from the agent")
	}))
	a.Cleanup(upstream.Close)
	token, err := credentials.NewClient(a.config).Create(a.ctx, &ngrok.CredentialCreate{ACL: []string{"bind:app=api"}})
	if err != nil {
		a.Fatal(err)
	}
	made, err := tunnel_group.NewClient(a.config).
		Create(a.ctx, &ngrok.TunnelGroupBackendCreate{Labels: map[string]string{"app": "api"}})
	if err != nil {
		a.Fatal(err)
	}
	started := a.agent(*token.Token, "tunnel", "--label", "app=api", upstream.URL)
	if _, err := started.wait(`"event":"online"`, 1); err != nil {
		a.Fatal(err)
	}
	return made.ID, started
}

func (a *tenant) oneSession() ngrok.TunnelSession {
	a.Helper()
	online := all(a, tunnel_sessions.NewClient(a.config).List(nil))
	if len(online) != 1 {
		a.Fatalf("sessions %v, want one", online)
	}
	return online[0]
}

// TestClient_Errors: what the client makes of refusals.
func TestClient_Errors(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	client := endpoints.NewClient(a.config)
	_, err := endpoints.NewClient(a.configWith("flk_none")).Get(a.ctx, "ep-none")
	wantError(t, "an unknown key", err, http.StatusUnauthorized)

	_, err = client.Get(a.ctx, "ep-06gvk8m2962en02dh8k1olamlc")
	wantNotFound(t, "an id that does not exist", err)
	if ngrok.IsErrorCode(err, 404, 1040) {
		t.Errorf("IsErrorCode takes %v for a code of another service", err)
	}

	_, err = client.Create(a.ctx,
		&ngrok.EndpointCreate{URL: "ftp://shop", Type: "edge", Metadata: text(strings.Repeat("m", 4097))})
	e := wantError(t, "a body that breaks rules", err, http.StatusBadRequest)
	for _, field := range []string{"url", "type"} {
		if !strings.Contains(e.Msg, field) {
			t.Errorf("%q does not name the field %s", e.Msg, field)
		}
	}
	policy := "on_http_request:\n- actions:\n  - type: no-such-action\n"
	_, err = client.Create(a.ctx, &ngrok.EndpointCreate{URL: "http://shop.demo", TrafficPolicy: policy})
	if e := wantError(t, "a policy that does not compile", err, http.StatusBadRequest); !strings.Contains(e.Msg,
		"line 3") {
		t.Errorf("%q does not name the line", e.Msg)
	}
	_, err = client.Create(a.ctx,
		&ngrok.EndpointCreate{URL: "http://shop.demo", TrafficPolicy: forwardTo("bkdfo-06gvk8m2962en02dh8k1olamlc")})
	wantError(t, "a policy that forwards to what does not exist", err, http.StatusBadRequest)

	made, err := client.Create(a.ctx, &ngrok.EndpointCreate{URL: "http://shop.demo"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Create(a.ctx, &ngrok.EndpointCreate{URL: "http://shop.demo:80"})
	if e := wantError(t, "a URL that is taken", err, http.StatusConflict); e.Details["endpoint_id"] != made.ID ||
		e.Details["url"] != made.URL {
		t.Errorf("details %v, want those of %s", e.Details, made.ID)
	}
	_, err = client.Update(a.ctx, &ngrok.EndpointUpdate{ID: made.ID, Url: text("http://other.demo")})
	wantError(t, "another URL", err, http.StatusBadRequest)

	it := client.List(&ngrok.Paging{Limit: text("0")})
	if it.Next(a.ctx) {
		t.Error("limit 0 has a page")
	}
	wantError(t, "limit 0", it.Err(), http.StatusBadRequest)

	other := newTenant(t)
	_, err = endpoints.NewClient(other.config).Get(other.ctx, made.ID)
	wantNotFound(t, "another account's endpoint", err)
	if seen := all(other, endpoints.NewClient(other.config).List(nil)); len(seen) != 0 {
		t.Errorf("another account sees %v", fmt.Sprint(seen))
	}
}
