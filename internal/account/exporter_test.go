// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestExporterACL_Normalise(t *testing.T) {
	t.Parallel()
	backend := account.NewID(account.BackendStatic.IDPrefix(), time.Now())
	all := []string{"export:*", "bind:*"}
	for rule, want := range map[string]string{
		"export:Team-A/Api": "export:team-a/api", "export:team-a/*": "export:team-a/*", "export:*/api": "export:*/api",
		"bind:HTTP://Api.Demo:80": "bind:http://api.demo", "bind:http://*.demo": "bind:http://*.demo",
		"backend:" + strings.ToUpper(backend): "backend:" + backend, "backend:bkdfo-*": "backend:bkdfo-*",
		"internal:API.internal": "internal:api.internal", "internal:*.team-a.internal": "internal:*.team-a.internal",
	} {
		got, err := account.NormaliseExporterACL(append(slices.Clone(all), rule))
		if err != nil || len(got) != 3 || got[2] != want {
			t.Errorf("%s: %v, %v, want %s", rule, got, err, want)
		}
	}
	for rule, problem := range map[string]string{
		"":                                 "must be export:",
		"export":                           "must be export:",
		"export:":                          "must be export:",
		"EXPORT:a/b":                       "must be export:",
		"connect:*":                        "must be export:",
		"export:team-a":                    "export:team-a/*",
		"export:/api":                      "names no NAMESPACE/NAME",
		"export:team-a/":                   "names no NAMESPACE/NAME",
		"bind:app=api":                     "no labels",
		"bind:ftp://a.b":                   "could never match",
		"bind:a b":                         "printable",
		"backend:api":                      "names no backend id",
		"backend:op-06gvhcq2s2auogl7hp":    "names no backend id",
		"internal:api":                     "names no host",
		"internal:http://api.internal":     "without scheme and port",
		"internal:api.internal:80":         "without scheme and port",
		"bind:" + strings.Repeat("*", 600): "at most 512",
	} {
		_, err := account.NormaliseExporterACL(append(slices.Clone(all), rule))
		if fields := account.FieldsOf(err); len(fields) != 1 || !strings.Contains(fields[0].Rule, problem) {
			t.Errorf("%q: %v, want %q", rule, err, problem)
		}
	}
	for _, useless := range [][]string{{"bind:*"}, {"bind:*", "backend:*"}, {"internal:*"}, {}} {
		if _, err := account.NormaliseExporterACL(useless); err == nil ||
			!strings.Contains(err.Error(), "export:* and bind:*") {
			t.Errorf("%v: %v", useless, err)
		}
	}
}

func TestExporterACL_Admits(t *testing.T) {
	t.Parallel()
	acl := account.ACL{"export:team-a/*", "export:shared/api", "bind:http://*.team-a", "backend:bkdst-1",
		"internal:*.team-a.internal"}
	for what, c := range map[string]struct{ got, want bool }{
		"an object of the namespace": {acl.MayExport("team-a", "x"), true},
		"a namespace that begins so": {acl.MayExport("team-ab", "x"), false},
		"another namespace":          {acl.MayExport("team-b", "team-a"), false},
		"one object":                 {acl.MayExport("shared", "api"), true},
		"one beside it":              {acl.MayExport("shared", "api2"), false},
		"a URL":                      {acl.MayBind("http://x.team-a"), true},
		"another URL":                {acl.MayBind("http://x.team-b"), false},
		"a URL by another verb":      {account.ACL{"export:*"}.MayBind("http://x.team-a"), false},
		"a backend":                  {acl.MayUseBackend("bkdst-1"), true},
		"another backend":            {acl.MayUseBackend("bkdst-2"), false},
		"an internal host":           {acl.MayForwardInternal("x.team-a.internal"), true},
		"another internal host":      {acl.MayForwardInternal("x.team-b.internal"), false},
		"any internal host":          {acl.MayForwardInternal("*"), false},
		"any, by a rule for all":     {account.ACL{"internal:*"}.MayForwardInternal("*"), true},
		"any, by one for .internal":  {account.ACL{"internal:*.internal"}.MayForwardInternal("*"), false},
	} {
		if c.got != c.want {
			t.Errorf("%s is admitted: %t", what, c.got)
		}
	}
	facts := account.PolicyFacts{Backends: []string{"bkdst-1"}, InternalHosts: []string{"x.team-a.internal"}}
	if err := acl.CheckForwards("key", facts, "bkdst-1"); err != nil {
		t.Error(err)
	}
	for want, c := range map[string]struct {
		facts   account.PolicyFacts
		backend string
	}{
		"no backend rule that admits bkdst-9":     {facts, "bkdst-9"},
		"no backend rule that admits bkdst-2":     {account.PolicyFacts{Backends: []string{"bkdst-1", "bkdst-2"}}, ""},
		"no internal rule that admits b.internal": {account.PolicyFacts{InternalHosts: []string{"b.internal"}}, ""},
		"no rule internal:*":                      {account.PolicyFacts{InternalHosts: []string{"*"}}, ""},
	} {
		if err := acl.CheckForwards("key", c.facts, c.backend); err == nil || err.Code != account.CodeScope ||
			!strings.Contains(err.Msg, want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

func TestAPIKeyPatch_AppliesExporter(t *testing.T) {
	t.Parallel()
	exporter, admin := []account.Scope{account.ScopeExporter}, []account.Scope{account.ScopeAdmin}
	rules := []string{"export:a/*", "bind:HTTP://A.B:80"}
	var none []string
	was := account.APIKey{Scopes: exporter, ACL: account.ACL{"export:a/*", "bind:*"}, ClusterUID: "one"}
	for name, c := range map[string]struct {
		key    account.APIKey
		patch  account.APIKeyPatch
		want   string // rules and cluster
		broken string // fields
	}{
		"defaults": {account.APIKey{}, account.APIKeyPatch{Scopes: &exporter}, "[export:* bind:*] ", ""},
		"rules and cluster": {account.APIKey{},
			account.APIKeyPatch{Scopes: &exporter, ACL: &rules, ClusterUID: new("one")},
			"[export:a/* bind:http://a.b] one", ""},
		"nothing":          {was, account.APIKeyPatch{}, "[export:a/* bind:*] one", ""},
		"the same cluster": {was, account.APIKeyPatch{ClusterUID: new("one")}, "[export:a/* bind:*] one", ""},
		"an empty cluster": {was, account.APIKeyPatch{ClusterUID: new("")}, "[export:a/* bind:*] one", ""},
		"another cluster":  {was, account.APIKeyPatch{ClusterUID: new("two")}, "", "cluster_uid"},
		"no UID": {account.APIKey{Scopes: exporter}, account.APIKeyPatch{ClusterUID: new("a b")}, "",
			"cluster_uid"},
		"other rules": {was, account.APIKeyPatch{ACL: &rules}, "[export:a/* bind:http://a.b] one", ""},
		"null rules":  {was, account.APIKeyPatch{ACL: &none}, "[export:* bind:*] one", ""},
		"no rules":    {was, account.APIKeyPatch{ACL: &[]string{}}, "", "acl"},
		"no exporter": {was, account.APIKeyPatch{Scopes: &admin}, "[] ", ""},
		"rules of an admin": {account.APIKey{Scopes: admin}, account.APIKeyPatch{ACL: &rules, ClusterUID: new("x")},
			"", "acl cluster_uid"},
		"nothing of an admin": {account.APIKey{Scopes: admin}, account.APIKeyPatch{ACL: &none, ClusterUID: new("")},
			"[] ", ""},
	} {
		got, err := c.patch.Apply(c.key, time.Now())
		var broken []string
		for _, f := range account.FieldsOf(err) {
			broken = append(broken, f.Field)
		}
		if fields := strings.Join(broken, " "); fields != c.broken {
			t.Errorf("%s: fields %q are broken, want %q: %v", name, fields, c.broken, err)
		} else if text := fmt.Sprint(got.ACL, " ", got.ClusterUID); err == nil && (text != c.want || got.ACL == nil) {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

func TestAPIKey_OwnerCluster(t *testing.T) {
	t.Parallel()
	exporter := []account.Scope{account.ScopeExporter}
	owned := func(cluster string) *account.Endpoint {
		return &account.Endpoint{Owner: &account.Owner{Cluster: cluster}}
	}
	for name, c := range map[string]struct {
		key                   account.APIKey
		own, another, unowned bool
	}{
		"an admin key":          {account.APIKey{Scopes: []account.Scope{account.ScopeAdmin}}, true, true, true},
		"an exporter's":         {account.APIKey{Scopes: exporter, ClusterUID: "one"}, true, false, false},
		"one without a cluster": {account.APIKey{Scopes: exporter}, false, false, false},
	} {
		by := account.Caller{OwnerCluster: c.key.OwnerCluster()}
		if by.MayKnow(owned("one")) != c.own || by.MayKnow(owned("two")) != c.another ||
			by.MayKnow(&account.Endpoint{}) != c.unowned {
			t.Errorf("%s knows wrong endpoints", name)
		}
	}
	if account.ValidateClusterUID("cluster_uid", (&account.APIKey{Scopes: exporter}).OwnerCluster()) == nil {
		t.Error("what a key without a cluster is restricted to may be a cluster's UID")
	}
}
