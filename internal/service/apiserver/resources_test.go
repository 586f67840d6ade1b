// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// endpointPage is the shape of a list of endpoints as clients see it.
type endpointPage struct {
	Endpoints       []account.Endpoint `json:"endpoints"`
	URI             string             `json:"uri"`
	NextPageURI     *string            `json:"next_page_uri"`
	ResourceVersion string             `json:"resource_version"`
	AccountID       string             `json:"account_id"`
	StoreID         string             `json:"store_id"`
}

func TestEndpoints_HaveDocumentedShape(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	session := a.Session()
	e := a.Bind(session, "http://api.demo").Endpoint
	got := a.get("/endpoints/" + e.ID).want(200)
	fields := []string{"id", "uri", "url", "public_url", "proto", "scheme", "hostport", "host", "port", "type",
		"bindings",
		"name", "description", "metadata",
		"pooling_enabled", "upstream_url", "upstream_protocol", "service_labels", "seal_key", "tunnel_session", "principal", "region",
		"created_at",
		"updated_at", "status", "offline_since",
		"projection_id", "backend_id", "service_export", "resource_version", "owner"}
	for _, f := range fields {
		if _, ok := got.body[f]; !ok {
			t.Errorf("no field %s", f)
		}
	}
	if len(got.body) != len(fields) {
		t.Errorf("%d fields, want %d: %s", len(got.body), len(fields), got.text)
	}
	for field, want := range map[string]any{"uri": base + "/endpoints/" + e.ID, "url": "http://api.demo", "port": 80.0,
		"created_at": "2026-11-20T08:00:00Z",
		"status":     "online", "offline_since": nil} {
		if got.body[field] != want {
			t.Errorf("%s: %v, want %v", field, got.body[field], want)
		}
	}
	read := into[account.Endpoint](got)
	storetest.Equal(t, "session", *read.TunnelSession,
		account.Ref{ID: session, URI: base + "/tunnel_sessions/" + session})
	storetest.Equal(t, "principal", *read.Principal,
		account.Ref{ID: a.TokenID, URI: base + "/credentials/" + a.TokenID})
}

func TestEndpoints_PagesKeepFiltersAndVersion(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	session := a.Session()
	var want []string
	for i := range 5 {
		a.Clock.Step(time.Millisecond)
		want = append(want, a.Bind(session, fmt.Sprintf("http://e%d.demo", i)).Endpoint.ID)
	}
	slices.Reverse(want)
	first := a.List().Version.String()
	var got []string
	for path := "/endpoints?limit=2&binding=kubernetes"; path != ""; {
		page := into[endpointPage](a.get(path).want(200))
		for _, e := range page.Endpoints {
			got = append(got, e.ID)
		}
		storetest.Equal(t, "version", page.ResourceVersion, first)
		storetest.Equal(t, "uri", page.URI, base+"/endpoints")
		storetest.Equal(t, "account", page.AccountID, a.AccountID)
		storetest.Equal(t, "store", page.StoreID, a.Store.StoreID())
		a.Bind(session, fmt.Sprintf("http://later%d.demo", len(got))) // changes while paging do not move the version
		if path = ""; page.NextPageURI != nil {
			next, err := url.Parse(*page.NextPageURI)
			storetest.Must(t, err)
			storetest.Equal(t, "absolute", next.Scheme+"://"+next.Host, base)
			storetest.Equal(t, "filters", next.Query().Get("limit")+next.Query().Get("binding"), "2kubernetes")
			path = next.RequestURI()
		}
	}
	storetest.Equal(t, "ids", fmt.Sprint(got), fmt.Sprint(want))
	page := into[endpointPage](a.get("/endpoints?url=HTTP://E3.demo:80/").want(200))
	storetest.Equal(t, "by url", page.Endpoints[0].URL+fmt.Sprint(len(page.Endpoints)), "http://e3.demo1")
	empty := a.get("/endpoints?binding=public").want(200)
	if !strings.Contains(empty.text, `"endpoints":[]`) {
		t.Errorf("an empty list is %s", empty.text)
	}
	v := a.List().Version
	for _, bad := range []account.ResourceVersion{{Epoch: v.Epoch, Seq: v.Seq + 1}, {Epoch: v.Epoch + 1}} {
		a.get("/endpoints?resource_version="+bad.String()).want(410, account.CodeGone)
	}
}

func TestQuery_ListsAllBrokenRules(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	rules := a.get(
		"/endpoints?limit=0&before_id=%00&binding=x&url=a.b:1&watch=yes&resource_version=1&colour=red&limit=1").
		want(400, account.CodeInvalid).rules()
	for _, field := range []string{"limit", "before_id", "binding", "url", "watch", "resource_version", "colour"} {
		if rules[field] == "" {
			t.Errorf("%s is not told; only %v", field, rules)
		}
	}
	for _, bad := range []string{"limit=1001", "limit=1e3", "limit=-1", "limit=", "before_id=", "resource_version=",
		"url=", "binding=", "a=%zz", "a;b", "watch="} {
		a.get("/endpoints?"+bad).want(400, account.CodeInvalid)
	}
	for _, path := range []string{"/endpoints/x?limit=1", "/tunnel_sessions?url=x", "/tunnel_sessions/x?a=1",
		"/kubernetes_operators?binding=kubernetes", "/kubernetes_operators/x?a=1"} {
		a.get(path).want(400, account.CodeInvalid)
	}
	a.get("/endpoints?before_id=does-not-exist").want(200)
}

// TestCloudEndpoints_URLTable runs the URL parser's table through the API.
func TestCloudEndpoints_URLTable(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Limits.Burst = 1000 })
	a.Bind(a.Session(), "http://a.b")
	at := func(raw string) *answer { return a.get("/endpoints?url=" + url.QueryEscape(raw)) }
	for _, raw := range accounttest.SameURLs() {
		if page := into[endpointPage](at(raw).want(200)); len(page.Endpoints) != 1 ||
			page.Endpoints[0].URL != "http://a.b" {
			t.Errorf("%q is not http://a.b", raw)
		}
	}
	for _, row := range accounttest.RefusedURLs() {
		if _, err := account.ParseAnyURL(row.URL); err == nil {
			continue // another binding's
		}
		if rules := at(row.URL).want(400, account.CodeInvalid).rules(); !strings.Contains(rules["url"], row.Names) {
			t.Errorf("%q: rule %q does not name %q", row.URL, rules["url"], row.Names)
		}
	}
}

func TestTunnelSessions_List(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	session := a.Session()
	a.Clock.Step(time.Second)
	newer := a.Session()
	got := a.get("/tunnel_sessions?limit=1").want(200)
	page := into[struct {
		Sessions    []account.TunnelSession `json:"tunnel_sessions"`
		NextPageURI string                  `json:"next_page_uri"`
	}](got)
	storetest.Equal(t, "newest", page.Sessions[0].ID, newer)
	storetest.Equal(t, "next", page.NextPageURI, base+"/tunnel_sessions?before_id="+newer+"&limit=1")
	one := a.get("/tunnel_sessions/" + session).want(200)
	for field, want := range map[string]any{"uri": base + "/tunnel_sessions/" + session, "agent_version": "1.0.0",
		"ip": "203.0.113.9", "os": "linux",
		"region": "home", "transport": "tls", "started_at": "2026-11-20T08:00:00Z", "metadata": ""} {
		if one.body[field] != want {
			t.Errorf("%s: %v, want %v", field, one.body[field], want)
		}
	}
	a.get("/tunnel_sessions/"+a.TokenID).want(404, account.CodeNotFound)
}

// sessionEnder records which sessions the API stops and restarts.
type sessionEnder struct{ asked []string }

func (e *sessionEnder) StopSession(_ context.Context, by account.Caller, id string) error {
	return e.end("stop", by.AccountID, id)
}

func (e *sessionEnder) RestartSession(_ context.Context, by account.Caller, id string) error {
	return e.end("restart", by.AccountID, id)
}

func (e *sessionEnder) end(how, accountID, id string) error {
	e.asked = append(e.asked, how+" "+accountID+" "+id)
	if id == "ts-none" {
		return account.Errorf(account.CodeNotFound, "no")
	}
	return nil
}

func TestTunnelSessions_StopAndRestart(t *testing.T) {
	t.Parallel()
	ended := &sessionEnder{}
	a := newAPI(t, func(o *apiserver.Options) { o.SessionEnder = ended })
	other, _ := a.NewAccount("other")
	a.do("POST", "/tunnel_sessions/ts-1/stop", a.admin, "").want(204)
	a.do("POST", "/tunnel_sessions/ts-2/restart", a.admin, "{}").want(204)
	a.do("POST", "/tunnel_sessions/ts-3/stop", a.key(other, account.ScopeAdmin), "").want(204)
	a.do("POST", "/tunnel_sessions/ts-none/stop", a.admin, "").want(404, account.CodeNotFound)
	want := fmt.Sprintf("[stop %[1]s ts-1 restart %[1]s ts-2 stop %[2]s ts-3 stop %[1]s ts-none]", a.AccountID, other)
	storetest.Equal(t, "asked", fmt.Sprint(ended.asked), want)
	for _, path := range []string{"/tunnel_sessions/ts-4/stop", "/tunnel_sessions/ts-4/restart"} {
		a.do("POST", path, a.key(a.AccountID, account.ScopeRead, account.ScopeOperator), "").
			want(403, account.CodeScope)
		a.do("POST", path, a.admin, `{"id":"ts-5"}`).want(400, account.CodeInvalid)
		a.do("POST", path, a.admin, `[]`).want(400, account.CodeMalformed)
		a.do("POST", path+"?force=true", a.admin, "").want(400, account.CodeInvalid)
		a.get(path).want(405, account.CodeMethod)
	}
	storetest.Equal(t, "asked after refusals", len(ended.asked), 4)
}

func TestObjects_HideOtherAccounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	other, _ := a.NewAccount("other")
	theirs := a.key(other, account.ScopeAdmin)
	session := a.Session()
	e := a.Bind(session, "http://api.demo").Endpoint
	o := into[account.Operator](a.do("POST", "/kubernetes_operators", a.admin, `{"description":"mine"}`).want(201))
	for _, path := range []string{"/endpoints/" + e.ID, "/tunnel_sessions/" + session,
		"/kubernetes_operators/" + o.ID} {
		unknown := a.do("GET", path[:len(path)-1]+"0", theirs, "").want(404, account.CodeNotFound)
		foreign := a.do("GET", path, theirs, "").want(404, account.CodeNotFound)
		if strip := strings.NewReplacer(path[strings.LastIndex(path, "/")+1:], "ID",
			path[strings.LastIndex(path, "/")+1:len(path)-1]+"0", "ID",
			foreign.header.Get("Operation-Id"), "OP", unknown.header.Get("Operation-Id"),
			"OP"); strip.Replace(foreign.text) != strip.Replace(unknown.text) {
			t.Errorf("%s: another account's object and none differ:\n%s%s", path, foreign.text, unknown.text)
		}
	}
	a.do("PATCH", "/kubernetes_operators/"+o.ID, theirs, "{}").want(404)
	a.do("DELETE", "/kubernetes_operators/"+o.ID, theirs, "").want(404)
	for _, path := range []string{"/endpoints", "/endpoints?url=http://api.demo", "/endpoints?before_id=zz",
		"/tunnel_sessions", "/kubernetes_operators"} {
		got := a.do("GET", path, theirs, "").want(200)
		for _, secret := range []string{e.ID, session, o.ID, a.AccountID, "mine"} {
			if strings.Contains(got.text, secret) {
				t.Errorf("%s shows %s of another account", path, secret)
			}
		}
	}
	a.get("/kubernetes_operators/" + o.ID).want(200)
}

func TestOperators_CreateUpdateDelete(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	selector := `ep.hostname.endsWith('.prod') && ep.name != "a,b"` + "\n// ü"
	body := fmt.Sprintf(
		`{"description":"eu","metadata":"m","enabled_features":["bindings"],"region":"eu","cluster_uid":"6c0f",
		"deployment":{"name":"fairlead","namespace":"system","version":"1.0","cluster_name":"c1"},
		"binding":{"endpoint_selectors":[%q],"ingress_endpoint":"x","csr":"ignored"}}`, selector)
	made := a.do("POST", "/kubernetes_operators", a.admin, body).want(201)
	o := into[account.Operator](made)
	storetest.Equal(t, "selector", o.Binding.EndpointSelectors[0], selector)
	storetest.Equal(t, "uri", o.URI, base+"/kubernetes_operators/"+o.ID)
	if !strings.HasPrefix(o.Principal.URI, base+"/api_keys/ak-") {
		t.Errorf("principal %+v", o.Principal)
	}
	again := a.do("POST", "/kubernetes_operators", a.admin, body).want(200)
	storetest.Equal(t, "same answer", again.text, made.text)
	storetest.Equal(t, "read", a.get("/kubernetes_operators/"+o.ID).want(200).text, made.text)

	at := "/kubernetes_operators/" + o.ID
	a.Clock.Step(time.Minute)
	storetest.Equal(t, "empty patch", a.do("PATCH", at, a.admin, "{}").want(200).text, made.text)
	patched := into[account.Operator](
		a.do("PATCH", at, a.admin,
			`{"description":null,"deployment":{"version":"1.1"},"binding":{"endpoint_selectors":[]}}`).
			want(200))
	storetest.Equal(t, "null is the default", patched.Description, "")
	storetest.Equal(t, "absent is unchanged", patched.Metadata, "m")
	storetest.Equal(t, "objects are merged", patched.Deployment,
		account.OperatorDeployment{Name: "fairlead", Namespace: "system", Version: "1.1", ClusterName: "c1"})
	storetest.Equal(t, "lists are replaced", len(patched.Binding.EndpointSelectors), 0)
	storetest.Equal(t, "merged binding", patched.Binding.IngressEndpoint, "x")
	storetest.Equal(t, "updated", patched.UpdatedAt.Equal(a.Clock.Now()), true)
	none := a.do("PATCH", at, a.admin, `{"binding":null,"enabled_features":null}`).want(200)
	if none.body["binding"] != nil || fmt.Sprint(none.body["enabled_features"]) != "[]" {
		t.Errorf("after null: %s", none.text)
	}
	a.do("PATCH", at, a.admin, `{"deployment":{"namespace":"elsewhere"}}`).want(400, account.CodeInvalid)
	a.do("PATCH", at, a.admin, `{"deployment":null}`).want(400, account.CodeInvalid)
	list := into[struct{ Operators []account.Operator }](a.get("/kubernetes_operators").want(200))
	storetest.Equal(t, "listed", len(list.Operators), 1)
	storetest.Equal(t, "no content", a.do("DELETE", at, a.admin, "").want(204).text, "")
	a.get(at).want(404)
	a.do("DELETE", at, a.admin, "").want(404)
}

func TestOperators_OperatorKeySeesOwn(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	mine, other, reader := a.key(a.AccountID, account.ScopeOperator), a.key(a.AccountID, account.ScopeOperator),
		a.key(a.AccountID, account.ScopeRead, account.ScopeOperator)
	register := func(key, uid string) string {
		body := fmt.Sprintf(`{"cluster_uid":%q,"deployment":{"name":"f","namespace":"n"}}`, uid)
		return into[account.Operator](a.do("POST", "/kubernetes_operators", key, body)).ID
	}
	var own []string
	for i := range 3 {
		a.Clock.Step(time.Millisecond)
		own = append(own, register(mine, fmt.Sprint("mine", i)))
		a.Clock.Step(time.Millisecond)
		register(other, fmt.Sprint("other", i))
	}
	theirs := register(other, "other0")
	var got []string
	for path := "/kubernetes_operators?limit=2"; path != ""; {
		page := into[struct {
			Operators   []account.Operator
			NextPageURI string `json:"next_page_uri"`
		}](a.do("GET", path, mine, "").want(200))
		for _, o := range page.Operators {
			got = append(got, o.ID)
		}
		path = strings.TrimPrefix(page.NextPageURI, base)
	}
	slices.Reverse(got)
	storetest.Equal(t, "own", fmt.Sprint(got), fmt.Sprint(own))
	a.do("GET", "/kubernetes_operators/"+own[0], mine, "").want(200)
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		a.do(method, "/kubernetes_operators/"+theirs, mine, map[bool]string{true: "{}"}[method == "PATCH"]).
			want(404, account.CodeNotFound)
	}
	a.do("GET", "/kubernetes_operators/"+theirs, reader, "").want(200)
	a.do("DELETE", "/kubernetes_operators/"+theirs, reader, "").want(404)
	// A rotated key registers the same installation, which is then its own.
	rotated := a.key(a.AccountID, account.ScopeOperator)
	storetest.Equal(t, "id after rotation", register(rotated, "mine0"), own[0])
	a.do("DELETE", "/kubernetes_operators/"+own[0], mine, "").want(404)
	a.do("DELETE", "/kubernetes_operators/"+own[0], rotated, "").want(204)
}

func TestBody_RefusesInvalid(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	post := func(body string) *answer { return a.do("POST", "/kubernetes_operators", a.admin, body) }
	for name, body := range map[string]string{"no object": `[]`, "null": `null`, "cut": `{"description":"x"`,
		"trailing": `{} {}`, "bad UTF-8": "{\"description\":\"\xff\"}",
		"single quotes": `{'a':1}`, "deep": strings.Repeat(`{"binding":`, 20000), "blank": " "} {
		t.Run(name, func(t *testing.T) { post(body).want(400, account.CodeMalformed) })
	}
	rules := post(
		`{"description":1,"metadata":"\u0000","colour":"red","cluster_uid":"u","enabled_features":["bindings",null,7],"region":"\ud800",
		"deployment":{"size":1},"binding":[],"description":2,"Metadata":"x"}`).want(400, account.CodeInvalid).rules()
	for _, field := range []string{"description", "metadata", "colour", "enabled_features[1]", "enabled_features[2]",
		"region", "deployment.size", "deployment.name",
		"deployment.namespace", "binding", "Metadata"} {
		if rules[field] == "" {
			t.Errorf("%s is not told; only %v", field, rules)
		}
	}
	for _, fine := range []string{`{"description":"\ufffd"}`, `{"description":"` + "\uFFFD" + `"}`,
		`{"description":"\ud83d\ude00"}`,
		`{"binding":{}}`, `{"binding":{"endpoint_selectors":null,"csr":null}}`} {
		post(fine).want(201)
	}
	for _, wrong := range []string{`["tunnels"]`, `["ingress","Ingress"]`} {
		got := post(`{"enabled_features":` + wrong + `}`).want(400).rules()
		if len(got) != 1 || !strings.Contains(fmt.Sprint(got), "bindings, ingress, gateway") {
			t.Errorf("%s: rules %v", wrong, got)
		}
	}
	post(`{"metadata":"`+strings.Repeat("x", 4097)+`"}`).want(400, account.CodeInvalid)
	post(`{"metadata":"`+strings.Repeat("x", 1<<20)+`"}`).want(413, account.CodeTooLarge)
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded"} {
		req := a.request("POST", "/kubernetes_operators", a.admin, "{}")
		req.Header.Set("Content-Type", kind)
		a.send(req).want(415, account.CodeContentType)
	}
	req := a.request("POST", "/kubernetes_operators", a.admin, "{}")
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	a.send(req).want(http.StatusCreated)
	req = a.request("POST", "/kubernetes_operators", a.admin, "")
	req.Header.Set("Content-Type", "application/json")
	a.send(req).want(400, account.CodeMalformed)
}
