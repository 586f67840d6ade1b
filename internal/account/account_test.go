// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestNewID_MakesSortableServiceNames(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	seen := map[string]bool{}
	last := ""
	for i := range 1000 {
		id := account.NewID(account.PrefixEndpoint, at.Add(time.Duration(i)*time.Millisecond))
		if problems := validation.IsDNS1035Label(id); len(problems) > 0 || len(id) > 32 ||
			!account.ValidID(account.PrefixEndpoint, id) {
			t.Fatalf("%q: %v", id, problems)
		}
		if id <= last || seen[id] {
			t.Fatalf("%q after %q", id, last)
		}
		last, seen[id] = id, true
	}
	for _, bad := range []string{"", "ep-", last[:28], last + "0", "op" + last[2:], strings.ToUpper(last),
		"ep-" + strings.Repeat("w", 26)} {
		if account.ValidID(account.PrefixEndpoint, bad) {
			t.Errorf("%q is valid", bad)
		}
	}
}

func TestResourceVersion_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, v := range []account.ResourceVersion{{}, {Epoch: 7, Seq: 1042}, {Epoch: 1<<62 - 1, Seq: 1<<63 - 1}} {
		if got, err := account.ParseResourceVersion(v.String()); err != nil || got != v {
			t.Errorf("%s: %v, %v", v, got, err)
		}
	}
	for _, bad := range []string{"", "7", "7-", "-7", "7--1", "07-1", "7-01", "7-1 ", "7-1-1", "a-b",
		"7-9223372036854775808", "+7-1", "７-1"} {
		if got, err := account.ParseResourceVersion(bad); account.CodeOf(err) != account.CodeInvalid {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
	var v account.ResourceVersion
	if err := json.Unmarshal([]byte(`""`), &v); err != nil || v != (account.ResourceVersion{}) {
		t.Errorf("empty text: %v, %v", v, err)
	}
}

func TestACL_AdmitsURLs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule, url string
		want      bool
	}{
		{"bind:*", "http://a.b", true}, {"bind:http://*.demo", "http://a.demo", true},
		{"bind:http://*.demo", "http://a.demo:8080", false},
		{"bind:http://*.demo*", "http://a.demo:8080", true}, {"bind:http://*.demo", "tcp://a.demo", false},
		{"bind:http://a.b", "http://a.b", true},
		{"bind:HTTP://A.b:80", "http://a.b", true}, {"bind:http://a.b", "http://aa.b", false},
		{"bind:*a*b*", "xxaxxbxx", true}, {"bind:*a*b*", "b a", false},
		{"bind:HTTPS://App.example.com:443", "https://app.example.com", true},
		{"bind:https://*.example.com", "https://a.b.example.com", true},
		{"bind:https://*.example.com", "http://a.example.com", false},
		{"bind:tcp://db.internal:5432", "tcp://db.internal:5432", true}, {"bind:ab*ba", "aba", false},
		{"bind:ab*ba", "abba", true}, {"connect:*", "http://a.b", false}, {"bind:**", "", true},
	} {
		acl, err := account.NormaliseACL([]string{c.rule})
		if err != nil {
			t.Fatalf("%s: %v", c.rule, err)
		}
		if got := acl.MayBind(c.url); got != c.want {
			t.Errorf("%s admits %s: %t", c.rule, c.url, got)
		}
	}
}

func TestACL_AdmitsCalls(t *testing.T) {
	t.Parallel()
	op := account.NewID(account.PrefixOperator, time.Now())
	acl := account.ACL{"connect:" + op}
	if !acl.MayConnect(op) || acl.MayConnect(op+"x") || acl.MayBind(op) {
		t.Error("connect rule")
	}
	for _, c := range []struct {
		rule, url string
		want      bool
	}{
		{"connect:*", "http://a.b", true}, {"connect:http://*.b", "http://a.b", true},
		{"connect:HTTP://A.b:80/", "http://a.b", true}, {"connect:http://*.b", "tcp://a.b:1", false},
		{"connect:*.b", "http://a.b", false}, {"connect:" + op, "http://a.b", false}, {"bind:*", "http://a.b", false},
	} {
		acl, err := account.NormaliseACL([]string{c.rule})
		if got := acl.MayCall(c.url); err != nil || got != c.want {
			t.Errorf("%s admits calls of %s: %t, %v", c.rule, c.url, got, err)
		}
		if acl.MayConnect(op) != (c.rule == "connect:*" || c.rule == "connect:"+op) {
			t.Errorf("%s admits operator %s: %t", c.rule, op, acl.MayConnect(op))
		}
	}
}

func TestNormaliseACL_RefusesRules(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "bind", "bind:", "*", "dial:*", "connect:http://a", "connect:https://a.b",
		"bind:a b", "bind:ä*", "bind:https://a",
		"bind:tls://a.b", "bind:a.b", "connect:x", "bind:" + strings.Repeat("*", 600)} {
		if got, err := account.NormaliseACL([]string{bad}); account.CodeOf(err) != account.CodeInvalid {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
	if _, err := account.NormaliseACL(slices.Repeat([]string{"bind:*"}, 65)); err == nil {
		t.Error("65 rules are accepted")
	}
	if got, err := account.NormaliseACL([]string{"bind:*", "BIND", "bind:*", "connect:y"}); len(
		account.FieldsOf(err)) != 2 {
		t.Errorf("every bad rule must be told: %v, %v", got, err)
	}
}

func TestScopes_GrantAndValidate(t *testing.T) {
	t.Parallel()
	key := account.APIKey{Scopes: []account.Scope{account.ScopeRead}}
	admin := account.APIKey{Scopes: []account.Scope{account.ScopeAdmin}}
	if !key.HasAnyScope(account.ScopeOperator, account.ScopeRead) || key.HasAnyScope(account.ScopeOperator) ||
		key.HasAnyScope() || !admin.HasAnyScope() ||
		!admin.HasAnyScope(account.ScopeRead) {
		t.Error("HasAnyScope is wrong")
	}
	for _, bad := range [][]account.Scope{nil, {"root"}, {account.ScopeRead, account.ScopeRead},
		{account.ScopeExporter, account.ScopeRead}, {account.ScopeAdmin, account.ScopeExporter}} {
		if account.CodeOf(account.ValidateScopes(bad)) != account.CodeInvalid {
			t.Errorf("%v is accepted", bad)
		}
	}
}

func TestNewSecret_HasPrefixAndLength(t *testing.T) {
	t.Parallel()
	a, b := account.NewSecret(account.APIKeyPrefix), account.NewSecret(account.APIKeyPrefix)
	if a == b || account.ValidateSecret("f", account.APIKeyPrefix, a) != nil || len(a) != len(account.APIKeyPrefix)+43 {
		t.Errorf("%q", a)
	}
	if string(account.HashSecret(a)) == string(account.HashSecret(b)) || len(account.HashSecret(a)) != 32 {
		t.Error("hash")
	}
}

func TestError_CarriesCodeFieldsAndCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk")
	err := fmt.Errorf("binding: %w", &account.Error{Code: account.CodeUnavailable, Msg: "no store", Cause: cause})
	if account.CodeOf(err) != account.CodeUnavailable || !errors.Is(err, cause) ||
		!strings.Contains(err.Error(), "no store: disk") {
		t.Errorf("%v", err)
	}
	if account.CodeOf(nil) != "" || account.CodeOf(cause) != account.CodeInternal || account.FieldsOf(cause) != nil {
		t.Error("CodeOf")
	}
	two := account.InvalidAll([]account.FieldError{{Field: "a", Value: "1", Rule: "r"},
		{Field: "b", Value: "2", Rule: "s"}})
	if two.Error() != `a "1": r; b "2": s` || two.HTTPStatus() != 400 ||
		(&account.Error{Code: "x", Status: 418}).HTTPStatus() != 418 {
		t.Errorf("%v", two)
	}
}

func TestCodes_HaveStatusAndTitle(t *testing.T) {
	t.Parallel()
	for _, info := range account.Codes() {
		if info.Code.Status() != info.Status || info.Status < 400 || info.Title == "" {
			t.Errorf("%s: status %d, title %q", info.Code, info.Status, info.Title)
		}
	}
	if got := account.Code("ERR_FL_9999").Status(); got != 500 {
		t.Errorf("an unknown code has status %d, want 500", got)
	}
}

func TestValidate_ListsEveryBrokenRule(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 9000)
	o := account.Operator{Description: long, Metadata: "\xff", Region: "\x00", ClusterUID: "u",
		EnabledFeatures: []string{"bindings", "bindings"},
		Binding:         &account.OperatorBinding{EndpointSelectors: []string{"", long}, IngressEndpoint: long}}
	if got := account.FieldsOf(o.Validate()); len(got) != 8 {
		t.Errorf("operator: %d rules: %v", len(got), got)
	}
	o = account.Operator{Binding: &account.OperatorBinding{EndpointSelectors: make([]string, 17)}}
	if account.CodeOf(o.Validate()) != account.CodeInvalid {
		t.Error("17 selectors are accepted")
	}
	s := account.TunnelSession{ID: "x", OS: long, IP: long}
	if got := account.FieldsOf(s.Validate()); len(got) != 3 {
		t.Errorf("session: %v", got)
	}
	b := account.BindRequest{Endpoint: account.NewEndpoint(account.BindingPublic, account.EndpointURL{})}
	if got := account.FieldsOf(b.Validate()); len(got) != 1 || got[0].Field != "url" {
		t.Errorf("bind: %v", got)
	}
	b.Bindings[0] = ""
	if got := account.FieldsOf(b.Validate()); len(got) != 2 {
		t.Errorf("bind: %v", got)
	}
	for _, value := range []string{long, strings.Repeat("ä", 100), strings.Repeat("\xff", 100),
		"x" + strings.Repeat("😀", 50)} {
		if got := account.Shorten(value); len(got) > 67 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("shortened to %q", got)
		}
	}
}

func TestEndpointFilter_Matches(t *testing.T) {
	t.Parallel()
	e := account.Endpoint{URL: "http://a.b", Type: "agent", Bindings: []string{account.BindingKubernetes}}
	public, both := []string{"public"}, []string{"public", "kubernetes"}
	for _, c := range []struct {
		f    account.EndpointFilter
		want bool
	}{{want: true}, {account.EndpointFilter{Bindings: e.Bindings}, true},
		{account.EndpointFilter{Bindings: public}, false},
		{account.EndpointFilter{Bindings: both}, true}, {account.EndpointFilter{URL: "http://a.b"}, true},
		{account.EndpointFilter{URL: "http://a.c"}, false},
		{account.EndpointFilter{Bindings: public, URL: "http://a.b"}, false},
		{account.EndpointFilter{Type: "agent"}, true}, {account.EndpointFilter{Type: "cloud"}, false}} {
		if c.f.Matches(&e) != c.want {
			t.Errorf("%+v matches: %t", c.f, !c.want)
		}
	}
}
