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

// madeBackend is what every kind of backends answers with.
type madeBackend struct{ ID, URI string }

// backendBodies make a backend of each kind; child is one that exists.
func backendBodies(child string) map[account.BackendKind]string {
	return map[account.BackendKind]string{
		account.BackendFailover:     `{"backends":["` + child + `"]}`,
		account.BackendWeighted:     `{"backends":{"` + child + `":5}}`,
		account.BackendTunnelGroup:  `{"labels":{"app":"api"}}`,
		account.BackendHTTPResponse: `{"status_code":503,"headers":{"Content-Type":"text/plain"},"body":"down"}`,
		account.BackendStatic:       `{"address":"db.example.com:5432","tls":{"enabled":true}}`,
	}
}

// backendOfEachKind makes one of each kind and returns their ids.
func (a *api) backendOfEachKind() map[account.BackendKind]string {
	a.t.Helper()
	ids, child := map[account.BackendKind]string{}, a.Static().ID
	for kind, body := range backendBodies(child) {
		a.Clock.Step(time.Millisecond)
		ids[kind] = into[madeBackend](a.do("POST", "/backends/"+string(kind), a.admin, body).want(201)).ID
	}
	return ids
}

// cloud makes a cloud endpoint and returns its id; more are further fields.
func (a *api) cloud(url, more string) string {
	a.t.Helper()
	return into[account.Endpoint](a.do("POST", "/endpoints", a.admin, `{"url":"`+url+`"`+more+`}`).want(201)).ID
}

// firstChild are httpkit.Backends of which one child is active.
type firstChild struct{ idleBackends }

func (firstChild) ActiveChild(string, string) string { return "bkdst-1" }

func TestBackends_HaveDocumentedShapes(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Backends = firstChild{} })
	tunnel, _, err := a.Store.StartTunnel(t.Context(),
		account.LabelledTunnel{AccountID: a.AccountID, TunnelSession: account.Ref{ID: a.Session()},
			Labels: map[string]string{"app": "api", "site": "a"}}, account.TunnelResume{})
	storetest.Must(t, err)
	ref := fmt.Sprintf(`{"id":%q,"uri":"%s/tunnels/%s"}`, tunnel.ID, base, tunnel.ID)
	child := a.Static().ID
	for kind, own := range map[account.BackendKind]string{
		account.BackendFailover: `"backends":["` + child +
			`"],"health":{"http_status":[]},"active_backend":"bkdst-1"`,
		account.BackendWeighted:     `"backends":{"` + child + `":5}`,
		account.BackendTunnelGroup:  `"labels":{"app":"api"},"tunnels":[` + ref + `]`,
		account.BackendHTTPResponse: `"status_code":503,"headers":{"Content-Type":"text/plain"},"body":"down"`,
		account.BackendStatic:       `"address":"db.example.com:5432","tls":{"enabled":true}`,
	} {
		a.Clock.Step(time.Millisecond)
		at := a.Clock.Now().Format(time.RFC3339Nano)
		made := a.do("POST", "/backends/"+string(kind), a.admin, backendBodies(child)[kind]).want(201)
		id := into[madeBackend](made).ID
		want := fmt.Sprintf(
			`{"id":%q,"uri":"%s/backends/%s/%s","created_at":%q,"updated_at":%q,"description":"","metadata":"",%s}`, id,
			base,
			kind, id, at, at, own)
		storetest.Equal(t, "made", strings.TrimSpace(made.text), want)
		storetest.Equal(t, "read", strings.TrimSpace(a.get("/backends/"+string(kind)+"/"+id).want(200).text), want)
		list := a.get("/backends/" + string(kind) + "?limit=1").want(200)
		next := "null"
		if kind == account.BackendStatic {
			next = fmt.Sprintf(`"%s/backends/static?before_id=%s&limit=1"`, base, id)
		}
		storetest.Equal(t, "list", strings.ReplaceAll(strings.TrimSpace(list.text), `\u0026`, "&"),
			fmt.Sprintf(`{"backends":[%s],"uri":"%s/backends/%s","next_page_uri":%s}`, want, base, kind, next))
	}
}

func TestBackends_ApplyPatches(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	ids := a.backendOfEachKind()
	a.Clock.Step(time.Hour)
	const rule = `"window_seconds":30,"min_answers":7,"failure_percent":60,"min_clients":2`
	for _, c := range []struct {
		kind        account.BackendKind
		patch, want string // what the answer has afterwards
	}{
		{account.BackendFailover, `{"health":{"http_status":[503,502]}}`, `"health":{"http_status":[502,503]}`},
		{account.BackendFailover, `{"health":{}}`, `"health":{"http_status":[502,503]}`},
		{account.BackendFailover, `{"health":{` + rule + `}}`, `"health":{"http_status":[502,503],` + rule + `}`},
		{account.BackendFailover, `{"health":{"min_answers":null,"min_clients":0}}`,
			`"health":{"http_status":[502,503],"window_seconds":30,"failure_percent":60}`},
		{account.BackendFailover, `{"health":null}`, `"health":{"http_status":[]}`},
		{account.BackendStatic, `{"tls":{}}`, `"tls":{"enabled":true}`},
		{account.BackendStatic, `{"tls":null,"address":"Other.example.com:1"}`,
			`"address":"other.example.com:1","tls":{"enabled":false}`},
		{account.BackendHTTPResponse, `{"body":"x"}`,
			`"status_code":503,"headers":{"Content-Type":"text/plain"},"body":"x"`},
		{account.BackendHTTPResponse, `{"status_code":null,"headers":null,"body":null}`,
			`"status_code":200,"headers":{},"body":""`},
		{account.BackendTunnelGroup, `{"labels":{"site":"a"},"description":"d"}`, `"labels":{"site":"a"}`},
		{account.BackendTunnelGroup, `{"description":null,"id":"` + ids[account.BackendTunnelGroup] + `"}`,
			`"description":""`},
	} {
		path := "/backends/" + string(c.kind) + "/" + ids[c.kind]
		if got := a.do("PATCH", path, a.admin, c.patch).want(200).text; !strings.Contains(got, c.want) {
			t.Errorf("%s: %s answers %s, without %s", c.kind, c.patch, got, c.want)
		}
		before := a.get(path).want(200).text
		a.Clock.Step(time.Minute)
		// updated_at included
		storetest.Equal(t, "the same again", a.do("PATCH", path, a.admin, c.patch).want(200).text, before)
	}
}

func TestBackends_RefuseInvalid(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	ids := a.backendOfEachKind()
	for _, c := range []struct {
		kind account.BackendKind
		body string
		want []string // fields
	}{
		{"failover", `{}`, []string{"backends"}},
		{"failover", `{"backends":null,"health":7,"metadata":7}`, []string{"backends", "health", "metadata"}},
		{"failover", `{"backends":["x",7],"health":{"http_status":[1,"x",null],"y":1}}`,
			[]string{"backends[1]", "health.http_status[0]", "health.http_status[1]", "health.http_status[2]",
				"health.y"}},
		{"failover", `{"backends":["x"]}`, []string{"backends"}},
		{"failover", `{"backends":["` + ids[account.BackendStatic] + `"],` +
			`"health":{"window_seconds":301,"min_answers":-1,"failure_percent":101,"min_clients":1.5}}`,
			[]string{"health.min_clients", "health.window_seconds", "health.min_answers", "health.failure_percent"}},
		{"weighted", `{"backends":["x"]}`, []string{"backends"}},
		{"weighted", `{"backends":{"x":"y","z":null,"a":-1,"a":1.5}}`,
			[]string{"backends.x", "backends.z", "backends.a"}},
		{"tunnel_group", `{"labels":{"a":7,"":"x"}}`, []string{"labels.a", "labels"}},
		{"tunnel_group", `{"labels":"app=api","tunnels":[]}`, []string{"labels", "tunnels"}},
		{"http_response", `{"status_code":"x","headers":{"a b":"c","n":null},"body":7}`,
			[]string{"status_code", "headers.n", "body"}},
		{"http_response", `{"status_code":99,"headers":{"a b":"c"}}`, []string{"status_code", "headers.a b"}},
		{"static", `{"address":"x","tls":{"enabled":"yes"},"id":"y"}`, []string{"address", "tls.enabled", "id"}},
		{"static", `{"tls":true}`, []string{"address", "tls"}},
	} {
		path := "/backends/" + string(c.kind)
		rules := a.do("POST", path, a.admin, c.body).want(400, account.CodeInvalid).rules()
		for _, field := range c.want {
			if rules[field] == "" {
				t.Errorf("%s %s: %s is not told, only %v", c.kind, c.body, field, rules)
			}
		}
		if c.body != "{}" && !strings.HasPrefix(c.body, `{"tls"`) {
			a.do("PATCH", path+"/"+ids[c.kind], a.admin, c.body).want(400, account.CodeInvalid)
		}
	}
	a.do("PATCH", "/backends/static/bkdst-none", a.admin, `{"x":1}`).want(404, account.CodeNotFound)
	a.do("GET", "/backends/other", a.admin, "").want(404, account.CodeNoRoute)
	reader := a.key(a.AccountID, account.ScopeRead)
	a.do("GET", "/backends/static", reader, "").want(200)
	a.do("POST", "/backends/static", reader, `{"address":"a:1"}`).want(403, account.CodeScope)
	a.do("GET", "/backends/static", a.key(a.AccountID, account.ScopeOperator), "").want(403, account.CodeScope)
}

func TestBackends_KeepThoseInUse(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	leaf := a.Static().ID
	group := a.Failover(leaf).ID
	shop := a.cloud("http://shop.demo", `,"backend_id":"`+group+`"`)
	refused := a.do("DELETE", "/backends/failover/"+group, a.admin, "").want(409, account.CodeInUse)
	details, _ := refused.body["details"].(map[string]any)
	storetest.Equal(t, "used by", details["used_by"], any(shop))
	a.do("DELETE", "/backends/static/"+leaf, a.admin, "").want(409, account.CodeInUse)
	a.do("DELETE", "/endpoints/"+shop, a.admin, "").want(204)
	a.do("DELETE", "/backends/failover/"+group, a.admin, "").want(204)
	a.do("DELETE", "/backends/static/"+leaf, a.admin, "").want(204)
}
