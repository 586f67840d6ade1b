// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"slices"
	"strings"
	"testing"
)

// TestNoSecrets_RefusesEverySecret checks where each secret of the language is refused, and that
// the message has the remedy and not the secret.
func TestNoSecrets_RefusesEverySecret(t *testing.T) {
	t.Parallel()
	const rule = "on_http_request:\n- actions:\n  - type: "
	for name, c := range map[string]struct {
		text string
		want string // "" = nothing is refused
	}{
		"client_secret of oauth": {
			rule + "oauth\n    config: {provider: github, client_id: x, client_secret: hush}", "line 4, column 46"},
		"client_secret of openid-connect": {rule + "openid-connect\n    config:\n      client_id: x\n" +
			"      client_secret: hush\n      issuer_url: https://login.example.com", "line 6, column 7"},
		"passwords": {rule + "basic-auth\n    config: {credentials: ['a:hushhush']}", "line 4, column 14"},
		"a fixed header": {rule + "add-headers\n    config: {headers: {authorization: Bearer hush}}",
			"line 4, column 24"},
		"behind an alias": {rule + "basic-auth\n    config: {credentials: [&a 'a:hushhush', *a]}",
			"line 4, column 14"},
		"a header of a header": {rule +
			"add-headers\n    config: {headers: {authorization: \"${req.headers['x'][0]}\"}}", ""},
		"none": {rule + "add-headers\n    config: {headers: {x-team: hush}}", ""},
	} {
		o := Options{Scheme: "https", Binding: "public"}
		if _, err := Compile(c.text, o); err != nil {
			t.Errorf("%s: where secrets are allowed: %v", name, err)
		}
		o.NoSecrets = "keep it elsewhere"
		_, problems := Check(c.text, o)
		texts := make([]string, len(problems))
		for i, p := range problems {
			texts[i] = p.String()
		}
		got := strings.Join(texts, "; ")
		switch {
		case c.want == "" && got != "":
			t.Errorf("%s: refused with %s", name, got)
		case c.want != "" && (len(problems) != 1 || !strings.HasPrefix(got, c.want) ||
			!strings.HasSuffix(got, "keep it elsewhere")):
			t.Errorf("%s: got %q, want one mistake at %s", name, got, c.want)
		case strings.Contains(got, "hush") || slices.ContainsFunc(problems, func(p Problem) bool {
			return strings.Contains(p.Value, "hush")
		}):
			t.Errorf("%s: the message has the secret: %s", name, got)
		}
	}
}
