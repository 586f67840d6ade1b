// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestClaims_KeepEveryKind gives claims of every kind of JSON to rules as texts.
func TestClaims_KeepEveryKind(t *testing.T) {
	t.Parallel()
	text := []byte(`{"sub": "1078", "hd": "example.com", "level": 3, "ratio": 1.50, "big": 12345678901234567890,
		"admin": true, "guest": false, "org": {"id": "7", "tags": ["a", 1]}, "teams": ["a", "b"],
		"mixed": ["a", 2, true, {"b": null}, ["c"]], "none": null, "empty": "", "no": [], "long": {"x": "` +
		strings.Repeat("y", maxText) + `"}}`)
	claims, err := decodeClaims(func(into any) error { return json.Unmarshal(text, into) })
	if err != nil {
		t.Fatal(err)
	}
	id, err := claims.identity("https://idp.example.com", "1078", []string{"teams"})
	want := map[string][]string{"hd": {"example.com"}, "level": {"3"}, "ratio": {"1.50"},
		"big":   {"12345678901234567890"},
		"admin": {"true"}, "guest": {"false"}, "org": {`{"id":"7","tags":["a",1]}`}, "teams": {"a", "b"},
		"mixed": {"a", "2", "true", `{"b":null}`, `["c"]`}}
	if err != nil || !reflect.DeepEqual(id.Attributes, want) || !reflect.DeepEqual(id.Groups, want["teams"]) {
		t.Errorf("attributes %q, groups %q, %v", id.Attributes, id.Groups, err)
	}
}

// TestClaims_VerifyAddresses reads email_verified of any issuer. Without it, xms_edov counts, of
// Microsoft's issuers only.
func TestClaims_VerifyAddresses(t *testing.T) {
	t.Parallel()
	const entra = "https://login.microsoftonline.com/" + tenant + "/v2.0"
	for _, c := range []struct {
		issuer, claims string
		want           bool
	}{
		{entra, `"xms_edov": true`, true},
		{entra, `"xms_edov": 1`, true},
		{entra, `"xms_edov": "1"`, true},
		{entra, `"xms_edov": "True"`, true},
		{entra, `"xms_edov": false`, false},
		{entra, `"xms_edov": "0"`, false},
		{entra, `"xms_edov": null`, false},
		{entra, `"xms_edov": [true]`, false},
		{entra, `"xms_edov": true, "email_verified": false`, false},
		{entra, `"xms_edov": true, "email_verified": "false"`, false},
		{entra, `"xms_edov": true, "email_verified": null`, true},
		{entra, `"xms_edov": false, "email_verified": true`, true},
		{"https://sts.windows.net/" + tenant + "/", `"xms_edov": true`, true},
		{"https://login.microsoftonline.us/" + tenant + "/v2.0", `"xms_edov": true`, true},
		{"https://login.partner.microsoftonline.cn/" + tenant + "/v2.0", `"xms_edov": true`, true},
		{"https://idp.example.com", `"xms_edov": true`, false},
		{"https://idp.example.com/login.microsoftonline.com/v2.0", `"xms_edov": true`, false},
		{"https://login.microsoftonline.com.example.com/v2.0", `"xms_edov": true`, false},
		{"https://login.microsoftonline.com:8443/v2.0", `"xms_edov": true`, false},
		{"https://login.microsoftonline.com@example.com/v2.0", `"xms_edov": true`, false},
		{"http://login.microsoftonline.com/v2.0", `"xms_edov": true`, false},
		{"https://idp.example.com", `"email_verified": true`, true},
	} {
		text := fmt.Appendf(nil, `{"email": "ann@example.com", %s}`, c.claims)
		claims, err := decodeClaims(func(into any) error { return json.Unmarshal(text, into) })
		if err != nil {
			t.Fatal(err)
		}
		if id, err := claims.identity(c.issuer, "1078", nil); err != nil || (id.Email != "") != c.want {
			t.Errorf("%s of %s: the address %q, %v", c.claims, c.issuer, id.Email, err)
		}
	}
}
