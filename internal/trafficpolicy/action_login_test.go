// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// fakeLogins is a LoginHandler that admits requests by a header with the person's name.
type fakeLogins struct{ asked []LoginRequest }

func (d *fakeLogins) ServeLogin(
	w http.ResponseWriter, r *http.Request, l LoginRequest, next AdmitFunc,
) {
	d.asked = append(d.asked, l)
	switch {
	case strings.HasPrefix(ClientRequestURI(r), LoginPath(l.Config.AuthID)):
		_, _ = io.WriteString(w, "own path")
	case r.Method == http.MethodOptions:
		next(w, r, nil)
	case r.Header.Get("Person") == "":
		l.Pages.WritePage(w, r, http.StatusUnauthorized, account.CodeLoginNeeded, "log in")
	default:
		r = r.Clone(r.Context())
		r.Header.Del("Person")
		next(w, r, &account.LoginIdentity{ID: "au-1", Name: r.Header.Get("Name"),
			Groups: []string{"staff"}, Attributes: map[string][]string{"team": {"a", "b"}}})
	}
}

const oidcAction = `{type: openid-connect,
  config: {issuer_url: "https://idp.example.com", client_id: a, client_secret: b}}`

func TestLoginAction_SetsResults(t *testing.T) {
	t.Parallel()
	d := &fakeLogins{}
	const doc = `
on_http_request:
- expressions: ["!req.url.path.startsWith('/open')"]
  actions: [%s]
- expressions: ["req.url.path == '/who'"]
  actions:
  - type: custom-response
    config:
      body: "${actions.oidc.identity.id} ${actions.ngrok.oidc.identity.groups[0]}\
        \ ${actions.oidc.identity.attributes['team'][1]} ${actions.oidc.session_timed_out}"
- expressions: ["req.url.path == '/groups'"]
  actions:
  - type: add-headers
    config: {headers: {x-groups: "${actions.oidc.identity.groups.filter(g, g.startsWith('st')).join(';')}"}}
- expressions: ["req.url.path == '/mail'", "actions.oidc.identity.email != 'x'"]
  actions: [{type: deny}]
- expressions: ["actions.oidc.error.code == 'ERR_FL_3011'"]
  actions: [{type: custom-response, config: {body: preflight}}]
`
	p := compile(t, fmt.Sprintf(doc, oidcAction), Options{Scheme: "https", Binding: "public", LoginHandler: d})
	for name, c := range map[string]struct {
		method, path, person string
		status               int
		want                 string
	}{
		"without a session":                   {"GET", "/x", "", 401, ""},
		"a person":                            {"GET", "/x", "ann", 200, "GET /x"},
		"where no rule matches":               {"GET", "/open", "", 200, "GET /open"},
		"what is known of her":                {"GET", "/who", "ann", 200, "au-1 staff b false"},
		"groups in a header of one's own":     {"GET", "/groups", "ann", 200, "X-Groups=staff"},
		"what is not known protects":          {"GET", "/mail", "ann", 403, ""},
		"a preflight request":                 {"OPTIONS", "/x", "", 200, "preflight"},
		"its own path":                        {"GET", "/_fairlead/oidc/callback?code=1", "", 200, "own path"},
		"its own path, outside of the rule":   {"GET", "/_fairlead/oidc/../../open", "", 200, "own path"},
		"a path that only looks like its own": {"GET", "/_fairlead/%6fidc/callback", "", 401, ""},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		if c.person != "" {
			r.Header.Set("Person", c.person)
		}
		res := do(t, p, fullConn(), r)
		if got := body(t, res); res.StatusCode != c.status || !strings.Contains(got, c.want) ||
			strings.Contains(got, "Person") {
			t.Errorf("%s: %d %q, want %d %q", name, res.StatusCode, got, c.status, c.want)
		}
	}
	if l := d.asked[0]; l.Endpoint.ID != "ep-1" || l.Conn == nil || l.Config.IssuerURL != "https://idp.example.com" ||
		l.Config.AuthID != "oidc" || l.Config.MaxSession != account.DefaultSessionDuration {
		t.Errorf("asked with %+v", l)
	}
	alone := compile(t, fmt.Sprintf(doc, oidcAction))
	if res := do(t, alone, fullConn(), httptest.NewRequest("GET", "/x", nil)); res.StatusCode != 500 {
		t.Errorf("without a LoginHandler: %d", res.StatusCode)
	}
}

func TestLoginAction_ChecksEndpoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ scheme, binding, want string }{
		{"https", "public", ""}, {"http", "", ""}, {"https", "", ""}, {"", "", ""},
		{"http", "public", "needs an endpoint with TLS"}, {"http", "kubernetes", "public binding"},
		{"http", "internal", "public binding"}, {"https", "kubernetes", "public binding"},
	} {
		_, problems := Check(onRequest("", oidcAction), Options{Scheme: c.scheme, Binding: c.binding})
		if (len(problems) == 0) != (c.want == "") || len(problems) > 0 &&
			(!strings.Contains(problems[0].Msg, c.want) || problems[0].Line == 0) {
			t.Errorf("%s, %s: %v, want %q", c.scheme, c.binding, problems, c.want)
		}
	}
}

func TestLoginConfig_Reads(t *testing.T) {
	t.Parallel()
	config := func(action string) *LoginConfig {
		return &compile(t, onRequest("", action)).rules[onHTTPRequest][0].actions[0].action.(*loginAction).config
	}
	a := config(
		`{type: oauth, config: {provider: google, client_id: a, client_secret: b, ` +
			`max_session_duration: 90000000000, idle_session_duration: 15m}}`)
	if a.MaxSession != 90*time.Second || a.IdleSession != 15*time.Minute || a.AuthID != "oauth" ||
		a.Kind != LoginOAuth {
		t.Errorf("got %+v", a)
	}
	same := config(
		`{"type": "oauth", "config": {"idle_session_timeout": "900s", "max_session_duration": "90s", ` +
			`"client_secret": "b", "client_id": "a", "provider": "google"}}`)
	other := config(
		`{type: oauth, config: {provider: google, client_id: a, client_secret: c, ` +
			`max_session_duration: 90s, idle_session_duration: 15m}}`)
	if a.Digest == "" || a.Digest != same.Digest || a.Digest == other.Digest {
		t.Errorf("digests %s, %s of the same, %s of another", a.Digest, same.Digest, other.Digest)
	}
	const of = `{type: oauth, config: {provider: %s, client_id: a, client_secret: b, require_auth_time: %t}}`
	if lax := config(fmt.Sprintf(of, "gitlab", false)); a.RequireAuthTime != nil || *lax.RequireAuthTime {
		t.Errorf("got %+v, %+v", a, lax)
	}
	_, problems := Check(onRequest("", fmt.Sprintf(of, "github", true)), Options{})
	if len(problems) != 1 || !strings.Contains(problems[0].Msg, "GitHub never says") {
		t.Errorf("require_auth_time of GitHub: %v", problems)
	}
	s := config(`{type: saml, config: {idp_metadata: "<EntityDescriptor/>", upstream_groups: [staff, app-*]}}`)
	for group, passes := range map[string]bool{"staff": true, "app-a": true, "app-": true, "staff2": false,
		"ap": false} {
		if s.ForwardsGroup(group) != passes || !a.ForwardsGroup(group) {
			t.Errorf("the upstream is told of the group %s: %v of %q", group, !passes, s.UpstreamGroups)
		}
	}
	none := config(`{type: saml, config: {idp_metadata: "<EntityDescriptor/>", upstream_groups: []}}`)
	if none.ForwardsGroup("staff") {
		t.Error("an empty list passes groups")
	}
	if s.AuthID != "saml" || !strings.HasSuffix(s.NameIDFormat, ":persistent") || s.AllowIdPInitiated || s.ForceAuthn {
		t.Errorf("got %+v", s)
	}
}

// TestLoginConfig_Validates checks that an error of Options.ValidateLogin is reported at the
// field's position, unless the config has other mistakes.
func TestLoginConfig_Validates(t *testing.T) {
	t.Parallel()
	o := Options{ValidateLogin: func(c *LoginConfig) error {
		if c.IdPMetadata == "<EntityDescriptor/>" {
			return account.Invalid("idp_metadata", "", "it has no certificate")
		}
		return nil
	}}
	for config, want := range map[string]string{
		`{idp_metadata: "<EntityDescriptor/>"}`:                             "3:41: idp_metadata: it has no certificate",
		`{idp_metadata: "<EntityDescriptor>"}`:                              "",
		`{idp_metadata: "<EntityDescriptor/>", max_session_duration: soon}`: "max_session_duration",
	} {
		_, problems := Check(onRequest("", "{type: saml, config: "+config+"}"), o)
		var got string
		for _, p := range problems {
			got += fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Msg)
		}
		if (want == "") != (got == "") || !strings.Contains(got, want) || want == "max_session_duration" &&
			strings.Contains(got, "certificate") {
			t.Errorf("%s: got %q, want %q", config, got, want)
		}
	}
}

// TestLoginConfig_ReportsMistakes checks that each message about a mistyped config names the key
// and what to do.
func TestLoginConfig_ReportsMistakes(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`issuer_uri: x`: `has no key "issuer_uri"; did you mean issuer_url?`, `clientId: x`: "did you mean client_id?",
		`client_secrt: x`:          "did you mean client_secret?",
		`max_session_duratoin: 1h`: "did you mean max_session_duration?",
		`colour: red`:              `has no key "colour"; it has auth_id`, `id: x`: `has no key "id"; it has auth_id`,
		`issuer_url: https://idp.example.com/.well-known/openid-configuration`: "issuer_url ends " +
			"before /.well-known/openid-configuration",
		`client_id: " a"`:           "client_id begins or ends with white space",
		`client_secret: "hush\n"`:   "client_secret begins or ends with white space",
		`max_session_duration: 30d`: "there is no unit for days",
	} {
		_, problems := Check("on_http_request: [{actions: [{type: openid-connect, config: {"+config+"}}]}]",
			Options{Scheme: "https", Binding: "public"})
		var got string
		for _, p := range problems {
			got += p.Msg + "\n"
		}
		if !strings.Contains(got, want) || strings.Contains(got, "hush") {
			t.Errorf("%s: %s", config, got)
		}
	}
	_, err := Compile("on_http_request: [{actions: [{type: oauth, config: {provider: okta}}]}]", Options{})
	if err == nil || !strings.Contains(err.Error(), `not "okta"; the action openid-connect takes any`) ||
		strings.Contains(err.Error(), account.NotShown) {
		t.Errorf("okta: %v", err)
	}
}

func TestCheckProviderURL(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"https://idp.example.com": true, "https://idp.example.com/realms/a/": true, "http://localhost:5556/dex": true,
		"http://dex.localhost:1": true, "http://127.0.0.1:1": true, "http://[::1]:1": true,
		"http://idp.example.com": false, "http://localhost.example.com": false, "http://10.0.0.1": false,
		"ftp://x":         false,
		"idp.example.com": false, "https://": false, "https://a:b@c": false,
		"https://a/#b": false, "https://a/?b": false, "javascript:alert(1)": false, "https:idp": false, "": false,
		"https://a b": false, "https://a/.well-known/openid-configuration": false,
		"https://a/b/.well-known/openid-configuration/": false, "https://" + strings.Repeat("a", 4096): false,
	} {
		if err := checkProviderURL("issuer_url", url); (err == nil) != ok {
			t.Errorf("%.80q: %v", url, err)
		}
	}
	if err := checkProviderURL("idp_metadata_url", "https://a/md?id=1"); err != nil {
		t.Error(err)
	}
}

func TestDropLoginCookies(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"a=b": "a=b", "a=b;c=d": "a=b;c=d", "a=b; __Host-fl-staff=x; c=\"d e\"": "a=b; c=\"d e\"",
		"__Host-fl-staff=x":              "",
		"__Host-fl-staff-12345678=x;a=b": "a=b",
		"=__Host-fl-staff=x; a=b":        "a=b", "__hOST-Fl-staff=x;a": "a", "__Host-fleet=x": "__Host-fleet=x",
		"a=__Host-fl-staff": "a=__Host-fl-staff",
	} {
		h := http.Header{"Cookie": {given}}
		if DropLoginCookies(h); h.Get("Cookie") != want || len(h["Cookie"]) > 1 || want == "" && h["Cookie"] != nil {
			t.Errorf("%q becomes %q, want %q", given, h["Cookie"], want)
		}
	}
}

// TestLoginAction_KeepsReservedPathsAfterRewrite checks that a rule before the login may rewrite
// every path: those of the login stay where the provider sends people, and a login ends at the page
// that was requested.
func TestLoginAction_KeepsReservedPathsAfterRewrite(t *testing.T) {
	t.Parallel()
	p := compile(t, `
on_http_request:
- actions: [{type: url-rewrite, config: {from: "^https://[^/]+/(.*)", to: "/v2/$1"}}, `+oidcAction+`]
`, Options{Scheme: "https", Binding: "public", LoginHandler: &fakeLogins{}})
	r := httptest.NewRequest("GET", "/_fairlead/oidc/callback?code=1", nil)
	if got := body(t, do(t, p, fullConn(), r)); got != "own path" {
		t.Errorf("the callback leads to %q", got)
	}
	r = httptest.NewRequest("GET", "/x?y", nil)
	r.Header.Set("Person", "ann")
	res := do(t, p, fullConn(), r, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.RequestURI()+" "+ClientRequestURI(r))
	})
	if got := body(t, res); got != "/v2/x?y /x?y" {
		t.Errorf("the upstream gets %q", got)
	}
}
