// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

func TestCloudEndpoints_CreateUpdateDelete(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	start := a.List().Version
	leaf := a.Static().ID
	made := into[account.Endpoint](a.do("POST", "/endpoints", a.admin,
		`{"url":"HTTP://Shop.demo:80/","type":"cloud","bindings":["kubernetes"],"name":"n","description":"d","metadata":"m","backend_id":"`+leaf+`","pooling_enabled":true}`).want(201))
	if made.URL != "http://shop.demo" || made.Type != account.TypeCloud || made.Status != account.StatusOnline ||
		made.URI != base+"/endpoints/"+made.ID || made.TunnelSession != nil ||
		made.Name+made.Description+made.Metadata != "ndm" || made.BackendID != leaf || !made.PoolingEnabled ||
		!strings.HasPrefix(made.Principal.URI, base+"/api_keys/ak-") {
		t.Errorf("made %+v", made)
	}
	path := "/endpoints/" + made.ID
	before := a.get(path).want(200).text
	at := a.List().Version
	a.Clock.Step(time.Hour)
	for _, same := range []string{`{}`,
		`{"id":"` + made.ID +
			`","url":"http://shop.demo:80","type":"cloud","bindings":["kubernetes"],"name":"n","description":"d"}`,
		`{"url":"","type":"","bindings":null,"backend_id":"` + leaf + `"}`} {
		storetest.Equal(t, "no difference", a.do("PATCH", path, a.admin, same).want(200).text, before)
	}
	a.Expect(at)
	rules := a.do("PATCH", path, a.admin,
		`{"url":"http://other.demo","type":"agent","bindings":["internal"],"name":"x","id":"ep-1"}`).
		want(400, account.CodeInvalid).rules()
	for _, field := range []string{"url", "type", "bindings", "name", "id"} {
		if !strings.Contains(rules[field], "does not change") {
			t.Errorf("%s: %q", field, rules[field])
		}
	}
	changed := into[account.Endpoint](
		a.do("PATCH", path, a.admin, `{"description":null,"metadata":"x","backend_id":null,"pooling_enabled":null}`).
			want(200))
	storetest.Equal(t, "changed", fmt.Sprint(changed.Description, changed.Metadata, changed.BackendID,
		changed.PoolingEnabled), "xfalse")
	storetest.Equal(t, "updated", changed.UpdatedAt, a.Clock.Now())
	a.do("DELETE", path, a.admin, "").want(204)
	a.do("DELETE", path, a.admin, "").want(404, account.CodeNotFound)
	a.Expect(start, account.Added, account.Modified, account.Deleted)
}

func TestCloudEndpoints_RefuseInvalid(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	answer, mine := a.HTTPResponse().ID, a.Bind(a.Session(), "http://agent.demo").Endpoint.ID
	for body, want := range map[string]string{
		`{}`:                  "url: is required",
		`{"url":"shop"}`:      "url: ",
		`{"url":"shop.demo"}`: `url: the scheme is missing; did you mean "http://shop.demo"?`,
		`{"url":"tcp://a.b"}`: "url: a tcp endpoint needs a port",
		`{"url":"http://a.b","bindings":["kubernetes","public"]}`:      "bindings: an endpoint has exactly one",
		`{"url":"http://a.b","type":"agent"}`:                          "type: only endpoints of type",
		`{"url":"http://a.b","traffic_policy":{"on_http_request":[]}}`: "traffic_policy: must be a string",
		`{"url":"http://a.b","traffic_policy":"wrong"}`:                "traffic_policy: line 1, column 1",
		`{"url":"http://a.b","traffic_policy":"` + strings.Repeat("x", 65537) +
			`"}`: "traffic_policy: has 65537 bytes",
		`{"url":"http://a.b","traffic_policy":"secret: redacted:01234567"}`: "traffic_policy: stands for a secret",
		`{"url":"http://a.b","backend_id":"bkdst-none"}`:                    "backend_id: names no backend of this account",
		`{"url":"http://a.b","backend_id":"` + answer + `","traffic_policy":"` + answer +
			`"}`: "backend_id: the traffic_policy has a forward-backend",
		`{"url":"tcp://a.b:1","backend_id":"` + answer +
			`"}`: "backend_id: a tcp endpoint cannot",
		`{"url":"http://a.b","pooling_enabled":"yes","x":1}`:                    "x: unknown field",
		`{"url":"http://a.b","description":"` + strings.Repeat("x", 256) + `"}`: "description: has 256 bytes",
		`{"url":"https://app.example.com","bindings":["public"]}`:               "url: ",
	} {
		field, rule, _ := strings.Cut(want, ": ")
		if got := a.do("POST", "/endpoints", a.admin, body).want(400, account.CodeInvalid).
			rules()[field]; !strings.HasPrefix(
			got, rule) || got == "" {
			t.Errorf("%.80s: %s: %q, want %q", body, field, got, rule)
		}
	}
	a.do("POST", "/endpoints", a.admin, `{"url":"http://agent.demo"}`).want(409, account.CodeURLTaken)
	for method, body := range map[string]string{"PATCH": `{"description":"x"}`, "DELETE": ""} {
		if got := a.do(method, "/endpoints/"+mine, a.admin, body).want(400, account.CodeInvalid).
			rules()["type"]; !strings.Contains(got, "is an agent's") {
			t.Errorf("%s of an agent's: %q", method, got)
		}
	}
	for _, scope := range []account.Scope{account.ScopeRead, account.ScopeOperator} {
		a.do("POST", "/endpoints", a.key(a.AccountID, scope), `{"url":"http://a.b"}`).want(403, account.CodeScope)
	}
	storetest.Equal(t, "endpoints", len(a.List().Endpoints), 1)
}

func TestCloudEndpoints_RefusePolicyWithoutChecker(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.CheckPolicy = nil })
	a.do("POST", "/endpoints", a.admin, `{"url":"http://a.b","traffic_policy":"a: b"}`).want(400, account.CodeInvalid)
	a.do("PATCH", "/endpoints/"+a.cloud("http://a.b", `,"traffic_policy":""`), a.admin, `{"traffic_policy":null}`).
		want(200)
}

const loginPolicy = `# who may come\non_http_request:\n  - actions:\n      - type: oidc\n        config: {client_id: x, client_secret: hush} # ours\n`

func TestCloudEndpoints_RedactPolicySecrets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, admitParts)
	start := a.List().Version
	id := a.cloud("http://shop.demo", `,"traffic_policy":"`+loginPolicy+`"`)
	path := "/endpoints/" + id
	marked := strings.Replace(strings.ReplaceAll(loginPolicy, `\n`, "\n"), "hush",
		`"`+testMark(a.AccountID, "hush")+`"`,
		1)
	shown := into[account.Endpoint](a.get(path).want(200)).TrafficPolicy
	storetest.Equal(t, "shown", shown, marked)
	at := a.List().Version
	same := into[account.Endpoint](a.do("PATCH", path, a.admin, fmt.Sprintf(`{"traffic_policy":%q}`, marked)).want(200))
	storetest.Equal(t, "patched with what was shown", same.TrafficPolicy, marked)
	a.Expect(at)
	longer := "# another\n" + marked
	a.do("PATCH", path, a.admin, fmt.Sprintf(`{"traffic_policy":%q}`, longer)).want(200)
	if kept := a.Endpoint(id).TrafficPolicy; !strings.Contains(kept, `client_secret: "hush"}`) ||
		!strings.HasPrefix(kept, "# another\n# who may come") {
		t.Errorf("kept:\n%s", kept)
	}
	a.do("PATCH", path, a.admin, `{"traffic_policy":"secret: redacted:01234567"}`).want(400, account.CodeInvalid)
	o := a.operatorWith(a.admin, "{}")
	w := a.watch(a.admin, start, "")
	var all strings.Builder
	fmt.Fprint(&all, a.get("/endpoints").text, a.get("/kubernetes_operators/"+o+"/bound_endpoints").text,
		a.get(path).text,
		a.log.String())
	for range 2 {
		fmt.Fprintf(&all, "%+v", w.nextChange())
	}
	if strings.Contains(all.String(), "hush") || strings.Count(all.String(), "who may come") != 1 {
		t.Errorf("somewhere a policy is shown that should not be:\n%s", all.String())
	}
}

func TestTunnels_List(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	session := a.Session()
	made, _, err := a.Store.StartTunnel(t.Context(),
		account.LabelledTunnel{AccountID: a.AccountID, TunnelSession: account.Ref{ID: session},
			Labels:   map[string]string{"app": "api"},
			Metadata: "m", ForwardsTo: "http://localhost:8080", UpstreamProtocol: "http1"}, account.TunnelResume{})
	storetest.Must(t, err)
	want := fmt.Sprintf(
		`{"id":%q,"uri":"%s/tunnels/%s","labels":{"app":"api"},"metadata":"m","forwards_to":"http://localhost:8080","upstream_protocol":"http1","region":"home",`+
			`"started_at":"2026-11-20T08:00:00Z","tunnel_session":{"id":%q,"uri":"%s/tunnel_sessions/%s"}}`, made.ID,
		base,
		made.ID, session, base, session)
	storetest.Equal(t, "read", strings.TrimSpace(a.get("/tunnels/"+made.ID).want(200).text), want)
	storetest.Equal(t, "list", strings.TrimSpace(a.get("/tunnels").want(200).text),
		`{"tunnels":[`+want+`],"uri":"`+base+`/tunnels","next_page_uri":null}`)
	a.EndSession(session)
	a.get("/tunnels/"+made.ID).want(404, account.CodeNotFound)
}
