// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

const cloudOwner = `{"cluster":"c-1","kind":"CloudEndpoint","namespace":"team-a","name":"shop","uid":"u-1"}`

func TestOwners_OfCloudEndpoints(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := a.exporterKey("c-1")
	post := func(owner string) *answer {
		return a.do("POST", "/endpoints", key, `{"url":"http://shop.demo","owner":`+owner+`}`)
	}
	for owner, want := range map[string]string{
		`{"kind":"CloudEndpoint","namespace":"a","name":"b","uid":"c"}`: "owner.cluster: must be a Kubernetes uid",
		strings.Replace(cloudOwner, "Cloud", "Agent", 1):                "owner.kind: must be CloudEndpoint",
		strings.Replace(cloudOwner, "team-a", "team.a", 1):              "owner.namespace: must be the name of a",
		strings.Replace(cloudOwner, `"shop"`, `"a/b"`, 1):               "owner.name: must be the name of a",
		strings.Replace(cloudOwner, `"uid"`, `"id"`, 1):                 "owner.id: unknown field",
		`"shop"`: "owner: must be an object",
	} {
		field, rule, _ := strings.Cut(want, ": ")
		if got := post(owner).want(400, account.CodeInvalid).rules()[field]; !strings.HasPrefix(got, rule) {
			t.Errorf("%s: %s: %q, want %q", owner, field, got, rule)
		}
	}
	made := post(cloudOwner).want(201)
	id := made.body["id"].(string)
	owner := account.Owner{Cluster: "c-1", Kind: account.KindCloudEndpoint, Namespace: "team-a", Name: "shop",
		UID: "u-1"}
	storetest.Equal(t, "owner", *into[account.Endpoint](made).Owner, owner)
	if again := post(cloudOwner).want(409, account.CodeURLTaken); !strings.Contains(again.text, id) {
		t.Errorf("made again: %s", again.text)
	}
	path, before := "/endpoints/"+id, a.List().Version
	a.do("PATCH", path, a.admin, `{"owner":`+cloudOwner+`}`).want(200)
	a.do("PATCH", path, a.admin, `{"owner":null}`).want(200)
	a.Expect(before)
	changed := a.do("PATCH", path, a.admin, `{"owner":`+strings.Replace(cloudOwner, "u-1", "u-2", 1)+`}`).want(200)
	storetest.Equal(t, "uid", into[account.Endpoint](changed).Owner.UID, "u-2")
	rules := a.do("PATCH", path, a.admin, `{"owner":`+strings.Replace(cloudOwner, "shop", "other", 1)+`}`).
		want(400, account.CodeInvalid).rules()
	if !strings.Contains(rules["owner"], "does not change") {
		t.Errorf("another owner: %v", rules)
	}
	plain := a.do("POST", "/endpoints", a.admin, `{"url":"http://plain.demo"}`).want(201)
	if value, there := plain.body["owner"]; !there || value != nil {
		t.Errorf("without an owner: %s", plain.text)
	}
	a.do("PATCH", "/endpoints/"+plain.body["id"].(string), a.admin, `{"owner":`+cloudOwner+`}`).
		want(400, account.CodeInvalid)
}

func TestOwners_FilterOfLists(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owned := a.BindFor(a.Session(), storetest.Owner("api")).Endpoint
	a.Bind(a.Session(), "http://plain.demo")
	list := into[struct{ Endpoints []account.Endpoint }](
		a.get("/endpoints?owner_cluster=" + owned.Owner.Cluster).want(200))
	if len(list.Endpoints) != 1 || list.Endpoints[0].ID != owned.ID || *list.Endpoints[0].Owner != *owned.Owner {
		t.Errorf("listed %+v", list.Endpoints)
	}
	if n := len(into[struct{ Endpoints []account.Endpoint }](a.get("/endpoints?owner_cluster=c-2").want(200)).
		Endpoints); n != 0 {
		t.Errorf("%d of another cluster", n)
	}
	a.get("/endpoints?owner_cluster=").want(400, account.CodeInvalid)
	rules := a.get("/endpoints?watch=true&resource_version=1-1&owner_cluster=c-1").want(400, account.CodeInvalid).
		rules()
	if !strings.Contains(rules["owner_cluster"], "not with watch=true") {
		t.Errorf("a watch: %v", rules)
	}
}

func TestOwners_OfflineEndpointsDeleted(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	session := a.Session()
	owned, plain := a.BindFor(session, storetest.Owner("api")).Endpoint, a.Bind(session, "http://plain.demo").Endpoint
	a.do("DELETE", "/endpoints/"+owned.ID, a.admin, "").want(409, account.CodeInUse)
	a.EndSession(session)
	a.do("DELETE", "/endpoints/"+plain.ID, a.admin, "").want(400, account.CodeInvalid)
	a.do("PATCH", "/endpoints/"+owned.ID, a.admin, "{}").want(400, account.CodeInvalid)
	a.do("DELETE", "/endpoints/"+owned.ID, a.admin, "").want(204)
	a.get("/endpoints/"+owned.ID).want(404, account.CodeNotFound)
}
