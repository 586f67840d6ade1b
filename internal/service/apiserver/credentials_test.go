// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

func TestAPIKeys_CreateUpdateDelete(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	made := a.do("POST", "/api_keys", a.admin,
		`{"description":"ci","metadata":"m","scopes":["read"],"expires_at":"2030-01-31T01:00:00+01:00","owner_id":"ignored"}`).want(201)
	id, secret := made.body["id"].(string), made.body["token"].(string)
	if !strings.HasPrefix(secret, account.APIKeyPrefix) || !account.ValidID(account.PrefixAPIKey, id) {
		t.Errorf("made %s", made.text)
	}
	storetest.Equal(t, "fields", sortedKeys(made.body),
		"acl cluster_uid created_at description expires_at id last_used_at metadata scopes token uri")
	storetest.Equal(t, "expires_at", made.body["expires_at"], any("2030-01-31T00:00:00Z"))
	storetest.Equal(t, "uri", made.body["uri"], any(base+"/api_keys/"+id))
	a.do("GET", "/endpoints", secret, "").want(200)
	at := "/api_keys/" + id
	read := a.get(at).want(200)
	storetest.Equal(t, "the secret is shown once", read.body["token"], nil)
	storetest.Equal(t, "empty patch", a.do("PATCH", at, a.admin, "{}").want(200).text, read.text)
	patched := a.do("PATCH", at, a.admin, `{"description":null,"expires_at":null,"scopes":["operator"]}`).want(200)
	storetest.Equal(t, "patched", fmt.Sprint(patched.body["description"], patched.body["metadata"],
		patched.body["expires_at"], patched.body["scopes"], patched.body["token"]),
		"m<nil> [operator] <nil>")
	a.do("GET", "/tunnel_sessions", secret, "").want(403, account.CodeScope) // at once
	storetest.Equal(t, "null is the default",
		fmt.Sprint(a.do("PATCH", at, a.admin, `{"scopes":null}`).want(200).body["scopes"]), "[admin]")
	a.do("DELETE", at, a.admin, "").want(204)
	a.do("GET", "/endpoints", secret, "").want(401, account.CodeUnknownCredential)
	a.get(at).want(404, account.CodeNotFound)
	a.do("DELETE", at, a.admin, "").want(404)
	if strings.Contains(a.log.String(), secret) {
		t.Error("the log shows the secret")
	}
}

// TestUpdate_RefusesAnotherID allows an update to repeat the ID of its object and refuses any
// other.
func TestUpdate_RefusesAnotherID(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, path := range []string{"/api_keys", "/credentials", "/kubernetes_operators", "/backends/http_response"} {
		id := a.do("POST", path, a.admin, "{}").want(201).body["id"].(string)
		at := path + "/" + id
		a.do("PATCH", at, a.admin, `{"id":"`+id+`","description":"x"}`).want(200)
		a.do("PATCH", at, a.admin, `{"id":""}`).want(200)
		a.do("PATCH", at, a.admin, `{"id":null}`).want(200)
		rules := a.do("PATCH", at, a.admin, `{"id":"another"}`).want(400, account.CodeInvalid).rules()
		storetest.Equal(t, path, rules["id"], "does not change; leave it out")
	}
}

func TestAPIKeys_KeepLastAdmin(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.key(a.AccountID, account.ScopeRead)
	var admin string
	for _, k := range into[struct{ Keys []account.APIKey }](a.get("/api_keys")).Keys {
		if k.HasAnyScope() {
			admin = "/api_keys/" + k.ID
		}
	}
	for _, refused := range []*answer{a.do("DELETE", admin, a.admin, ""),
		a.do("PATCH", admin, a.admin, `{"scopes":["read"]}`)} {
		refused.want(409, account.CodeInUse)
		if !strings.Contains(refused.text, "last admin key") {
			t.Errorf("answer %s", refused.text)
		}
	}
	other := into[account.APIKey](a.do("POST", "/api_keys", a.admin, `{}`).want(201))
	storetest.Equal(t, "scopes by default", fmt.Sprint(other.Scopes), "[admin]")
	a.do("DELETE", admin, *other.Token, "").want(204)
	a.get("/endpoints").want(401)
}

func TestAuthtokens_CreateUpdateDelete(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	made := a.do("POST", "/credentials", a.admin,
		`{"description":"alice","acl":["bind:HTTP://Api.Demo:80","connect:*"],"owner_id":null}`).want(201)
	id, secret := made.body["id"].(string), made.body["token"].(string)
	if !strings.HasPrefix(secret, account.AuthtokenPrefix) || !account.ValidID(account.PrefixCredential, id) {
		t.Errorf("made %s", made.text)
	}
	storetest.Equal(t, "fields", sortedKeys(made.body),
		"acl created_at description expires_at id last_used_at metadata token uri")
	storetest.Equal(t, "acl", fmt.Sprint(made.body["acl"]), "[bind:http://api.demo connect:*]")
	at := "/credentials/" + id
	read := a.get(at).want(200)
	storetest.Equal(t, "the secret is shown once", read.body["token"], nil)
	storetest.Equal(t, "uri", read.body["uri"], any(base+at))
	patched := a.do("PATCH", at, a.admin, `{"metadata":"x","acl":null,"expires_at":"2030-01-01T00:00:00Z"}`).want(200)
	storetest.Equal(t, "patched", fmt.Sprint(patched.body["description"], patched.body["metadata"], patched.body["acl"],
		patched.body["expires_at"]), "alicex[bind:*]2030-01-01T00:00:00Z")
	storetest.Equal(t, "no difference", a.do("PATCH", at, a.admin, `{"metadata":"x"}`).want(200).text, patched.text)
	a.do("DELETE", at, a.admin, "").want(204)
	a.get(at).want(404)
	a.do("PATCH", at, a.admin, "{}").want(404)
	a.do("DELETE", at, a.admin, "").want(404)
	if strings.Contains(a.log.String(), secret) {
		t.Error("the log shows the secret")
	}
}

func TestCredentials_ListAllBrokenRules(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := into[account.APIKey](a.do("POST", "/api_keys", a.admin, "{}").want(201)).ID
	token := into[account.Authtoken](a.do("POST", "/credentials", a.admin, "{}").want(201)).ID
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		method, path, body string
		fields             []string
	}{
		{"POST", "/api_keys",
			`{"description":1,"metadata":"\u0000","scopes":["root","read","read"],"expires_at":"2020-01-01T00:00:00Z","colour":1}`,
			[]string{"description", "metadata", "scopes", "expires_at", "colour"}},
		{"POST", "/api_keys", `{"scopes":[],"expires_at":"tomorrow","id":"ak-x","token":"flk_mine"}`,
			[]string{"scopes", "expires_at", "id", "token"}},
		{"PATCH", "/api_keys/" + key, `{"description":"` + long + `","scopes":[1],"expires_at":7}`,
			[]string{"description", "scopes[0]", "expires_at"}},
		{"POST", "/credentials", `{"acl":["bind:ftp://a.b"],"description":"` + long +
			`","expires_at":"2020-01-01T00:00:00Z"}`, []string{"acl", "description", "expires_at"}},
		{"PATCH", "/credentials/" + token, `{"acl":[],"scopes":["admin"]}`, []string{"acl", "scopes"}},
	} {
		rules := a.do(c.method, c.path, a.admin, c.body).want(400, account.CodeInvalid).rules()
		for _, f := range c.fields {
			if rules[f] == "" {
				t.Errorf("%s %s: %s is not told; only %v", c.method, c.body, f, rules)
			}
		}
	}
	a.do("POST", "/api_keys?x=1", a.admin, "{}").want(400)
	a.do("POST", "/credentials", a.admin, "[]").want(400, account.CodeMalformed)
	a.get("/api_keys?limit=0").want(400)
	a.get("/credentials?url=http://a.b").want(400)
}

func TestCredentials_WritesNeedAdmin(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	reader, operator := a.key(a.AccountID, account.ScopeRead), a.key(a.AccountID, account.ScopeOperator)
	for _, path := range []string{"/api_keys", "/credentials"} {
		a.do("GET", path, reader, "").want(200)
		a.do("GET", path, operator, "").want(map[string]int{"/api_keys": 200, "/credentials": 403}[path]) // itself
		for _, key := range []string{reader, operator} {
			a.do("POST", path, key, "{}").want(403, account.CodeScope)
			a.do("PATCH", path+"/x", key, "{}").want(403, account.CodeScope)
			a.do("DELETE", path+"/x", key, "").want(403, account.CodeScope)
		}
	}
}

func TestCredentials_Pages(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for path, list := range map[string]string{"/api_keys": "keys", "/credentials": "credentials"} {
		for range 4 {
			a.Clock.Step(time.Millisecond)
			a.do("POST", path, a.admin, "{}").want(201)
		}
		var got []string
		for next := path + "?limit=2"; next != ""; {
			page := a.get(next).want(200)
			storetest.Equal(t, "uri", page.body["uri"], any(base+path))
			for _, one := range page.body[list].([]any) {
				got = append(got, one.(map[string]any)["id"].(string))
				storetest.Equal(t, "token", one.(map[string]any)["token"], nil)
			}
			uri, _ := page.body["next_page_uri"].(string)
			next = strings.TrimPrefix(uri, base)
		}
		if len(got) != 5 || !slices.IsSortedFunc(got, func(x, y string) int { return strings.Compare(y, x) }) {
			t.Errorf("%s: pages have %v", path, got)
		}
	}
}

func TestCredentials_HideOtherAccounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	other, _ := a.NewAccount("other")
	theirs := a.key(other, account.ScopeAdmin)
	a.key(other, account.ScopeAdmin)
	key := into[account.APIKey](a.do("POST", "/api_keys", a.admin, `{"description":"mine"}`).want(201))
	token := into[account.Authtoken](a.do("POST", "/credentials", a.admin, `{"description":"mine"}`).want(201))
	for _, path := range []string{"/api_keys/" + key.ID, "/credentials/" + token.ID} {
		unknown := path[:len(path)-1] + "0"
		for method, body := range map[string]string{"GET": "", "PATCH": `{"description":"theirs"}`, "DELETE": ""} {
			foreign, none := a.do(method, path, theirs, body).want(404, account.CodeNotFound),
				a.do(method, unknown, theirs, body).want(404, account.CodeNotFound)
			storetest.Equal(t, "message",
				strings.ReplaceAll(foreign.body["msg"].(string), path[strings.LastIndex(path, "/")+1:],
					"ID"),
				strings.ReplaceAll(none.body["msg"].(string), unknown[strings.LastIndex(unknown, "/")+1:], "ID"))
		}
		storetest.Equal(t, "unchanged", a.get(path).want(200).body["description"], any("mine"))
	}
	for _, path := range []string{"/api_keys", "/credentials", "/api_keys?before_id=zz", "/credentials?before_id=zz"} {
		if got := a.do("GET", path, theirs, "").want(200); strings.Contains(got.text, "mine") ||
			strings.Contains(got.text, key.ID) || strings.Contains(got.text, token.ID) {
			t.Errorf("%s shows another account's: %s", path, got.text)
		}
	}
}

func TestAPIKeys_OperatorReadsOwnKey(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	type keyList struct{ Keys []account.APIKey }
	key := a.key(a.AccountID, account.ScopeOperator)
	list := into[keyList](a.do("GET", "/api_keys?limit=1", key, "").want(200)).Keys
	if len(list) != 1 || list[0].Scopes[0] != account.ScopeOperator {
		t.Fatalf("the key sees %+v, want itself", list)
	}
	own := list[0].ID
	storetest.Equal(t, "itself", a.do("GET", "/api_keys/"+own, key, "").want(200).body["id"], any(own))
	older := into[keyList](a.do("GET", "/api_keys?before_id="+own, key, "").want(200)).Keys
	storetest.Equal(t, "older than itself", len(older), 0)
	for _, other := range into[keyList](a.get("/api_keys")).Keys {
		if other.ID != own {
			a.do("GET", "/api_keys/"+other.ID, key, "").want(404, account.CodeNotFound)
		}
	}
	a.do("PATCH", "/api_keys/"+own, key, "{}").want(403, account.CodeScope)
}

func sortedKeys(m map[string]any) string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
