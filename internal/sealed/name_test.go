// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"net/url"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestCovers_OneLabelOfOneAccount(t *testing.T) {
	t.Parallel()
	u, err := account.ParseEndpointURL("http://api.demo")
	must.Succeed(t, err)
	for name, want := range map[string]bool{
		"fairlead://ac-1/http/api.demo:80":   true,
		"fairlead://ac-1/http/*.demo:80":     true,
		"fairlead://ac-2/http/api.demo:80":   false,
		"fairlead://ac-1/tcp/api.demo:80":    false,
		"fairlead://ac-1/http/api.demo:81":   false,
		"fairlead://ac-1/http/api.demo":      false,
		"fairlead://ac-1/http/*.api.demo:80": false,
		"fairlead://ac-1/http/*:80":          false,
		"fairlead://ac-1/http/a*.demo:80":    false,
		"https://ac-1/http/api.demo:80":      false,
		"fairlead://x@ac-1/http/api.demo:80": false,
	} {
		parsed, err := url.Parse(name)
		must.Succeed(t, err)
		if got := sealed.Covers([]*url.URL{parsed}, "ac-1", u); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestParsePattern_StarIsFirstLabel(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://*.demo":    "fairlead://ac-1/http/*.demo:80",
		"tcp://*.demo:543": "fairlead://ac-1/tcp/*.demo:543",
		"http://API.demo":  "fairlead://ac-1/http/api.demo:80",
		"tcp://*.demo.a:1": "fairlead://ac-1/tcp/*.demo.a:1", "tcp://db.demo.a:1": "fairlead://ac-1/tcp/db.demo.a:1",
		"tcp://*.*.a:1": "", "http://*.demo.a": "", "service://*.demo.a": "", "service://db.demo.a": "",
		"http://*": "", "http://a*.demo": "", "http://api.*": "", "tcp://*.demo": "", "http://*.*.demo": "",
	} {
		u, err := sealed.ParsePattern(text)
		if err == nil {
			if got := sealed.Name("ac-1", u).String(); got != want {
				t.Errorf("%s: %s", text, got)
			}
		} else if want != "" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestKey_RoundTrip(t *testing.T) {
	t.Parallel()
	const text = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	p, err := sealed.ParseKey(text)
	if err != nil || sealed.FormatKey(p) != text {
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []string{"", "sha256/", "sha256/AA==", text[7:], "sha1/" + text[7:], text + "A"} {
		if _, err := sealed.ParseKey(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
