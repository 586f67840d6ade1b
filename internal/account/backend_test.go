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
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestBackendKind_HasIDPrefix(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, kind := range account.BackendKinds() {
		id := account.NewID(kind.IDPrefix(), time.Now())
		if len(id) > 32 || !account.ValidID(kind.IDPrefix(), id) || seen[kind.IDPrefix()] {
			t.Errorf("%s: id %q", kind, id)
		}
		seen[kind.IDPrefix()] = true
	}
	if p := account.BackendKind("other").IDPrefix(); p != "" {
		t.Errorf("an unknown kind has prefix %q", p)
	}
}

// many returns n texts.
func many(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("b%d", i))
	}
	return all
}

// tooManyHeaders returns one header more than an answer may have.
func tooManyHeaders() map[string]string {
	headers := map[string]string{}
	for _, name := range many(account.MaxResponseHeaders + 1) {
		headers[name] = "x"
	}
	return headers
}

// backendRules are patches of new backends with the fields whose rules they break.
var backendRules = []struct {
	name  string
	kind  account.BackendKind
	patch account.BackendPatch
	want  []string // fields with broken rules
}{
	{"a failover", account.BackendFailover,
		account.BackendPatch{Children: new(many(16)), HealthStatus: new([]int{503, 429})}, nil},
	{"no child", account.BackendFailover, account.BackendPatch{}, []string{"backends"}},
	{"17 children", account.BackendFailover, account.BackendPatch{Children: new(many(17))}, []string{"backends"}},
	{"a child twice", account.BackendFailover, account.BackendPatch{Children: new([]string{"a", "b", "a"})},
		[]string{"backends[2]"}},
	{"no status", account.BackendFailover,
		account.BackendPatch{Children: new(many(1)), HealthStatus: new([]int{99, 503, 600})},
		[]string{"health.http_status[0]", "health.http_status[2]"}},
	{"weights", account.BackendWeighted, account.BackendPatch{Weights: &map[string]int{"a": 0, "b": 10000}}, nil},
	{"bad weights", account.BackendWeighted, account.BackendPatch{Weights: &map[string]int{"a": -1, "b": 10001}},
		[]string{"backends.a", "backends.b"}},
	{"no weight", account.BackendWeighted, account.BackendPatch{Weights: &map[string]int{"a": 0}},
		[]string{"backends"}},
	{"labels", account.BackendTunnelGroup, account.BackendPatch{Labels: &map[string]string{"app": "api"}}, nil},
	{"no labels", account.BackendTunnelGroup, account.BackendPatch{}, []string{"labels"}},
	{"an answer", account.BackendHTTPResponse, account.BackendPatch{}, nil},
	{"a whole answer", account.BackendHTTPResponse,
		account.BackendPatch{StatusCode: new(503),
			Headers: &map[string]string{"Content-Type": "text/plain", "x_y": ""},
			Body:    new("é")}, nil},
	{"an informational status", account.BackendHTTPResponse, account.BackendPatch{StatusCode: new(101)},
		[]string{"status_code"}},
	{"a body that cannot be", account.BackendHTTPResponse,
		account.BackendPatch{StatusCode: new(204), Body: new("x")},
		[]string{"body"}},
	{"a long body", account.BackendHTTPResponse,
		account.BackendPatch{Body: new(strings.Repeat("x", account.MaxResponseBody+1))}, []string{"body"}},
	{"bad headers", account.BackendHTTPResponse, account.BackendPatch{Headers: &map[string]string{
		"": "x", "a b": "x", "X": "1\r\nY: 2", "content-Length": "5", "z": " x",
		"Fairlead-Error-Code": "x", "fairlead_x": "x",
	}}, []string{"headers.", "headers.Fairlead-Error-Code", "headers.X", "headers.a b",
		"headers.content-Length", "headers.fairlead_x", "headers.z"}},
	{"one header twice", account.BackendHTTPResponse,
		account.BackendPatch{Headers: &map[string]string{"X-A": "1", "x-a": "2"}}, []string{"headers.x-a"}},
	{"many headers", account.BackendHTTPResponse, account.BackendPatch{Headers: new(tooManyHeaders())},
		[]string{"headers"}},
	{"texts", account.BackendStatic,
		account.BackendPatch{Address: new("a:1"), Description: new(strings.Repeat("x", 256)),
			Metadata: new("\x00")}, []string{"description", "metadata"}},
	{"no address", account.BackendStatic, account.BackendPatch{TLS: new(true)}, []string{"address"}},
	{"no kind", "other", account.BackendPatch{}, []string{"kind"}},
}

func TestBackend_NamesBrokenRules(t *testing.T) {
	t.Parallel()
	for _, c := range backendRules {
		_, err := c.patch.Apply(account.Backend{Kind: c.kind}, time.Time{})
		var got []string
		for _, f := range account.FieldsOf(err) {
			got = append(got, f.Field)
		}
		if !slices.Equal(got, c.want) || err != nil && account.CodeOf(err) != account.CodeInvalid {
			t.Errorf("%s: broken %q (%v), want %q", c.name, got, err, c.want)
		}
	}
}

func TestStaticAddress_NormalisesAndRefuses(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"db.example.com:5432": "db.example.com:5432", "DB.Example.com:1": "db.example.com:1",
		"localhost:65535": "localhost:65535", "my_host:80": "my_host:80",
		"192.0.2.1:80": "192.0.2.1:80", "[2001:DB8::1]:443": "[2001:db8::1]:443",
		"": "", "host": "", "host:": "", ":80": "", "host:0": "", "host:65536": "", "host:080": "", "host:http": "",
		"2001:db8::1:443": "", "[192.0.2.1]:80": "",
		"[fe80::1%eth0]:80": "", "[::1:80": "", "a..b:80": "", "-a:80": "", "a b:80": "", "http://a:80": "",
		"a/b:80":    "",
		"user@a:80": "", "1.2.3:80": "", "256.1.1.1:80": "",
		strings.Repeat("a.", 130) + "b:80": "",
	} {
		b, err := account.BackendPatch{Address: &raw}.Apply(account.Backend{Kind: account.BackendStatic}, time.Time{})
		if (err == nil) != (want != "") || err == nil && b.Static.Address != want {
			t.Errorf("%q: %+v, %v, want %q", raw, b.Static, err, want)
		}
	}
}

func TestBackendPatch_KeepsUnnamedFields(t *testing.T) {
	t.Parallel()
	first, err := account.BackendPatch{StatusCode: new(503), Body: new("down"),
		Description: new("d")}.Apply(account.Backend{Kind: account.BackendHTTPResponse}, time.Time{})
	must.Succeed(t, err)
	second, err := account.BackendPatch{Body: new("up")}.Apply(first, time.Time{})
	if err != nil || second.Response.StatusCode != 503 || second.Response.Body != "up" || second.Description != "d" ||
		first.Response.Body != "down" {
		t.Errorf("first %+v, then %+v, %v", first.Response, second.Response, err)
	}
}
