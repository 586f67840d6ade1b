// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const tenant = "72f988bf-86f1-41af-91ab-2d7cd011db47"

// TestProvider_ChecksTenantOfIssuer checks that the tenant of a token, filled into the template
// that Microsoft's discovery document gives as issuer, is the issuer of the token.
func TestProvider_ChecksTenantOfIssuer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		issuer string // of the discovery document, after the provider's URL
		claims map[string]any
		ok     bool
	}{
		"a tenant": {"/{tenantid}/v2.0", map[string]any{"tid": tenant, "iss": "/" + tenant + "/v2.0"}, true},
		"another tenant": {"/{tenantid}/v2.0",
			map[string]any{"tid": strings.Replace(tenant, "7", "8", 1), "iss": "/" + tenant + "/v2.0"}, false},
		"no tenant":    {"/{tenantid}/v2.0", map[string]any{"iss": "/{tenantid}/v2.0"}, false},
		"the template": {"/{tenantid}/v2.0", map[string]any{"tid": "{tenantid}", "iss": "/{tenantid}/v2.0"}, false},
		"a tenant of one's own": {"/" + tenant + "/v2.0", map[string]any{"tid": tenant, "iss": "/" + tenant + "/v2.0"},
			true},
		"not of one's own": {"/" + tenant + "/v2.0", map[string]any{"tid": tenant, "iss": "/{tenantid}/v2.0"},
			false},
		"an issuer of elsewhere": {"https://evil.example/{tenantid}", map[string]any{"tid": tenant, "iss": "/x"},
			false},
	} {
		p := startProvider(t)
		p.Discovery = map[string]any{"issuer": p.URL + c.issuer}
		if strings.HasPrefix(c.issuer, "https:") {
			p.Discovery["issuer"] = c.issuer
		}
		p.Claims = map[string]any{"tid": c.claims["tid"], "iss": p.URL + c.claims["iss"].(string),
			"email_verified": nil}
		config := configOf(p)
		config.Kind, config.Provider = trafficpolicy.LoginOAuth, "microsoft"
		got, err := handleCallback(t, newTestProvider(t, p, config), "code=c")
		if (err == nil) != c.ok {
			t.Errorf("%s: %+v, %v", name, got, err)
		} else if c.ok && (got.Provider.Name != "Microsoft" || got.Identity.Email != "" ||
			!strings.Contains(got.Key, tenant)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDialectOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, issuer, want, at, prompt string }{
		{"google", "", "Google", google, "select_account"},
		{"", google, "Google", google, "select_account"},
		{"gitlab", "", "GitLab", gitlab, "login"},
		{"gitlab", "https://git.example.com", "GitLab", "https://git.example.com", "login"},
		{"microsoft", "", "Microsoft", microsoft, "login"},
		{"", "https://idp.example.com/realms/a", "idp.example.com", "https://idp.example.com/realms/a", "login"},
	} {
		if d := dialectOf(c.name, c.issuer); d.name != c.want || d.issuer != c.at || d.prompt != c.prompt ||
			d.url != d.issuer {
			t.Errorf("%s %s: %+v", c.name, c.issuer, d)
		}
	}
}

func TestProvider_ReadsGitLabGroups(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	p.Claims = map[string]any{"groups": nil, "groups_direct": []string{"x/y"}}
	config := configOf(p)
	config.Kind, config.Provider = trafficpolicy.LoginOAuth, "gitlab"
	if got, err := handleCallback(t, newTestProvider(t, p, config), "code=c"); err != nil ||
		!reflect.DeepEqual(got.Identity.Groups,
			[]string{"x/y"}) {
		t.Errorf("%+v, %v", got, err)
	}
}
