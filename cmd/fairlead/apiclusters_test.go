// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// jwksFile writes a key set with a new public key to a file.
func jwksFile(t *testing.T, kid string) string {
	t.Helper()
	raw, err := json.Marshal(accounttest.NewTokenSigner(t, kid, "ES256").KeySet(t))
	storetest.Must(t, err)
	return textFile(t, string(raw))
}

func textFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	storetest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (a *accountAPI) cluster(id string) account.Cluster {
	a.t.Helper()
	var c account.Cluster
	storetest.Must(a.t, json.Unmarshal([]byte(a.api(0, "clusters", "get", id, "-o", "json").out), &c))
	return c
}

func TestAPIClusters_CreateFromStandardInput(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	keys, err := os.ReadFile(jwksFile(t, "k1"))
	storetest.Must(t, err)
	made := fairlead(t, a.env, string(keys), "api", "clusters", "create", "--name", "prod", "--jwks-file", "-")
	storetest.Equal(t, "exit code", made.code, 0)
	id := regexp.MustCompile(`cl-[0-9a-v]+`).FindString(made.out)
	for _, want := range []string{`(?m)^name +prod$`, `(?m)^issuer +` + regexp.QuoteMeta(account.DefaultIssuer) + `$`,
		`(?m)^key +k1 \(ES256\)$`, `(?m)^subject +operator=fairlead/fairlead-operator-manager$`,
		`(?m)^subject +exporter=fairlead/fairlead-operator-exporter, rules export:\*,bind:\*$`} {
		if !regexp.MustCompile(want).MatchString(made.out) {
			t.Errorf("create does not print %s:\n%s", want, made.out)
		}
	}
	for _, want := range []string{"helm install fairlead-operator charts/fairlead-operator --namespace fairlead",
		"--set api.url=https://fairlead.example.com --set-file api.caBundle=ca.crt",
		"--set credentials.serviceAccount.enabled=true", "credentials.serviceAccount.accountID=" + a.AccountID,
		"cluster.token_refused"} {
		if !strings.Contains(made.err, want) {
			t.Errorf("create does not tell %q:\n%s", want, made.err)
		}
	}
	if table := a.api(0, "clusters", "list", "-o", "wide").out; !regexp.MustCompile(`(?m)^ID +NAME +LAST USED ` +
		`+ISSUER +KEYS +ROLES +DESCRIPTION\n` + id +
		` +prod +- +https://kubernetes\S+ +k1 +operator,forwarder,exporter +-\n$`).MatchString(table) {
		t.Errorf("table:\n%s", table)
	}
	if r := a.api(0, "clusters", "delete", id); r.err != "cluster "+id+" deleted\n" {
		t.Errorf("delete prints %+v", r)
	}
	a.api(1, "clusters", "get", id)
}

func TestAPIClusters_TakeIssuerFromDiscoveryDocument(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	const discovery, question = `{"issuer":"https://eks.example/id/1","jwks_uri":"https://10.0.0.1/openid/v1/jwks"}`,
		"EKS, GKE and AKS have their own"
	for name, c := range map[string]struct{ before, flag, want string }{
		"keys-alone":        {"", "", account.DefaultIssuer},
		"document-and-keys": {discovery, "", "https://eks.example/id/1"},
		"separate-lines":    {discovery + "\n", "", "https://eks.example/id/1"},
		"flag-wins":         {discovery, "https://other.example", "https://other.example"},
	} {
		keys, err := os.ReadFile(jwksFile(t, name))
		storetest.Must(t, err)
		args := []string{"api", "clusters", "create", "--name", name, "--jwks-file", "-"}
		if c.flag != "" {
			args = append(args, "--issuer", c.flag)
		}
		made := fairlead(t, a.env, c.before+string(keys), args...)
		id := regexp.MustCompile(`cl-[0-9a-v]+`).FindString(made.out)
		issuer, asked := a.cluster(id).Issuer, strings.Contains(made.err, question)
		if issuer != c.want || asked != (c.before == "") {
			t.Errorf("%s: issuer %q, want %q; it tells\n%s", name, issuer, c.want, made.err)
		}
		if name == "keys-alone" {
			a.api(0, "clusters", "update", id, "--jwks-file", textFile(t, discovery+string(keys)))
			storetest.Equal(t, "updated issuer", a.cluster(id).Issuer, "https://eks.example/id/1")
		}
	}
}

func TestAPIClusters_CreateForRelease(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	names := func(args ...string) string {
		t.Helper()
		kid := strings.Join(args, "")
		made := a.object(append([]string{"clusters", "create", "--jwks-file", jwksFile(t, kid)}, args...)...)
		text := ""
		for _, s := range a.cluster(made["id"].(string)).Subjects {
			text += fmt.Sprint(s.Role, "=", s.Namespace, "/", s.ServiceAccount, s.ACL, " ")
		}
		return text
	}
	storetest.Equal(t, "release", names("--name", "a", "--namespace", "net", "--release", "edge"),
		"operator=net/edge-fairlead-operator-manager[] forwarder=net/edge-fairlead-operator-forwarder[connect:*] "+
			"exporter=net/edge-fairlead-operator-exporter[export:* bind:*] ")
	storetest.Equal(t, "rules", names("--name", "b", "--release", "my-fairlead-operator", "--acl", "export:a/*"),
		"operator=fairlead/my-fairlead-operator-manager[] "+
			"forwarder=fairlead/my-fairlead-operator-forwarder[connect:*] "+
			"exporter=fairlead/my-fairlead-operator-exporter[export:a/*] ")
	storetest.Equal(t, "subjects", names("--name", "c", "--subject", "exporter=apps/web", "--subject",
		"operator=apps/op"), "exporter=apps/web[export:* bind:*] operator=apps/op[] ")
}

func TestAPIClusters_ChangeKeysAndSubjects(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	id := a.object("clusters", "create", "--name", "prod", "--jwks-file", jwksFile(t, "k1"))["id"].(string)
	kids := func() (all []string) {
		for _, k := range a.cluster(id).JWKS.Keys {
			all = append(all, k.KeyID)
		}
		slices.Sort(all)
		return all
	}
	a.api(0, "clusters", "update", id, "--add-jwks-file", jwksFile(t, "k2"), "--description", "eu")
	storetest.Equal(t, "added", strings.Join(kids(), " ")+a.cluster(id).Description, "k1 k2eu")
	a.api(0, "clusters", "update", id, "--remove-key", "k1")
	storetest.Equal(t, "removed", strings.Join(kids(), " "), "k2")
	a.api(0, "clusters", "update", id, "--jwks-file", jwksFile(t, "k3"))
	storetest.Equal(t, "replaced", strings.Join(kids(), " "), "k3")

	before := a.cluster(id).Subjects
	for _, s := range before {
		_, err := a.Store.PinServiceAccount(t.Context(), a.AccountID, s.ID, "uid-"+string(s.Role))
		storetest.Must(t, err)
	}
	a.api(0, "clusters", "update", id, "--reset-uid", "fairlead/fairlead-operator-forwarder")
	for i, s := range a.cluster(id).Subjects {
		want := "uid-" + string(s.Role)
		if s.Role == account.RoleForwarder {
			want = ""
		}
		storetest.Equal(t, "uid", s.UID, want)
		storetest.Equal(t, "kept", fmt.Sprint(s.ID, s.ACL), fmt.Sprint(before[i].ID, before[i].ACL))
	}
	a.api(0, "clusters", "update", id, "--add-subject", "exporter=apps/exporter", "--acl", "export:apps/*")
	after := a.cluster(id).Subjects
	storetest.Equal(t, "added subject", fmt.Sprint(len(after), after[0].UID, after[3].ServiceAccount, after[3].ACL),
		"4uid-operatorexporter[export:apps/*]")
	storetest.Must(t, a.Store.RecordAudit(t.Context(), account.Caller{AccountID: a.AccountID},
		account.AuditTokenRefused, id,
		map[string]string{"reason": "too old", "namespace": "n", "service_account": "s"}))
	if table := a.api(0, "events", "list", "--type", "cluster.token_refused", "-o",
		"wide").out; !strings.Contains(table,
		id+"   -    namespace=n,reason=too old,service_account=s\n") {
		t.Errorf("events:\n%s", table)
	}
}

func TestAPIClusters_RefuseWrongInput(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	storetest.Must(t, err)
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key, KeyID: "k"}}})
	storetest.Must(t, err)
	good := jwksFile(t, "k1")
	id := a.object("clusters", "create", "--name", "first", "--jwks-file", good)["id"].(string)
	create := func(keys string, further ...string) []string {
		return append([]string{"create", "--name", "a", "--jwks-file", keys}, further...)
	}
	for want, args := range map[string][]string{
		"is empty; give what":                   create(textFile(t, "\n")),
		"is HTML or XML":                        create(textFile(t, "<!doctype html>")),
		"is PEM":                                create(textFile(t, "-----BEGIN PUBLIC KEY-----")),
		"is the discovery document":             create(textFile(t, `{"jwks_uri":"x"}`)),
		`the member "d" of a private key`:       create(textFile(t, string(private))),
		"must be a JSON Web Key Set":            create(textFile(t, `{"kind":"Status"}`)),
		"--jwks-file: open":                     create(good + "x"),
		"--name is missing":                     {"create", "--jwks-file", good},
		"--jwks-file is missing":                {"create", "--name", "a"},
		"must be ROLE=NAMESPACE/NAME":           create(good, "--subject", "operator"),
		"must be operator, forwarder or":        create(good, "--subject", "root=a/b"),
		"nothing to change is given":            {"update", id},
		"is the kid of no key":                  {"update", id, "--remove-key", "k9"},
		"the cluster has no such subject":       {"update", id, "--reset-uid", "fairlead/x"},
		"go with --add-subject and --reset-uid": {"update", id, "--reset-uid", "a/b", "--subject", "operator=a/b"},
		"--acl goes with --subject or":          {"update", id, "--acl", "export:*"},
	} {
		r := a.api(exitUsage, append([]string{"clusters"}, args...)...)
		if !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Errorf("%q: %+v, want %q", args, r, want)
		}
	}
	for _, name := range []string{"first", "second"} { // its name, and its key
		args := []string{"clusters", "create", "--name", name, "--jwks-file", good}
		if r := a.api(exitOther, args...); !strings.Contains(r.err, id) || !strings.Contains(r.err, "(ERR_FL_1061)") {
			t.Errorf("%q: %+v, want that it names %s", args, r, id)
		}
	}
}

// TestAPIClusters_SendNoPrivateKey requires that a private key is refused before a request is made.
func TestAPIClusters_SendNoPrivateKey(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	a.env["FAIRLEAD_SERVER_URL"] = "https://127.0.0.1:1"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	storetest.Must(t, err)
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key, KeyID: "k"}}})
	storetest.Must(t, err)
	for _, args := range [][]string{{"create", "--name", "a", "--jwks-file", "-"},
		{"update", "cl-1", "--jwks-file", "-"}, {"update", "cl-1", "--add-jwks-file", "-"}} {
		r := fairlead(t, a.env, string(private), append([]string{"api", "clusters"}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, "private key") || strings.Contains(r.err, string(private)) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
