// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointtrust_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	keyA = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	keyB = "sha256/57DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
)

// certificate returns the PEM of a self-signed certificate.
func certificate(t *testing.T, name string, isCA bool) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: isCA,
		BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

// policy returns one of namespace demo that selects the endpoints.
func policy(name string, spec endpointtrust.Spec, endpoints ...string) endpointtrust.Policy {
	spec.Endpoints = endpoints
	return endpointtrust.Policy{Namespace: "demo", Name: name, UID: "uid-" + name, Generation: 1, Spec: spec}
}

var (
	requireA = endpointtrust.Spec{Keys: []string{keyA}}
	requireB = endpointtrust.Spec{Keys: []string{keyB}}
	preferA  = endpointtrust.Spec{Keys: []string{keyA}, Mode: sealed.Prefer}
	bare     = endpointtrust.Spec{} // neither authorities nor keys
)

func onPort(port int32, s endpointtrust.Spec) endpointtrust.Spec {
	s.Ports = []int32{port}
	return s
}

// show returns a decision as "MODE TRUSTS", or why it refuses.
func show(d endpointtrust.Decision) string {
	if d.Refused != "" {
		return string(d.Refused)
	}
	text := string(d.Trust.Mode)
	for _, c := range d.Trust.Authorities {
		text += " " + c.Subject.CommonName
	}
	for _, k := range d.Trust.Keys {
		text += " " + strings.TrimPrefix(sealed.FormatKey(k), "sha256/")[:1]
	}
	return text
}

func TestRules_Decide(t *testing.T) {
	t.Parallel()
	rootText, ownText := certificate(t, "root", true), certificate(t, "own", true)
	roots, err := authority.ParseAuthorities(rootText)
	must.Succeed(t, err)
	installation := func(mode sealed.Mode) endpointtrust.Default {
		return endpointtrust.Default{Mode: mode, Account: "ac-1", Authorities: roots}
	}
	own := endpointtrust.Spec{Authorities: []string{ownText + ownText}}
	gone := func(second int, p endpointtrust.Policy) endpointtrust.Policy {
		return p.VanishedAt(time.Unix(int64(second), 0))
	}
	broken := endpointtrust.Spec{Authorities: []string{"x"}}
	off, require := installation(sealed.Off), installation(sealed.Require)
	noAccount := endpointtrust.Default{Mode: sealed.Off}
	noRoots := endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"}
	seen := func(name, url, key, endpoint string) endpointtrust.Policy {
		p := policy(name, bare, endpoint)
		p.Pins = map[string]string{url: key}
		return p
	}
	recorded := func(name, url string, spec endpointtrust.Spec) endpointtrust.Policy {
		p := policy(name, spec, "api")
		p.Pins = map[string]string{url: keyB}
		return p
	}
	barePrefer := endpointtrust.Spec{Mode: sealed.Prefer}
	type policies = []endpointtrust.Policy
	for name, tt := range map[string]struct {
		byDefault endpointtrust.Default
		policies  policies
		want      string // of http://api.demo
	}{
		"off":                 {off, nil, "Off"},
		"off, for no account": {noAccount, nil, "Off"},
		"required":            {require, nil, "Require root"},
		"another endpoint's":  {off, policies{policy("p", requireA, "web")}, "Off"},
		"a key's":             {off, policies{policy("p", requireA, "api")}, "Require 4"},
		"a wildcard's":        {off, policies{policy("p", requireA, "w", "a*")}, "Require 4"},
		"another port's":      {off, policies{policy("p", onPort(81, requireA), "api")}, "Off"},
		"its port's":          {off, policies{policy("p", onPort(80, requireA), "api")}, "Require 4"},
		"an authority's":      {require, policies{policy("p", own, "*")}, "Require own own"},
		"the installation's":  {off, policies{policy("p", bare, "api")}, "Require root"},
		"of equal trust":      {off, policies{policy("p", requireA, "api"), policy("q", requireA, "*")}, "Require 4"},
		"conflicting": {off, policies{policy("p", requireA, "api"), policy("q", requireB, "*")},
			"trust_conflict"},
		"conflicting on another port": {off,
			policies{policy("p", requireA, "api"), policy("q", onPort(81, requireB), "*")}, "Require 4"},
		"with and without authorities": {off, policies{policy("p", bare, "api"), policy("q", own, "*")},
			"trust_conflict"},
		"invalid": {off, policies{policy("p", broken, "api")}, "trust_invalid"},
		"invalid beside valid": {off, policies{policy("p", broken, "api"), policy("q", requireA, "api")},
			"trust_conflict"},
		"first sight":         {noRoots, policies{policy("p", bare, "api")}, "trust_not_pinned"},
		"first sight, pinned": {noRoots, policies{seen("p", "http://api.demo", keyA, "api")}, "Require 4"},
		"first sight, pinned at another port": {noRoots, policies{seen("p", "http://api.demo:81", keyA, "api")},
			"trust_not_pinned"},
		"first sight, unreadable": {noRoots, policies{seen("p", "http://api.demo", "sha256/x", "api")},
			"trust_not_pinned"},
		"first sight by two": {noRoots, policies{seen("p", "http://api.demo", keyA, "api"), policy("q", bare, "*")},
			"Require 4"},
		"first sight by a new one, too": {noRoots, policies{policy("a", bare, "*"),
			seen("p", "http://api.demo", keyA, "api")}, "Require 4"},
		"first sight of two keys": {noRoots, policies{seen("p", "http://api.demo", keyA, "api"),
			seen("q", "http://api.demo", keyB, "*")}, "trust_conflict"},
		"first sight beside a key": {noRoots, policies{seen("p", "http://api.demo", keyA, "api"),
			policy("q", requireB, "*")}, "trust_conflict"},
		"pins beside an authority": {off, policies{seen("p", "http://api.demo", keyA, "api")}, "Require root"},
		"preferred":                {off, policies{policy("p", preferA, "api")}, "Prefer 4"},
		"preferred, recorded":      {off, policies{recorded("p", "http://api.demo", preferA)}, "Require 4"},
		"preferred, another URL":   {off, policies{recorded("p", "tcp://api.demo:80", preferA)}, "Prefer 4"},
		"preferred by a new one, too": {off,
			policies{policy("a", preferA, "*"), recorded("p", "http://api.demo", preferA)}, "Require 4"},
		"preferred where it is required": {require, policies{policy("p", barePrefer, "api")}, "Require root"},
		"preferred, the installation's":  {off, policies{policy("p", barePrefer, "api")}, "Prefer root"},
		"preferred, required": {off,
			policies{policy("p", preferA, "api"), policy("q", requireA, "*")}, "Require 4"},
		"required, preferred": {off,
			policies{policy("p", requireA, "api"), policy("q", preferA, "*")}, "Require 4"},
		"preferred, conflicting": {off, policies{policy("p", preferA, "api"), policy("q", requireB, "*")},
			"trust_conflict"},
		"preferred at first sight": {noRoots, policies{recorded("p", "http://api.demo", barePrefer)}, "trust_invalid"},
		"for no account":           {noAccount, policies{policy("p", bare, "api")}, "trust_no_account"},
		"vanished":                 {off, policies{gone(1, policy("p", requireA, "api"))}, "Require 4"},
		"vanished last": {off,
			policies{gone(1, policy("p", requireA, "api")), gone(2, policy("q", requireB, "api"))}, "Require 5"},
		"replaced": {off, policies{gone(1, policy("p", requireA, "api")), policy("q", requireB, "*")}, "Require 5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := endpointtrust.Compile(tt.policies, tt.byDefault, endpointaccess.Listed{"": true})
			u, err := account.ParseEndpointURL("http://api.demo")
			must.Succeed(t, err)
			if got := show(rules.Decide(u)); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			u.Host = "api.other"
			none := endpointtrust.Compile(nil, tt.byDefault, endpointaccess.Listed{"": true})
			if got, want := show(rules.Decide(u)), show(none.Decide(u)); got != want {
				t.Errorf("another namespace: %s, want %s", got, want)
			}
		})
	}
}

// TestRules_SelectImportedServices holds that hosts of three labels are selected like others, and have pins.
func TestRules_SelectImportedServices(t *testing.T) {
	t.Parallel()
	p := policy("p", onPort(5432, bare), "db")
	p.Pins = map[string]string{"tcp://db.demo.a:5432": keyA}
	rules := endpointtrust.Compile([]endpointtrust.Policy{p}, endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"},
		endpointaccess.Listed{"": true})
	p.Spec.Keys, p.Spec.Mode = []string{keyA}, sealed.Prefer
	preferred := endpointtrust.Compile([]endpointtrust.Policy{p},
		endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"}, endpointaccess.Listed{"": true})
	for cluster, want := range map[string][2]string{
		"a": {"Require 4", "Require 4"}, "b": {"trust_not_pinned", "Prefer 4"},
	} {
		u := account.ExportedPortURL("db", "demo", cluster, 5432)
		if got := [2]string{show(rules.Decide(u)), show(preferred.Decide(u))}; got != want {
			t.Errorf("of %s: %s, want %s", cluster, got, want)
		}
	}
}

// TestRules_DecideAllocatesNothing checks what every connection costs.
func TestRules_DecideAllocatesNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts all goroutines'
	policies := []endpointtrust.Policy{policy("p", requireA, "w", "a*"), policy("q", requireA, "api")}
	rules := endpointtrust.Compile(policies,
		endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"}, endpointaccess.Listed{"": true})
	u := account.EndpointURL{Scheme: "http", Host: "api.demo", Port: 80}
	if n := testing.AllocsPerRun(100, func() { rules.Decide(u) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRules_UnknownNamespace checks that endpoints of a namespace whose objects were never listed are
// refused.
func TestRules_UnknownNamespace(t *testing.T) {
	t.Parallel()
	u := account.EndpointURL{Scheme: "http", Host: "api.demo", Port: 80}
	for _, tt := range []struct {
		account string
		mode    sealed.Mode
		listed  endpointaccess.Listed
		want    string
	}{
		{"ac-1", sealed.Off, endpointaccess.Listed{"": false}, "trust_unknown"},
		{"ac-1", sealed.Require, endpointaccess.Listed{"demo": false, "other": true}, "trust_unknown"},
		{"ac-1", sealed.Off, endpointaccess.Listed{"demo": true, "other": false}, "Off"},
		{"", sealed.Off, endpointaccess.Listed{"": false}, "trust_unknown"},
		{"", sealed.Off, endpointaccess.Listed{"": true}, "Off"},
	} {
		rules := endpointtrust.Compile(nil, endpointtrust.Default{Mode: tt.mode, Account: tt.account}, tt.listed)
		if got := show(rules.Decide(u)); got != tt.want || rules.Knows("demo") != (got != "trust_unknown") {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// TestRules_Generation checks that a decision's generation changes with whatever it trusts, and with
// nothing else.
func TestRules_Generation(t *testing.T) {
	t.Parallel()
	root, other := certificate(t, "root", true), certificate(t, "other", true)
	generation := func(id string, s endpointtrust.Spec) string {
		rules := endpointtrust.Compile([]endpointtrust.Policy{policy("p", s, "api")},
			endpointtrust.Default{Mode: sealed.Off, Account: id}, endpointaccess.Listed{"": true})
		return rules.Decide(account.EndpointURL{Scheme: "http", Host: "api.demo", Port: 80}).Generation
	}
	both := endpointtrust.Spec{Authorities: []string{root + other}}
	same := endpointtrust.Spec{Authorities: []string{other, root}, Ports: []int32{80}}
	if a, b := generation("ac-1", both), generation("ac-1", same); a != b || a == "" {
		t.Errorf("%s and %s for the same", a, b)
	}
	seen := map[string]bool{}
	for _, s := range []endpointtrust.Spec{both, requireA, requireB, {Authorities: []string{root}}} {
		for _, id := range []string{"ac-1", "ac-2"} {
			if g := generation(id, s); seen[g] {
				t.Errorf("%s is the generation of different settings", g)
			} else {
				seen[g] = true
			}
		}
	}
}

func TestRules_ExamineNamesOverlaps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b    string
		overlap bool
	}{
		{"api", "api", true}, {"api", "web", false}, {"api", "a*", true}, {"*", "x", true}, {"a*", "b*", false},
		{"a*", "*b", true}, {"a*c", "ab*", true}, {"a*x", "a*y", false}, {"*a*", "b*b", true}, {"ab*", "abc*d", true},
		{"a**", "*-*b", true}, {"abc*", "ab", false},
	} {
		for _, p := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
			rules := endpointtrust.Compile([]endpointtrust.Policy{policy("p", requireA, p[0]),
				policy("q", requireB, p[1]), policy("r", requireA, p[0]),
				policy("gone", requireB, "*").VanishedAt(time.Unix(1, 0))},
				endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"}, endpointaccess.Listed{"": true})
			found, d := rules.Examine("demo", "q")
			if found == nil || (d.Refused == endpointtrust.ReasonConflict) != tt.overlap ||
				tt.overlap != strings.Contains(d.Detail, "EndpointTrust p, r ") {
				t.Errorf("%v: %+v", p, d)
			}
			if found, _ := rules.Examine("demo", "gone"); found != nil {
				t.Error("a policy that has vanished is examined")
			}
		}
	}
}
