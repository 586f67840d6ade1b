// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// keySet returns the JSON Web Key Set of a new public key.
func keySet(t *testing.T, kid string) string {
	t.Helper()
	raw, err := json.Marshal(accounttest.NewTokenSigner(t, kid, "ES256").KeySet(t))
	storetest.Must(t, err)
	return string(raw)
}

// clusterBody is the body of a cluster with a key and the ServiceAccounts of the operator's chart.
func clusterBody(t *testing.T, name, kid string) string {
	return `{"name":"` + name + `","jwks":` + keySet(t, kid) + `,"subjects":[` +
		`{"namespace":"fairlead","service_account":"fairlead-operator-manager","role":"operator"},` +
		`{"namespace":"fairlead","service_account":"fairlead-operator-exporter","role":"exporter",` +
		`"acl":["export:team-a/*","bind:*"]}]}`
}

func TestClusters_CreateUpdateDelete(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	made := a.do("POST", "/clusters", a.admin, clusterBody(t, "prod", "k1")).want(201)
	c := into[account.Cluster](made)
	storetest.Equal(t, "fields", sortedKeys(made.body), "audience cluster_uid created_at description id issuer jwks "+
		"key_source last_used_at metadata name subjects updated_at uri")
	storetest.Equal(t, "made", fmt.Sprint(c.Issuer, c.Audience, c.URI, c.JWKS.Keys[0].Algorithm, c.Subjects[0].ACL,
		c.Subjects[1].ACL), account.DefaultIssuer+base+"/accounts/"+a.AccountID+base+"/clusters/"+c.ID+
		"ES256[] [export:team-a/* bind:*]")
	at := "/clusters/" + c.ID
	storetest.Equal(t, "read", a.get(at).want(200).text, made.text)
	storetest.Equal(t, "empty patch", a.do("PATCH", at, a.admin, "{}").want(200).text, made.text)
	list := into[struct{ Clusters []account.Cluster }](a.get("/clusters").want(200)).Clusters
	storetest.Equal(t, "listed", fmt.Sprint(len(list), " ", list[0].ID, " ", list[0].Audience),
		"1 "+c.ID+" "+c.Audience)

	patched := into[account.Cluster](a.do("PATCH", at, a.admin, `{"description":"eu","remove_keys":["k1"],"add_jwks":`+
		keySet(t, "k2")+`,"subjects":[{"id":"`+c.Subjects[1].ID+`","namespace":"fairlead","service_account":`+
		`"fairlead-operator-exporter","role":"exporter","uid":"u-1"}]}`).want(200))
	storetest.Equal(t, "patched", fmt.Sprint(patched.Description, len(patched.JWKS.Keys), patched.JWKS.Keys[0].KeyID,
		len(patched.Subjects), patched.Subjects[0].ID == c.Subjects[1].ID, patched.Subjects[0].UID,
		patched.Subjects[0].ACL), "eu1k21 trueu-1[export:team-a/* bind:*]")
	a.do("DELETE", at, a.admin, "").want(204)
	a.get(at).want(404, account.CodeNotFound)
	event := into[auditPage](a.get("/events?type=cluster.deleted").want(200)).Events[0]
	storetest.Equal(t, "event", event.Object.URI, base+at)
}

// jwk returns a key as JSON, with the further member that text is.
func jwk(t *testing.T, key any, kid, further string) string {
	t.Helper()
	raw, err := json.Marshal(jose.JSONWebKey{Key: key, KeyID: kid})
	storetest.Must(t, err)
	return strings.TrimSuffix(string(raw), "}") + further + "}"
}

// badClusters are bodies of clusters, by the broken rule of a field.
func badClusters(t *testing.T) map[string]string {
	t.Helper()
	weak, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // what has to be refused
	storetest.Must(t, err)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	storetest.Must(t, err)
	withKeys := func(keys ...string) string {
		return `{"name":"prod","jwks":{"keys":[` + strings.Join(keys, ",") + `]}}`
	}
	good := jwk(t, private.Public(), "k", "")
	return map[string]string{
		"jwks.keys[0]: member \"d\" of a private key":   withKeys(jwk(t, private, "k", "")),
		"jwks.keys[0]: needs a kid":                     withKeys(jwk(t, private.Public(), "", "")),
		"jwks.keys[0]: has 1024 bits":                   withKeys(jwk(t, weak.Public(), "k", "")),
		"jwks.keys[0]: accepted with ES256 only":        withKeys(jwk(t, private.Public(), "k", `,"alg":"RS256"`)),
		"jwks.keys[0]: use other than sig":              withKeys(jwk(t, private.Public(), "k", `,"use":"enc"`)),
		"jwks.keys[1].kid: kid of two keys":             withKeys(good, good),
		"jwks: has 0 keys":                              withKeys(),
		"jwks: must be a JSON Web Key Set":              `{"name":"prod","jwks":"<html>"}`,
		"key_source: must be cluster, issuer or manual": `{"name":"prod","key_source":"x"}`,
		"name: must be a DNS label":                     `{"name":"Prod EU","jwks":{"keys":[` + good + `]}}`,
		"subjects[0].role: must be operator":            subjectBody(good, `"role":"root"`),
		"subjects[0].acl: leave acl out":                subjectBody(good, `"role":"operator","acl":["bind:*"]`),
		"subjects[0].x: unknown field":                  subjectBody(good, `"role":"operator","x":1`),
		"subjects[1]: must be an object":                `{"name":"prod","subjects":[{},1]}`,
		"add_jwks: must be a JSON Web Key Set":          `{"name":"prod","add_jwks":{},"jwks":{"keys":[` + good + `]}}`,
	}
}

func subjectBody(key, fields string) string {
	return `{"name":"prod","jwks":{"keys":[` + key + `]},"subjects":[{"namespace":"n","service_account":"s",` + fields +
		`}]}`
}

func TestClusters_RefuseInvalid(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for want, body := range badClusters(t) {
		field, rule, _ := strings.Cut(want, ": ")
		got := a.do("POST", "/clusters", a.admin, body).want(400, account.CodeInvalid)
		if rules := got.rules(); !strings.Contains(rules[field], rule) {
			t.Errorf("%s: %v", want, rules)
		}
		if strings.HasPrefix(field, "jwks") && len(got.rules()) != 1 {
			t.Errorf("%s: %v, want one rule", want, got.rules())
		}
	}
	storetest.Equal(t, "none is made", a.get("/clusters").want(200).text,
		`{"clusters":[],"uri":"`+base+`/clusters","next_page_uri":null}`+"\n")
	if strings.Contains(a.log.String(), `"d"`) {
		t.Error("the log shows a private key")
	}
}

func TestClusters_NamesAndKeysAreUnique(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	first := a.do("POST", "/clusters", a.admin, clusterBody(t, "prod", "k1")).want(201).body["id"].(string)
	for _, body := range []string{clusterBody(t, "prod", "k2"), clusterBody(t, "eu", "k1")} {
		if got := a.do("POST", "/clusters", a.admin, body).want(409, account.CodeInUse); !strings.Contains(got.text,
			first) {
			t.Errorf("the refusal does not name the other cluster: %s", got.text)
		}
	}
	for _, scope := range []account.Scope{account.ScopeRead, account.ScopeOperator} {
		key := a.key(a.AccountID, scope)
		a.do("POST", "/clusters", key, clusterBody(t, "eu", "k2")).want(403, account.CodeScope)
		a.do("DELETE", "/clusters/"+first, key, "").want(403, account.CodeScope)
	}
	a.do("GET", "/clusters/"+first, a.key(a.AccountID, account.ScopeRead), "").want(200)
	a.do("GET", "/clusters", a.key(a.AccountID, account.ScopeOperator), "").want(403, account.CodeScope)
}
