// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// checkAnswer validates an answer of the operation against the description.
func (d description) checkAnswer(method, pattern string, got *answer) {
	d.t.Helper()
	answered := d.resolve(d.at("paths", pattern, strings.ToLower(method), "responses", fmt.Sprint(got.status)))
	if answered == nil {
		d.t.Errorf("%s %s: the status %d is not described", method, pattern, got.status)
		return
	}
	content, _ := answered["content"].(object)
	if got.text == "" || content == nil {
		if got.text != "" || content != nil {
			d.t.Errorf("%s %s: %d with body %q, described %v", method, pattern, got.status, got.text, content)
		}
		return
	}
	media, _ := content["application/json"].(object)
	for _, problem := range d.violations("answer", media["schema"], got.body) {
		d.t.Errorf("%s %s: %s", method, pattern, problem)
	}
}

// operationCase is a call of an operation.
type operationCase struct{ method, pattern, id, body string }

// endpointCases return calls about endpoints, events and what agents have open; backend is the id
// of one.
func (a *api) endpointCases(backend string) []operationCase {
	a.t.Helper()
	session, lost := a.Session(), a.Session()
	e := a.Bind(session, "http://api.demo").Endpoint
	a.Bind(lost, "tcp://lost.demo:1")
	a.EndSession(lost)
	tunnel, _, err := a.Store.StartTunnel(a.t.Context(),
		account.LabelledTunnel{AccountID: a.AccountID, TunnelSession: account.Ref{ID: session},
			Labels: map[string]string{"app": "api"}}, account.TunnelResume{})
	storetest.Must(a.t, err)
	cloud := a.cloud("http://cloud.demo", "")
	event := into[auditPage](a.get("/events").want(200)).Events[0].ID
	return []operationCase{
		{"GET", "/events", "", ""}, {"GET", "/events/{id}", event, ""},
		{"GET", "/endpoints", "", ""}, {"GET", "/endpoints/{id}", e.ID, ""}, {"GET", "/endpoints/{id}", "ep-none", ""},
		{"GET", "/tunnel_sessions", "", ""}, {"GET", "/tunnel_sessions/{id}", session, ""},
		{"POST", "/tunnel_sessions/{id}/stop", session, ""}, {"POST", "/tunnel_sessions/{id}/restart", session, "{}"},
		{"POST", "/endpoints", "", `{"url":"http://made.demo","type":"cloud","bindings":["kubernetes"],` +
			`"traffic_policy":"a: b","backend_id":"` + backend + `","pooling_enabled":false}`},
		{"POST", "/endpoints", "", `{"url":"http://api.demo"}`}, {"GET", "/endpoints/{id}", cloud, ""},
		{"PATCH", "/endpoints/{id}", cloud, `{"description":"x"}`},
		{"PATCH", "/endpoints/{id}", e.ID, `{"description":"x"}`}, {"DELETE", "/endpoints/{id}", cloud, ""},
		{"GET", "/tunnels", "", ""}, {"GET", "/tunnels/{id}", tunnel.ID, ""},
	}
}

func (a *api) operatorCases() []operationCase {
	a.t.Helper()
	full := `{"description":"d","metadata":"m","enabled_features":["bindings"],"region":"eu","cluster_uid":"u",` +
		`"deployment":{"name":"n","namespace":"s","version":"1","cluster_name":"c"},` +
		`"binding":{"endpoint_selectors":["demo"],"ingress_endpoint":"x","csr":null}}`
	id := into[account.Operator](a.do("POST", "/kubernetes_operators", a.admin, full).want(201)).ID
	return []operationCase{
		{"GET", "/openapi.json", "", ""},
		{"POST", "/kubernetes_operators", "", full}, {"POST", "/kubernetes_operators", "", "{}"},
		{"POST", "/kubernetes_operators", "", `{"x":1,"description":2}`},
		{"GET", "/kubernetes_operators", "", ""}, {"GET", "/kubernetes_operators/{id}", id, ""},
		{"PATCH", "/kubernetes_operators/{id}", id, `{"region":"us"}`},
		{"GET", "/kubernetes_operators/{id}/bound_endpoints", id, ""},
		{"DELETE", "/kubernetes_operators/{id}", id, ""},
	}
}

func (a *api) credentialCases() []operationCase {
	a.t.Helper()
	key := into[account.APIKey](a.do("POST", "/api_keys", a.admin, "{}").want(201)).ID
	token := into[account.Authtoken](a.do("POST", "/credentials", a.admin, "{}").want(201)).ID
	return []operationCase{
		{"POST", "/api_keys", "", `{"expires_at":"2030-01-01T00:00:00Z","scopes":["read","operator"]}`},
		{"GET", "/api_keys", "", ""}, {"GET", "/api_keys/{id}", key, ""},
		{"PATCH", "/api_keys/{id}", key, `{"metadata":"x"}`},
		{"DELETE", "/api_keys/{id}", key, ""}, {"DELETE", "/api_keys/{id}", key, ""},
		{"POST", "/credentials", "", `{"expires_at":"2030-01-01T00:00:00Z"}`}, {"GET", "/credentials", "", ""},
		{"GET", "/credentials/{id}", token, ""},
		{"PATCH", "/credentials/{id}", token, `{"acl":["connect:*"]}`}, {"PATCH", "/credentials/{id}", token, "["},
		{"DELETE", "/credentials/{id}", token, ""},
	}
}

func (a *api) clusterCases() []operationCase {
	a.t.Helper()
	id := a.do("POST", "/clusters", a.admin, clusterBody(a.t, "prod", "k1")).want(201).body["id"].(string)
	return []operationCase{
		{"POST", "/clusters", "", clusterBody(a.t, "eu", "k2")}, {"POST", "/clusters", "", "{}"},
		{"GET", "/clusters", "", ""}, {"GET", "/clusters/{id}", id, ""},
		{"PATCH", "/clusters/{id}", id, `{"issuer":"https://issuer.example.com"}`},
		{"DELETE", "/clusters/{id}", id, ""}, {"DELETE", "/clusters/{id}", id, ""},
		{"POST", "/cluster_keys", "", `{"jwks":` + keySet(a.t, "k3") + `}`},
	}
}

func (a *api) identityCases() []operationCase {
	a.t.Helper()
	user, session := a.login("alice")
	return []operationCase{
		{"GET", "/app/users", "", ""}, {"GET", "/app/users/{id}", user, ""},
		{"GET", "/app/users/{id}/endpoints", user, ""},
		{"GET", "/app/sessions", "", ""},
		{"GET", "/app/sessions/{id}", session, ""}, {"DELETE", "/app/sessions/{id}", session, ""},
		{"DELETE", "/app/users/{id}/sessions", user, ""}, {"DELETE", "/app/users/{id}", user, ""},
		{"DELETE", "/app/users/{id}", user, ""},
	}
}

// backendCases return calls about backends; child is one that others name.
func (a *api) backendCases(child string) []operationCase {
	a.t.Helper()
	unused := a.backendOfEachKind()
	cases := []operationCase{{"DELETE", "/backends/static/{id}", child, ""},
		{"PATCH", "/backends/failover/{id}", unused[account.BackendFailover], `{"health":{"http_status":[503],` +
			`"window_seconds":30,"min_answers":7,"failure_percent":60,"min_clients":2}}`}}
	for kind, id := range unused {
		at := "/backends/" + string(kind)
		cases = append(cases, operationCase{"GET", at, "", ""}, operationCase{"GET", at + "/{id}", id, ""},
			operationCase{"POST", at, "", backendBodies(child)[kind]},
			operationCase{"POST", at, "", "{}"}, operationCase{"PATCH", at + "/{id}", id, `{"metadata":"x"}`},
			operationCase{"DELETE", at + "/{id}", id, ""})
	}
	return cases
}

// TestOpenAPI_MatchesAnswers validates an answer of every operation, and refusals, against the
// description.
func TestOpenAPI_MatchesAnswers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, admitParts, func(o *apiserver.Options) { o.SessionEnder, o.Limits.Burst = &sessionEnder{}, 1000 })
	d := a.description()
	backend := a.Static().ID
	called := map[string]bool{}
	for _, c := range slices.Concat(a.endpointCases(backend), a.operatorCases(), a.credentialCases(),
		a.clusterCases(), a.identityCases(), a.backendCases(backend)) {
		called[c.method+" "+c.pattern] = true
		d.checkAnswer(c.method, c.pattern, a.do(c.method, strings.ReplaceAll(c.pattern, "{id}", c.id), a.admin, c.body))
	}
	d.checkAnswer("GET", "/endpoints", a.do("GET", "/endpoints", "flk_none", ""))
	d.checkAnswer("POST", "/api_keys", a.do("POST", "/api_keys", a.key(a.AccountID, account.ScopeRead), "{}"))
	d.checkAnswer("GET", "/endpoints", a.get("/endpoints?resource_version=1-1"))
	d.eachOperation(func(method, pattern string, _ object) {
		if !called[method+" "+pattern] {
			t.Errorf("no request was sent to %s %s", method, pattern)
		}
	})
	a.checkWatchLines(d)
}

// checkWatchLines validates the lines of a watch against their description.
func (a *api) checkWatchLines(d description) {
	t := a.t
	t.Helper()
	line, _ := d.at("paths", "/endpoints", "get", "responses", "200", "content", "application/x-ndjson",
		"schema").(object)
	w := a.watch(a.admin, account.ResourceVersion{Epoch: a.List().Version.Epoch}, "")
	for range 2 {
		var sent any
		raw, err := json.Marshal(w.nextChange())
		storetest.Must(t, err)
		storetest.Must(t, json.Unmarshal(raw, &sent))
		for _, problem := range d.violations("line", line, sent) {
			t.Error(problem)
		}
	}
}
