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
	requireA = endpointtrust.Spec{Mode: sealed.Require, Keys: []string{keyA}}
	preferA  = endpointtrust.Spec{Mode: sealed.Prefer, Keys: []string{keyA}}
	requireB = endpointtrust.Spec{Mode: sealed.Require, Keys: []string{keyB}}
	first    = endpointtrust.Spec{Mode: sealed.Prefer} // neither authorities nor keys
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
	roots, err := endpointtrust.ParseAuthorities(rootText)
	must.Succeed(t, err)
	installation := func(mode sealed.Mode) endpointtrust.Default {
		return endpointtrust.Default{Mode: mode, Account: "ac-1", Authorities: roots}
	}
	own := endpointtrust.Spec{Mode: sealed.Require, Authorities: []string{ownText + ownText}}
	gone := func(second int, p endpointtrust.Policy) endpointtrust.Policy {
		return p.VanishedAt(time.Unix(int64(second), 0))
	}
	broken := endpointtrust.Spec{Mode: sealed.Prefer, Authorities: []string{"x"}}
	for name, tt := range map[string]struct {
		byDefault endpointtrust.Default
		policies  []endpointtrust.Policy
		want      string // of http://api.demo
	}{
		"off":                         {installation(sealed.Off), nil, "Off"},
		"off, for no account":         {endpointtrust.Default{Mode: sealed.Off}, nil, "Off"},
		"preferred":                   {installation(sealed.Prefer), nil, "Prefer root"},
		"required":                    {installation(sealed.Require), nil, "Require root"},
		"another endpoint's":          {installation(sealed.Off), []endpointtrust.Policy{policy("p", requireA, "web")}, "Off"},
		"a key's":                     {installation(sealed.Off), []endpointtrust.Policy{policy("p", requireA, "api")}, "Require 4"},
		"a wildcard's":                {installation(sealed.Off), []endpointtrust.Policy{policy("p", preferA, "w", "a*")}, "Prefer 4"},
		"another port's":              {installation(sealed.Off), []endpointtrust.Policy{policy("p", onPort(81, requireA), "api")}, "Off"},
		"its port's":                  {installation(sealed.Off), []endpointtrust.Policy{policy("p", onPort(80, requireA), "api")}, "Require 4"},
		"an authority's":              {installation(sealed.Prefer), []endpointtrust.Policy{policy("p", own, "*")}, "Require own own"},
		"the installation's":          {installation(sealed.Off), []endpointtrust.Policy{policy("p", first, "api")}, "Prefer root"},
		"never looser":                {installation(sealed.Require), []endpointtrust.Policy{policy("p", preferA, "api")}, "Require 4"},
		"stricter":                    {installation(sealed.Prefer), []endpointtrust.Policy{policy("p", requireA, "api")}, "Require 4"},
		"of equal trust, stricter":    {installation(sealed.Off), []endpointtrust.Policy{policy("p", preferA, "api"), policy("q", requireA, "*"), policy("r", preferA, "*")}, "Require 4"},
		"conflicting":                 {installation(sealed.Off), []endpointtrust.Policy{policy("p", requireA, "api"), policy("q", requireB, "*")}, "trust_conflict"},
		"conflicting on another port": {installation(sealed.Off), []endpointtrust.Policy{policy("p", requireA, "api"), policy("q", onPort(81, requireB), "*")}, "Require 4"},
		"with authorities and own":    {installation(sealed.Off), []endpointtrust.Policy{policy("p", first, "api"), policy("q", own, "*")}, "trust_conflict"},
		"invalid":                     {installation(sealed.Off), []endpointtrust.Policy{policy("p", broken, "api")}, "trust_invalid"},
		"invalid beside valid":        {installation(sealed.Off), []endpointtrust.Policy{policy("p", broken, "api"), policy("q", requireA, "api")}, "trust_conflict"},
		"first sight":                 {endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"}, []endpointtrust.Policy{policy("p", first, "api")}, "Prefer"},
		"for no account":              {endpointtrust.Default{Mode: sealed.Off}, []endpointtrust.Policy{policy("p", first, "api")}, "trust_no_account"},
		"vanished":                    {installation(sealed.Off), []endpointtrust.Policy{gone(1, policy("p", requireA, "api"))}, "Require 4"},
		"vanished last":               {installation(sealed.Off), []endpointtrust.Policy{gone(1, policy("p", requireA, "api")), gone(2, policy("q", requireB, "api"))}, "Require 5"},
		"replaced":                    {installation(sealed.Off), []endpointtrust.Policy{gone(1, policy("p", requireA, "api")), policy("q", requireB, "*")}, "Require 5"},
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
			if got, want := show(rules.Decide(u)), show(endpointtrust.Compile(nil, tt.byDefault, endpointaccess.Listed{"": true}).Decide(u)); got != want {
				t.Errorf("another namespace: %s, want %s", got, want)
			}
		})
	}
}
