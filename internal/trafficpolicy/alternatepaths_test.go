// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAlternatePaths_Protect checks that a rule protects a path in every spelling that an upstream
// may take for it, whether the rule names what is closed or what is open.
func TestAlternatePaths_Protect(t *testing.T) {
	t.Parallel()
	const doc = `
on_http_request:
- expressions: ["%s"]
  actions: [{type: add-headers, config: {headers: {ruled: "yes"}}}, {type: deny}]
`
	closed := compile(t, fmt.Sprintf(doc, "req.url.path.startsWith('/admin/')"))
	open := compile(t, fmt.Sprintf(doc, "!(req.url.path.startsWith('/open/') || req.url.path == '/é')"))
	for _, path := range []string{
		"/admin/x", "//admin/x", "/./admin/x", "/%2e%2e/admin/x", "/open/../admin/x", "/open/%2e%2e/admin/x",
		"/open%2f..%2fadmin/x", "/admin%2fx", "/%61dmin/x",
		"/admin;a=b/x", "/;/admin/x", "/open/..;/admin/x", "/open/..;a=b/admin/x", "/open/%2e%2e;/admin/x",
		"/open/..%3b/admin/x", `/open/..%5cadmin/x`, `/%5cadmin%5cx`,
		"/open/%252e%252e/admin/x", "/open/%252e%252e%252fadmin/x", "/%2561dmin/x", "/open/%252e%252e%253b/admin/x",
		"/admin/../open/x", "/admin/%2e%2e/open/x", "/admin//../../open/x",
	} {
		for name, p := range map[string]*Policy{"a rule for what is closed": closed,
			"a rule for all but what is open": open} {
			if res := do(t, p, fullConn(), httptest.NewRequest("GET", path, nil)); res.StatusCode != 403 {
				t.Errorf("%s: %s passes", name, path)
			}
		}
	}
	long := strings.Repeat("x", maxAlternatePathBytes)
	for path, status := range map[string]int{"/open/" + long: 200, "/open/" + long + ";": 403} {
		if res := do(t, open, fullConn(), httptest.NewRequest("GET", path, nil)); res.StatusCode != status {
			t.Errorf("a long path: %d, want %d", res.StatusCode, status)
		}
	}
	for _, path := range []string{"/open/x", "/open/a%20b", "/open//x", "/open/a/../b", "/open/a;b=c", "/open/a%2Fb",
		"/open/100%25", "/open/%E4%BD%A0", "/open/a%5Cb", "/open/..x", "/%C3%A9"} {
		for name, p := range map[string]*Policy{"a rule for what is closed": closed,
			"a rule for all but what is open": open} {
			res := do(t, p, fullConn(), httptest.NewRequest("GET", path, nil))
			if res.StatusCode != 200 || res.Header.Get("Ruled") != "" {
				t.Errorf("%s: %s does not pass: %d", name, path, res.StatusCode)
			}
		}
	}
}

// TestAlternatePaths_ChangeNothingElse checks that only actions that protect apply where only the
// path is ambiguous, and that later rules see the path unchanged.
func TestAlternatePaths_ChangeNothingElse(t *testing.T) {
	t.Parallel()
	p := compile(t, `
on_http_request:
- expressions: ["req.url.path.startsWith('/admin')"]
  actions:
  - {type: restrict-ips, config: {enforce: true, allow: [192.0.2.0/24]}}
  - {type: custom-response, config: {body: admin}}
- actions: [{type: custom-response, config: {body: "${req.url.path} ${req.url}"}}]
`)
	res := do(t, p, fullConn(), httptest.NewRequest("GET", "http://a.example/x/..;/admin", nil))
	if got := body(t, res); got != "/x/..;/admin https://a.example/x/..;/admin" {
		t.Errorf("%d %q", res.StatusCode, got)
	}
}
