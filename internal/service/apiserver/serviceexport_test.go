// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// exportBody is the body of a new export of the Service team-a/NAME by the cluster.
func exportBody(name, clusterID, cluster string, export any) string {
	text, err := json.Marshal(map[string]any{"url": "service://" + name + ".team-a." + clusterID,
		"bindings": []string{"clusterset"}, "service_export": export, "owner": map[string]string{"cluster": cluster,
			"kind": "ServiceExport", "namespace": "team-a", "name": name, "uid": "u"}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// exported makes an export with the key.
func (a *api) exported(key, name, clusterID, cluster string) *account.Endpoint {
	a.t.Helper()
	made := into[account.Endpoint](
		a.do("POST", "/endpoints", key, exportBody(name, clusterID, cluster, accounttest.ServiceExport())).want(201))
	return &made
}

const records = "/endpoints?binding=clusterset&type=cloud"

func (a *api) listed(key, path string) []account.Endpoint {
	a.t.Helper()
	return into[struct{ Endpoints []account.Endpoint }](a.do("GET", path, key, "").want(200)).Endpoints
}

func TestServiceExports_CreateChangeDelete(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key, want := a.exporterKey("one", "export:team-a/*", "bind:http://nothing.else"), accounttest.ServiceExport()
	answer := a.do("POST", "/endpoints", key, exportBody("hello", "a", "one", want)).want(201)
	a.description().checkAnswer("POST", "/endpoints", answer)
	made := into[account.Endpoint](answer)
	at := "/endpoints/" + made.ID
	storetest.Equal(t, "address", fmt.Sprint(made.URL, " ", made.HostPort, " ", made.Port, " ", made.Scheme),
		"service://hello.team-a.a hello.team-a.a 0 service")
	read := a.do("GET", at, key, "").want(200)
	a.description().checkAnswer("GET", "/endpoints/{id}", read)
	for where, e := range map[string]account.Endpoint{"made": made, "read": into[account.Endpoint](read),
		"listed": a.listed(key, records)[0]} {
		if !reflect.DeepEqual(e.ServiceExport, want) {
			t.Errorf("%s: %+v", where, e.ServiceExport)
		}
	}
	a.do("PATCH", at, key, `{"service_export":null}`).want(200)
	a.do("PATCH", at, key, `{"service_export":{}}`).want(200)
	if got := a.Endpoint(made.ID).ServiceExport; !reflect.DeepEqual(got,
		(&account.ServiceExport{Type: "ClusterSetIP", SessionAffinity: "None"}).Normal()) {
		t.Errorf("the defaults: %+v", got)
	}
	got := a.do("PATCH", at, key, `{"service_export":{"type":"Headless","ports":[{"port":42}],"ready":true}}`).want(200)
	if export := into[account.Endpoint](got).ServiceExport; export.Type != "Headless" || !export.Ready ||
		export.Ports[0] != (account.ServiceExportPort{Protocol: "TCP", Port: 42}) {
		t.Errorf("patched: %+v", export)
	}
	a.do("DELETE", at, key, "").want(204)
	storetest.Equal(t, "left", len(a.List().Endpoints), 0)
}

func TestServiceExports_NameBrokenFields(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := a.exporterKey("one")
	for export, field := range map[string]string{
		`7`: "service_export", `{"x":1}`: "service_export.x", `{"type":"ExternalName"}`: "service_export.type",
		`{"ports":{}}`: "service_export.ports", `{"ports":[7]}`: "service_export.ports[0]",
		`{"ports":[{"port":"42"}]}`:                                    "service_export.ports[0].port",
		`{"ports":[{}]}`:                                               "service_export.ports[0].port",
		`{"ports":[{"port":4294967338}]}`:                              "service_export.ports[0].port",
		`{"ports":[{"port":42,"node_port":1}]}`:                        "service_export.ports[0].node_port",
		`{"ports":[{"port":42,"protocol":"ICMP"}]}`:                    "service_export.ports[0].protocol",
		`{"session_affinity":"ClientIP","session_affinity_seconds":0}`: "service_export.session_affinity_seconds",
		`{"session_affinity_seconds":10}`:                              "service_export.session_affinity_seconds",
		`{"labels":{"a":1}}`:                                           "service_export.labels.a",
		`{"labels":[]}`:                                                "service_export.labels",
		`{"annotations":{"a":null}}`:                                   "service_export.annotations.a",
		`{"ip_families":["IPv5"]}`:                                     "service_export.ip_families[0]",
		`{"ready":"yes"}`:                                              "service_export.ready",
	} {
		body := exportBody("hello", "a", "one", json.RawMessage(export))
		if rule := a.do("POST", "/endpoints", key, body).want(400, account.CodeInvalid).rules()[field]; rule == "" {
			t.Errorf("%s: %s is not told", export, field)
		}
	}
	for name, c := range map[string]struct{ old, new, field string }{
		"a port":            {"service://hello.team-a.a", "tcp://hello.team-a.a:42", "url"},
		"another host":      {"service://hello.team-a.a", "service://hello.team-a", "url"},
		"another Service":   {"service://hello.team-a.a", "service://other.team-a.a", "owner"},
		"another kind":      {`"ServiceExport"`, `"CloudEndpoint"`, "owner.kind"},
		"another binding":   {`"clusterset"`, `"kubernetes"`, "url"},
		"a policy":          {`"url"`, `"traffic_policy":"a: b","url"`, "traffic_policy"},
		"no export":         {`"service_export":{}`, `"name":""`, "service_export"},
		"an export of http": {`"service_export":{}`, `"backend_id":"x"`, "backend_id"},
	} {
		body := strings.Replace(exportBody("hello", "a", "one", object{}), c.old, c.new, 1)
		if rule := a.do("POST", "/endpoints", key, body).want(400, account.CodeInvalid).rules()[c.field]; rule == "" {
			t.Errorf("%s: %s is not told", name, c.field)
		}
	}
	storetest.Equal(t, "endpoints", len(a.List().Endpoints), 0)
}

// TestServiceExports_NeedExportRule holds that exports are made by keys of the scope exporter,
// whose export: rules count and whose bind: rules do not.
func TestServiceExports_NeedExportRule(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	body := exportBody("hello", "a", "one", object{})
	for _, scope := range []account.Scope{account.ScopeRead, account.ScopeOperator} {
		a.do("POST", "/endpoints", a.key(a.AccountID, scope), body).want(403, account.CodeScope)
	}
	rules := a.do("POST", "/endpoints", a.admin, body).want(400, account.CodeInvalid).rules()
	if rules["owner"] == "" || !strings.Contains(rules["service_export"], "scope exporter") {
		t.Errorf("an admin: %v", rules)
	}
	for _, c := range []struct{ key, text string }{
		{a.exporterKey("one", "export:team-b/*", "bind:*"), "no export rule that admits team-a/hello"},
		{a.exporterKey("two"), "make a key for each cluster"},
	} {
		if got := a.do("POST", "/endpoints", c.key, body).want(403, account.CodeScope); !strings.Contains(got.text,
			c.text) {
			t.Errorf("%s, want %q", got.text, c.text)
		}
	}
	made := a.exported(a.exporterKey("one", "export:team-a/hello", "bind:http://nothing.else"), "hello", "a", "one")
	at, narrow := "/endpoints/"+made.ID, a.exporterKey("one", "export:team-b/*", "bind:*")
	for method, body := range map[string]string{"PATCH": `{"service_export":{}}`, "DELETE": ""} {
		got := a.do(method, at, narrow, body).want(403, account.CodeScope)
		if !strings.Contains(got.text, "no export rule") {
			t.Errorf("%s: %s", method, got.text)
		}
	}
	a.do("PATCH", at, a.admin, `{"service_export":{}}`).want(400, account.CodeInvalid)
	a.do("PATCH", at, a.admin, `{"description":"x"}`).want(200)
	a.do("DELETE", at, a.admin, "").want(204)
}

// TestServiceExports_ExporterSeesAllAndNoMore holds what a key of one cluster sees of others: the
// exports in lists and watches that ask for nothing else.
func TestServiceExports_ExporterSeesAllAndNoMore(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Limits.Burst = 1000 })
	one, two := a.exporterKey("one"), a.exporterKey("two")
	start := a.List().Version
	theirs := a.exported(one, "hello", "a", "one")
	port := a.ExportedPort(a.Session(), *theirs, 42)
	_, err := a.Store.Bind(t.Context(), port)
	storetest.Must(t, err)
	a.boundFor("http://web.team-a", "one", "web")
	a.Clock.Step(time.Millisecond)
	mine := a.exported(two, "hello", "b", "two")
	for _, path := range []string{"/endpoints", "/endpoints?binding=clusterset", "/endpoints?type=cloud",
		"/endpoints?binding=clusterset,kubernetes&type=cloud"} {
		if got := a.listed(two, path); len(got) != 1 || got[0].ID != mine.ID {
			t.Fatalf("%s: %+v", path, got)
		}
	}
	for _, key := range []string{one, two, a.exporterKey("")} { // the last one has no cluster yet
		if got := a.listed(key, records); len(got) != 2 || got[0].ID != mine.ID || got[1].ID != theirs.ID {
			t.Errorf("%d are listed", len(got))
		}
		storetest.Equal(t, "of a URL", len(a.listed(key, records+"&url="+theirs.URL)), 1)
		storetest.Equal(t, "of a cluster", len(a.listed(key, records+"&owner_cluster=one")), 1)
		w := a.watch(key, start, "&binding=clusterset&type=cloud")
		storetest.Equal(t, "first event", w.nextChange().Endpoint.ID, theirs.ID)
		storetest.Equal(t, "second event", w.nextChange().Endpoint.ID, mine.ID)
		for _, more := range []string{"", "&binding=clusterset", "&type=cloud",
			"&binding=kubernetes,clusterset&type=cloud",
			"&binding=clusterset&type=agent", "&url=" + theirs.URL} {
			a.do("GET", "/endpoints?watch=true&resource_version="+start.String()+more, key, "").
				want(403, account.CodeScope)
		}
	}
	storetest.Equal(t, "ports of others", len(a.listed(two, "/endpoints?binding=clusterset&type=agent")), 0)
	for method, body := range map[string]string{"GET": "", "PATCH": `{"service_export":{}}`, "DELETE": ""} {
		a.do(method, "/endpoints/"+theirs.ID, two, body).want(404, account.CodeNotFound)
	}
	other, _ := a.NewAccount("other")
	if got := a.listed(a.key(other, account.ScopeExporter), records); len(got) != 0 {
		t.Errorf("another account's key lists %+v", got)
	}
}

func TestServiceExports_ClusterIDIsOneClusters(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	one, two := a.exporterKey("one"), a.exporterKey("two")
	made := a.exported(one, "hello", "a", "one")
	got := a.do("POST", "/endpoints", two, exportBody("other", "a", "two", object{})).want(409, account.CodeInUse)
	if details := fmt.Sprint(got.body["details"]); !strings.Contains(details, "cluster_uid:one") ||
		!strings.Contains(details, "cluster_id:a") || !strings.Contains(got.text, made.ID) {
		t.Error(got.text)
	}
	a.do("POST", "/endpoints", one, exportBody("other", "c", "one", object{})).want(409, account.CodeInUse)
	a.do("DELETE", "/endpoints/"+made.ID, one, "").want(204)
	a.exported(two, "other", "a", "two")
}

// TestServiceExports_WatchPassesOthers watches exports behind more changes of other endpoints than
// are read at once: the export follows without a heartbeat between.
func TestServiceExports_WatchPassesOthers(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key, start, session := a.exporterKey("one"), a.List().Version, a.Session()
	for i := range 250 {
		_, err := a.Store.Bind(t.Context(), a.ExportedPort(session, a.Export("hello", "a", "one"), i+1))
		storetest.Must(t, err)
	}
	made := a.exported(key, "hello", "a", "one")
	e, ok := a.watch(key, start, "&binding=clusterset&type=cloud").next()
	if !ok || e.Type != account.Added || e.Endpoint.ID != made.ID {
		t.Errorf("first line %+v", e)
	}
}
