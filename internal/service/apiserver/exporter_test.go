// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// exporterKey makes a key with the scope exporter for the cluster, which may be "", and returns its
// secret.
func (a *api) exporterKey(cluster string, acl ...string) string {
	a.t.Helper()
	return *a.NewExporterKey(func(p *account.APIKeyPatch) {
		if p.ClusterUID = &cluster; len(acl) > 0 {
			p.ACL = &acl
		}
	}).Token
}

// ownedBody is the body of a new endpoint for the object team-a/NAME of the cluster, with further
// fields.
func ownedBody(url, cluster, name, fields string) string {
	return fmt.Sprintf(
		`{"url":%q,"owner":{"cluster":%q,"kind":"CloudEndpoint","namespace":"team-a","name":%q,"uid":"u"}%s}`,
		url, cluster, name, fields)
}

// owned makes an endpoint of type cloud for the object with the key.
func (a *api) owned(key, url, cluster, name string) string {
	a.t.Helper()
	return a.do("POST", "/endpoints", key, ownedBody(url, cluster, name, "")).want(201).body["id"].(string)
}

// boundFor binds an endpoint for the object of the cluster, and returns its id and session.
func (a *api) boundFor(url, cluster, name string) (id, session string) {
	a.t.Helper()
	session = a.Session()
	r := a.Request(session, url)
	r.Owner = &account.Owner{Cluster: cluster, Kind: account.KindAgentEndpoint, Namespace: "team-a", Name: name,
		UID: "u"}
	got, err := a.Store.Bind(a.t.Context(), r)
	storetest.Must(a.t, err)
	return got.Endpoint.ID, session
}

func TestAPIKeys_CreateUpdateExporter(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	made := a.do("POST", "/api_keys", a.admin, `{"scopes":["exporter"]}`).want(201)
	at := "/api_keys/" + made.body["id"].(string)
	storetest.Equal(t, "defaults", fmt.Sprint(made.body["acl"], made.body["cluster_uid"]), "[export:* bind:*]")
	patched := a.do("PATCH", at, a.admin,
		`{"acl":["export:A/*","bind:HTTP://A.B:80","backend:*","internal:*.internal"],"cluster_uid":"one"}`).want(200)
	storetest.Equal(t, "patched", fmt.Sprint(patched.body["acl"], patched.body["cluster_uid"]),
		"[export:a/* bind:http://a.b backend:* internal:*.internal]one")
	storetest.Equal(t, "the same", a.do("PATCH", at, a.admin, `{"cluster_uid":""}`).want(200).text, patched.text)
	null := a.do("PATCH", at, a.admin, `{"acl":null,"cluster_uid":null}`).want(200)
	storetest.Equal(t, "null", fmt.Sprint(null.body["acl"], null.body["cluster_uid"]), "[export:* bind:*]one")
	for body, field := range map[string]string{
		`{"cluster_uid":"two"}`:                        "cluster_uid",
		`{"acl":[]}`:                                   "acl",
		`{"acl":["bind:*"]}`:                           "acl",
		`{"acl":["export:*","bind:*","connect:*"]}`:    "acl",
		`{"acl":["export:*","bind:*","bind:app=api"]}`: "acl",
		`{"scopes":["exporter","read"]}`:               "scopes",
		`{"scopes":["admin"],"acl":["export:*"]}`:      "acl",
		`{"scopes":["admin"],"cluster_uid":"one"}`:     "cluster_uid",
	} {
		if rule := a.do("PATCH", at, a.admin, body).want(400, account.CodeInvalid).rules()[field]; rule == "" {
			t.Errorf("%s: %s is not told", body, field)
		}
	}
	plain := a.do("POST", "/api_keys", a.admin, `{"acl":[],"cluster_uid":""}`).want(201)
	storetest.Equal(t, "an admin key", fmt.Sprint(plain.body["acl"], plain.body["cluster_uid"]), "[]")
}

func TestExporter_KeepsEndpoints(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := a.exporterKey("one", "export:team-a/*", "bind:http://*.team-a", "backend:*", "internal:x.internal")
	leaf := a.Static().ID
	id := a.do("POST", "/endpoints", key, ownedBody("http://web.team-a", "one", "web", `,"backend_id":"`+leaf+`"`)).
		want(201).body["id"].(string)
	read := a.do("GET", "/endpoints/"+id, key, "").want(200)
	if owner := into[account.Endpoint](read).Owner; owner.String() != "CloudEndpoint team-a/web of cluster one" {
		t.Errorf("owner %s", owner)
	}
	a.do("PATCH", "/endpoints/"+id, key, `{"traffic_policy":"to x.internal","backend_id":null}`).want(200)
	a.do("PATCH", "/endpoints/"+id, key, `{"description":"d"}`).want(200)
	agent, session := a.boundFor("http://agent.team-a", "one", "agent")
	list := into[struct{ Endpoints []account.Endpoint }](a.do("GET", "/endpoints", key, "").want(200))
	storetest.Equal(t, "listed", len(list.Endpoints), 2)
	a.do("DELETE", "/endpoints/"+agent, key, "").want(409, account.CodeInUse)
	a.EndSession(session)
	a.do("DELETE", "/endpoints/"+agent, key, "").want(204)
	a.do("DELETE", "/endpoints/"+id, key, "").want(204)
	storetest.Equal(t, "left", len(a.List().Endpoints), 0)
	a.do("GET", "/openapi.json", key, "").want(200)
}

// TestExporter_HidesOthers calls what a key with the scope exporter may call with the ids of
// endpoints that are not its cluster's: they answer as ids that do not exist.
func TestExporter_HidesOthers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Limits.Burst = 1000 })
	key, foreign := a.exporterKey("one"), a.exporterKey("two")
	other, _ := a.NewAccount("other")
	theirs := a.do("POST", "/endpoints", a.key(other, account.ScopeAdmin), `{"url":"http://theirs.demo"}`).want(201).
		body["id"].(string)
	online, _ := a.boundFor("http://online.two", "two", "online")
	offline, session := a.boundFor("http://offline.two", "two", "offline")
	a.EndSession(session)
	unowned := a.Session()
	lost := a.Bind(unowned, "http://lost.demo").Endpoint.ID
	a.EndSession(unowned)
	hidden := map[string]string{
		"of another account": theirs, "without an owner": a.cloud("http://cloud.demo", ""),
		"of another cluster": a.owned(foreign, "http://web.two", "two", "web"), "of another cluster's agent": online,
		"of another cluster's lost agent": offline, "of a lost agent without an owner": lost,
	}
	before := len(a.List().Endpoints)
	a.do("GET", "/endpoints?owner_cluster=two", key, "").want(403, account.CodeScope)
	for _, secret := range []string{key, a.exporterKey("")} { // the latter has no cluster yet
		for name, id := range hidden {
			none := id[:len(id)-1] + "x"
			for method, body := range map[string]string{"GET": "", "PATCH": `{"description":"x"}`, "DELETE": ""} {
				got := a.do(method, "/endpoints/"+id, secret, body).want(404, account.CodeNotFound)
				want := a.do(method, "/endpoints/"+none, secret, body).want(404, account.CodeNotFound)
				storetest.Equal(t, method+" of one "+name, strings.ReplaceAll(fmt.Sprint(got.body["msg"]), id, "ID"),
					strings.ReplaceAll(fmt.Sprint(want.body["msg"]), none, "ID"))
			}
		}
		for _, path := range []string{"/endpoints", "/endpoints?binding=kubernetes", "/endpoints?url=http://web.two",
			"/endpoints?owner_cluster=one"} {
			list := into[struct{ Endpoints []account.Endpoint }](a.do("GET", path, secret, "").want(200))
			storetest.Equal(t, path, len(list.Endpoints), 0)
		}
		a.do("GET", "/endpoints?watch=true&resource_version="+a.List().Version.String(), secret, "").
			want(403, account.CodeScope)
	}
	storetest.Equal(t, "endpoints", len(a.List().Endpoints), before)
}

// TestExporter_RulesBoundWrites sends writes that the key's rules do not admit.
func TestExporter_RulesBoundWrites(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	mine, other := a.Static().ID, a.Static().ID
	key := a.exporterKey("one", "export:team-a/web*", "bind:http://*.team-a", "backend:"+mine, "internal:x.internal")
	wide := a.exporterKey("one", "export:*", "bind:*", "backend:*", "internal:*")
	for name, c := range map[string]struct{ body, text string }{
		"another object": {ownedBody("http://db.team-a", "one", "db", ""), "no export rule that admits team-a/db"},
		"another URL": {ownedBody("http://web.team-b", "one", "web", ""),
			"no bind rule that admits http://web.team-b"},
		"another backend": {ownedBody("http://web.team-a", "one", "web", `,"backend_id":"`+other+`"`),
			"no backend rule"},
		"a policy to it": {ownedBody("http://web.team-a", "one", "web", `,"traffic_policy":"to `+other+`"`),
			"no backend rule"},
		"another internal": {ownedBody("http://web.team-a", "one", "web", `,"traffic_policy":"to y.internal"`),
			"no internal rule that admits y.internal"},
		"another cluster": {ownedBody("http://web.team-a", "two", "web", ""), "make a key for each cluster"},
	} {
		got := a.do("POST", "/endpoints", key, c.body).want(403, account.CodeScope)
		if !strings.Contains(got.text, c.text) {
			t.Errorf("%s: %s, want %q", name, got.text, c.text)
		}
	}
	storetest.Equal(t, "endpoints", len(a.List().Endpoints), 0)
	for body, field := range map[string]string{
		`{"url":"http://web.team-a"}`: "owner", `{"url":"http://web.team-a","owner":null}`: "owner",
		ownedBody("http://web.team-a", "one", "web", `,"type":"agent"`):                        "type",
		strings.Replace(ownedBody("http://web.team-a", "one", "web", ""), "Cloud", "Agent", 1): "owner.kind",
		strings.Replace(ownedBody("http://web.demo", "one", "web", ""), "team-a", "a/b", 1):    "owner.namespace",
	} {
		if rule := a.do("POST", "/endpoints", key, body).want(400, account.CodeInvalid).rules()[field]; rule == "" {
			t.Errorf("%s: %s is not told", body, field)
		}
	}
	web, db := a.owned(key, "http://web.team-a", "one", "web"), a.owned(wide, "http://db.team-a", "one", "db")
	far := a.owned(wide, "http://web.far", "one", "web-far")
	for name, c := range map[string]struct{ method, id, body, text string }{
		"change of another object":   {"PATCH", db, `{"description":"x"}`, "no export rule"},
		"deletion of another object": {"DELETE", db, "", "no export rule"},
		"change at another URL":      {"PATCH", far, `{"description":"x"}`, "no bind rule"},
		"change to another backend":  {"PATCH", web, `{"backend_id":"` + other + `"}`, "no backend rule"},
		"change to a policy to it":   {"PATCH", web, `{"traffic_policy":"to ` + other + `"}`, "no backend rule"},
		"change to another internal": {"PATCH", web, `{"traffic_policy":"to y.internal"}`, "no internal rule"},
	} {
		got := a.do(c.method, "/endpoints/"+c.id, key, c.body).want(403, account.CodeScope)
		if !strings.Contains(got.text, c.text) {
			t.Errorf("%s: %s, want %q", name, got.text, c.text)
		}
	}
	a.do("PATCH", "/endpoints/"+web, key, strings.Replace(ownedBody("", "two", "web", ""), `"url":"",`, "", 1)).
		want(400, account.CodeInvalid)
	a.do("DELETE", "/endpoints/"+far, key, "").want(204) // its URL is not admitted any more
}

// TestExporter_MayDoNothingElse calls every described operation with an exporter's key.
func TestExporter_MayDoNothingElse(t *testing.T) {
	t.Parallel()
	a := newAPI(t, admitParts, func(o *apiserver.Options) { o.Limits.Burst = 1000 })
	key := a.exporterKey("one")
	a.description().eachOperation(func(method, pattern string, _ object) {
		got := a.do(method, strings.ReplaceAll(pattern, "{id}", "x"), key,
			map[string]string{"POST": "{}", "PATCH": "{}"}[method])
		if mine := pattern == "/openapi.json" || strings.HasPrefix(pattern, "/endpoints"); mine == (got.status == 403) {
			t.Errorf("%s %s: %d", method, pattern, got.status)
		}
	})
}

func TestExporter_FirstWritePinsCluster(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := a.exporterKey("", "export:*", "bind:http://*.demo")
	a.do("POST", "/endpoints", key, ownedBody("http://web.other", "one", "web", "")).want(403, account.CodeScope)
	a.owned(key, "http://web.demo", "two", "web") // what was refused has pinned nothing
	refused := a.do("POST", "/endpoints", key, ownedBody("http://db.demo", "one", "db", "")).
		want(403, account.CodeScope)
	if !strings.Contains(refused.text, "belongs to cluster two") {
		t.Error(refused.text)
	}
}

func TestCloudEndpoints_OwnerNeedsExporterKey(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	rules := a.do("POST", "/endpoints", a.admin, ownedBody("http://web.demo", "one", "web", "")).
		want(400, account.CodeInvalid).rules()
	if !strings.Contains(rules["owner"], "scope exporter") {
		t.Errorf("rules %v", rules)
	}
	id := a.owned(a.exporterKey("one"), "http://web.demo", "one", "web")
	a.do("PATCH", "/endpoints/"+id, a.admin, `{"description":"x"}`).want(200)
	a.do("DELETE", "/endpoints/"+id, a.admin, "").want(204)
}
