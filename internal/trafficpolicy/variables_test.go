// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// variableValues maps variables of on_http_request to their values for fullRequest; "" means that
// the variable is absent without its action.
var variableValues = map[string]string{
	"conn.client_ip":                            "192.0.2.7",
	"conn.client_port":                          "4711",
	"conn.operator.id":                          "op-1",
	"conn.cluster":                              "prod",
	"conn.pod.namespace":                        "shop",
	"conn.pod.name":                             "cart-1",
	"conn.pod.service_account":                  "cart",
	"conn.pod.annotations['team']":              "a",
	"conn.k8s.pod.metadata.namespace":           "shop",
	"conn.k8s.pod.metadata.name":                "cart-1",
	"conn.k8s.pod.metadata.annotations.team":    "a",
	"conn.server_name":                          "api.example.com",
	"conn.tls.sni":                              "api.example.com",
	"conn.ts.start":                             "2026-11-20T11:59:00Z",
	"conn.geo.city":                             "San Francisco",
	"conn.geo.country":                          "United States",
	"conn.geo.country_code":                     "US",
	"conn.geo.latitude":                         "37.77",
	"conn.geo.longitude":                        "-122.42",
	"conn.geo.radius":                           "5",
	"conn.geo.subdivision":                      "California",
	"endpoint.id":                               "ep-1",
	"endpoint.url":                              "http://api.shop",
	"endpoint.protocol":                         "http",
	"endpoint.addr":                             "api.shop:80",
	"endpoint.host":                             "api.shop",
	"endpoint.port":                             "80",
	"time.now":                                  "2026-11-20T12:00:00Z",
	"req.method":                                "POST",
	"req.host":                                  "API.shop:8080",
	"req.path":                                  "/a/b",
	"req.url":                                   "https://api.shop:8080/a/b?q=1&q=2",
	"req.url.raw":                               "https://API.shop:8080/a/./%62?q=1&q=2",
	"req.url.scheme":                            "https",
	"req.url.authority":                         "API.shop:8080",
	"req.url.host":                              "API.shop",
	"req.url.port":                              "8080",
	"req.url.path":                              "/a/b",
	"req.url.raw_path":                          "/a/./%62",
	"req.url.uri":                               "/a/./%62?q=1&q=2",
	"req.url.query":                             "q=1&q=2",
	"req.url.query_params['q'][1]":              "2",
	"req.query_params.q[0]":                     "1",
	"req.headers['x-a'][0]":                     "1",
	"req.headers['X-A'][0]":                     "1",
	"req.headers['host'][0]":                    "API.shop:8080",
	"req.cookies['s'][0].value":                 "v",
	"req.user_agent":                            "curl",
	"req.version":                               "HTTP/1.1",
	"req.content_length":                        "2",
	"actions.restrict_ips.action":               "",
	"actions.basic_auth.credentials.presented":  "",
	"actions.basic_auth.credentials.username":   "",
	"actions.basic_auth.credentials.authorized": "",
	"actions.rate_limit.limited":                "",
	"actions.ngrok.restrict_ips.action":         "",
	"actions.ngrok.basic_auth.credentials.presented":  "",
	"actions.ngrok.basic_auth.credentials.username":   "",
	"actions.ngrok.basic_auth.credentials.authorized": "",
	"actions.ngrok.rate_limit.limited":                "",
	"req.ts.header_received":                          "2026-11-20T12:00:00Z",
	"req.content_type":                                "text/plain",
	"req.content_type.raw":                            "text/plain; charset=utf-8",
	"req.content_type.parameters['charset']":          "utf-8",
	"req.content_encoding[0]":                         "gzip",
}

// knownVariables returns variableValues and the variables of the login actions.
func knownVariables() map[string]string {
	known := maps.Clone(variableValues)
	for _, family := range []string{"oauth", "oidc", "saml", "ngrok.oauth", "ngrok.oidc", "ngrok.saml"} {
		for _, finding := range []string{
			"identity.id", "identity.email", "identity.name", "identity.provider_user_id", "identity.groups[0]",
			"identity.attributes['a'][0]", "error.code", "session_timed_out",
		} {
			known["actions."+family+"."+finding] = ""
		}
	}
	return known
}

// loginOf returns a rule with the login action that sets the variable; "" for a variable that no
// login sets.
func loginOf(variable string) string {
	config := ", client_id: a, client_secret: b}}\n"
	switch rest := strings.TrimPrefix(strings.TrimPrefix(variable, "actions."), "ngrok."); {
	case strings.HasPrefix(rest, "oauth."):
		return "- actions:\n  - {type: oauth, config: {provider: github" + config
	case strings.HasPrefix(rest, "oidc."):
		return "- actions:\n  - {type: openid-connect, config: {issuer_url: 'https://idp.example.com'" + config
	case strings.HasPrefix(rest, "saml."):
		return "- actions:\n  - {type: saml, config: {idp_metadata_url: 'https://idp.example.com/metadata'}}\n"
	}
	return ""
}

// compileVariable compiles a policy that answers with the variable's value.
func compileVariable(t *testing.T, name string) *Policy {
	t.Helper()
	action := fmt.Sprintf(`{type: custom-response, config: {body: "${%s}"}}`, name)
	return compile(t, onRequest("", action)+loginOf(name))
}

// fullRequest returns a request and its connection of which everything is known.
func fullRequest() (*http.Request, *Conn) {
	r := httptest.NewRequest("POST", "/a/./%62?q=1&q=2", strings.NewReader("{}"))
	r.Host = "API.shop:8080"
	r.Header = http.Header{"X-A": {"1"}, "Cookie": {"s=v"}, "User-Agent": {"curl"},
		"Content-Type": {"text/plain; charset=utf-8"}, "Content-Encoding": {"gzip"}}
	c := fullConn()
	c.Locator = everywhere{"San Francisco", "United States", "US", "37.77", "-122.42", "5", "California"}
	return r, c
}

// everywhere is a Locator that finds each address at one place.
type everywhere Geo

func (e everywhere) Locate(netip.Addr) Geo { return Geo(e) }

func TestVariables_HaveKnownValues(t *testing.T) {
	t.Parallel()
	r, conn := fullRequest()
	for name, want := range knownVariables() {
		res := do(t, compileVariable(t, name), conn, r)
		if want == "" {
			if res.StatusCode != 500 || res.Header.Get(account.CodeHeader) != string(account.CodePolicyFailed) {
				t.Errorf("%s: got %d, want it to be unknown", name, res.StatusCode)
			}
		} else if got := body(t, res); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

// TestVariables_AbsentWhenUnknown checks that a variable without a value is absent, not empty.
func TestVariables_AbsentWhenUnknown(t *testing.T) {
	t.Parallel()
	bare := httptest.NewRequest("GET", "/", nil)
	bare.Host, bare.ContentLength = "a.b", -1
	always := []string{"time.now", "req.method", "req.host", "req.path", "req.version", "req.ts.header_received"}
	for name := range knownVariables() {
		res := do(t, compileVariable(t, name), &Conn{}, bare)
		present := slices.Contains(always, name) || strings.HasPrefix(name, "req.url") &&
			!strings.Contains(name, "[") && name != "req.url.port"
		if present != (res.StatusCode == 200) && name != "req.headers['host'][0]" {
			t.Errorf("%s: status %d for a connection of which nothing is known", name, res.StatusCode)
		}
	}
}

// TestVariables_AllTested checks that the tests above know every variable of a request.
func TestVariables_AllTested(t *testing.T) {
	t.Parallel()
	tested, known := 0, knownVariables()
	for _, v := range variables() {
		for name := range known {
			if name == v.name || strings.HasPrefix(name, v.name+"[") || strings.HasPrefix(name, v.name+".") {
				tested++
				break
			}
		}
	}
	if most := len(variables()); tested < most-len(responseVariables()) {
		t.Errorf("only %d of %d variables are tested here", tested, most)
	}
}
