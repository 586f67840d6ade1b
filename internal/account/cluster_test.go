// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// keySetOf returns a key set document of keys with the members.
func keySetOf(t *testing.T, keys ...map[string]any) []byte {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"keys": keys})
	must.Succeed(t, err)
	return raw
}

// rsaMembers returns the members of a public RSA key.
func rsaMembers(t *testing.T, bits int) map[string]any {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	key, err := rsa.GenerateKey(rand.Reader, bits)
	must.Succeed(t, err)
	return map[string]any{"kid": "r-1", "kty": "RSA", "e": "AQAB",
		"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes())}
}

// ecMembers returns the members of a public EC key.
func ecMembers(t *testing.T, curve elliptic.Curve) map[string]any {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	must.Succeed(t, err)
	point, err := key.PublicKey.Bytes()
	must.Succeed(t, err)
	half := 1 + (len(point)-1)/2
	return map[string]any{"kid": "e-1", "kty": "EC", "crv": curve.Params().Name,
		"x": base64.RawURLEncoding.EncodeToString(point[1:half]),
		"y": base64.RawURLEncoding.EncodeToString(point[half:])}
}

func with(members map[string]any, name string, value any) map[string]any {
	changed := map[string]any{name: value}
	for k, v := range members {
		if k != name {
			changed[k] = v
		}
	}
	return changed
}

func TestParseKeySet_Accepts(t *testing.T) {
	for want, members := range map[string]map[string]any{
		"r-1 RS256": with(rsaMembers(t, 2048), "x5c", []string{"AA=="}),
		"e-1 ES256": ecMembers(t, elliptic.P256()),
		"e-1 ES384": with(ecMembers(t, elliptic.P384()), "alg", "ES384"),
		"e-1 ES512": with(ecMembers(t, elliptic.P521()), "use", "sig"),
	} {
		set, err := account.ParseKeySet(keySetOf(t, members))
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if got := set.Keys[0].KeyID + " " + set.Keys[0].Algorithm; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		normal, err := json.Marshal(set)
		if err != nil || strings.Contains(string(normal), "x5c") {
			t.Errorf("%s: normal form %s, %v", want, normal, err)
		}
		again, err := account.ParseKeySet(normal)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(set) {
			t.Errorf("%s: the normal form gives %v, %v", want, again, err)
		}
	}
}

func TestParseKeySet_Refuses(t *testing.T) {
	rsaKey, ecKey := rsaMembers(t, 2048), ecMembers(t, elliptic.P256())
	other := ecMembers(t, elliptic.P256())
	var many []map[string]any
	for i := range 17 {
		many = append(many, with(ecKey, "kid", fmt.Sprint("k-", i)))
	}
	for says, raw := range map[string][]byte{
		"must be a JSON Web Key Set":    []byte("<html>"),
		"has 0 keys":                    []byte(`{"keys":[]}`),
		"has 17 keys":                   keySetOf(t, many...),
		"at most 65536 are allowed":     []byte(`{"keys":[` + strings.Repeat(" ", 64<<10) + `]}`),
		"is the kid of two keys":        keySetOf(t, rsaKey, with(ecKey, "kid", "r-1")),
		"needs a kid":                   keySetOf(t, with(ecKey, "kid", "")),
		"has 1024 bits":                 keySetOf(t, rsaMembers(t, 1024)),
		`member "d" of a private key`:   keySetOf(t, with(ecKey, "d", "c2VjcmV0")),
		`member "D" of a private key`:   keySetOf(t, with(ecKey, "D", "c2VjcmV0")),
		`member "k" of a private key`:   keySetOf(t, map[string]any{"kid": "o", "kty": "oct", "k": "c2VjcmV0"}),
		`has the kty "OKP"`:             keySetOf(t, map[string]any{"kid": "o", "kty": "OKP", "x": "AA"}),
		`has the crv "secp256k1"`:       keySetOf(t, with(ecKey, "crv", "secp256k1")),
		"are no point of P-256":         keySetOf(t, with(ecKey, "y", other["y"])),
		"is not base64url of 32 bytes":  keySetOf(t, with(ecKey, "x", "AA")),
		`accepted with RS256 only`:      keySetOf(t, with(rsaKey, "alg", "PS256")),
		`accepted with ES256 only`:      keySetOf(t, with(ecKey, "alg", "HS256")),
		"has a use other than sig":      keySetOf(t, with(rsaKey, "use", "enc")),
		"has an n or e that no RSA key": keySetOf(t, with(rsaKey, "e", "Ag")),
		"more than 32 bits":             keySetOf(t, with(rsaKey, "e", "AQAAAAAB")),
		"texts as members":              keySetOf(t, with(ecKey, "x", 7)),
	} {
		_, err := account.ParseKeySet(raw)
		if account.CodeOf(err) != account.CodeInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		} else if strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("the refusal shows the private key: %v", err)
		}
	}
}

func TestClusterPatch_Validates(t *testing.T) {
	t.Parallel()
	set := accounttest.NewTokenSigner(t, "k-1", "ES256").KeySet(t)
	base := account.Cluster{ID: "cl-1", Name: "prod", Issuer: account.DefaultIssuer, JWKS: set}
	subject := func(s account.SubjectPatch) account.ClusterPatch {
		return account.ClusterPatch{Subjects: &[]account.SubjectPatch{s}}
	}
	named := func(namespace, name string) account.ClusterPatch {
		return subject(account.SubjectPatch{Namespace: namespace, ServiceAccount: name, Role: account.RoleOperator})
	}
	valid := account.SubjectPatch{Namespace: "a", ServiceAccount: "b.c", Role: account.RoleExporter}
	role := func(r account.SubjectRole, acl ...string) account.ClusterPatch {
		s := valid
		s.Role, s.ACL = r, &acl
		return subject(s)
	}
	for field, p := range map[string]account.ClusterPatch{
		"name":                        {Name: new("Prod")},
		"issuer":                      {Issuer: new(strings.Repeat("x", 513))},
		"cluster_uid":                 {ClusterUID: new("a b")},
		"description":                 {Description: new("\x00")},
		"remove_keys":                 {RemoveKeys: []string{"k-9"}},
		"jwks":                        {RemoveKeys: []string{"k-1"}},
		"subjects[0].namespace":       named("a:b", "c"),
		"subjects[0].service_account": named("a", "C"),
		"subjects[0].role":            role("admin"),
		"subjects[0].acl":             role(account.RoleForwarder, "bind:*"),
		"subjects[0].uid": subject(account.SubjectPatch{Namespace: "a", ServiceAccount: "b", Role: "operator",
			UID: new("a b")}),
		"subjects[1]": {Subjects: &[]account.SubjectPatch{valid, valid}},
		"subjects":    {Subjects: new(make([]account.SubjectPatch, 33))},
	} {
		_, err := p.Apply(base, time.Now())
		if fields := account.FieldsOf(err); account.CodeOf(err) != account.CodeInvalid || fields[0].Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for want, p := range map[string]account.ClusterPatch{
		"[connect:op-*]":      role(account.RoleForwarder, "connect:op-*"),
		"[connect:*]":         role(account.RoleForwarder),
		"[export:* bind:*]":   role(account.RoleExporter),
		"[]":                  role(account.RoleOperator),
		"[export:a/* bind:*]": role(account.RoleExporter, "export:A/*", "bind:*"),
	} {
		got, err := p.Apply(base, time.Now())
		if err != nil || fmt.Sprint(got.Subjects[0].ACL) != want {
			t.Errorf("%s: %v, %v", want, got.Subjects, err)
		}
	}
}
